"""The SDRAM controller of LiteDRAM as Verilog on standard output: `python litedram_core.py JSON`.

It runs in a process of its own, because Migen and LiteX change the state of the interpreter. The controller has the
ports `axi_*`, which are AXI4, and `dfi_*`, a command and its data in each cycle. It expects a chip that is initialised.
"""

import json
import re
import sys

from litedram.common import PhySettings
from litedram.core.controller import ControllerSettings, LiteDRAMController
from litedram.core.crossbar import LiteDRAMCrossbar
from litedram.frontend.axi import LiteDRAMAXI2Native, LiteDRAMAXIPort
from litedram.modules import SDRModule, _SpeedgradeTimings, _TechnologyTimings
from litex.gen.fhdl.verilog import convert
from migen import ClockDomain, Module, Signal

BITS = 16  #: Of DQ.
#: Wires of the channels of AXI4 that have a meaning here.
CHANNELS = {
    "ar": ("addr", "id", "len", "size", "burst"), "aw": ("addr", "id", "len", "size", "burst"),
    "w": ("data", "strb", "last"), "r": ("data", "id", "resp", "last"), "b": ("id", "resp")}
#: Wires of the DFI: a command, data that are written, and data that are read.
DFI = ("cs_n", "ras_n", "cas_n", "we_n", "address", "bank", "wrdata", "wrdata_en", "wrdata_mask", "rddata")


def module(chip: dict, mhz: float) -> SDRModule:
    """A chip as LiteDRAM describes them."""
    times = {"tREFI": chip["refi"], "tWTR": (2, None), "tCCD": (1, None), "tRRD": (None, chip["rrd"])}
    grade = {"tRP": chip["rp"], "tRCD": chip["rcd"], "tWR": chip["wr"], "tRFC": (None, chip["rfc"]), "tFAW": None,
             "tRAS": chip["ras"]}

    class Described(SDRModule):
        nbanks, nrows, ncols = 4, 1 << chip["row_bits"], 1 << chip["column_bits"]
        technology_timings = _TechnologyTimings(**times)
        speedgrade_timings = {"default": _SpeedgradeTimings(**grade)}

    return Described(mhz * 1e6, "1:1")


class Core(Module):
    """LiteDRAM's controller between an AXI4 port and a DFI whose pads are elsewhere.

    Args:
        chip:    The attributes of `hw.sdram.chip.SdramChip`.
        bus:     Bytes of the data bus of AXI4.
        mhz:     Clock.
        latency: Clock cycles from READ to its data at the pins of the chip.
        delay:   Clock cycles that pads and chip take from a READ at the DFI to its data there, less one.
    """

    def __init__(self, chip: dict, bus: int, mhz: float, latency: int, delay: int):
        self.clock_domains.cd_sys = ClockDomain()
        made, bits = module(chip, mhz), chip["row_bits"] + chip["column_bits"] + 3
        phy = PhySettings(
            phytype="GENSDRPHY", memtype="SDR", databits=BITS, dfi_databits=BITS, nranks=1, nphases=1, rdphase=0,
            wrphase=0, cl=latency, read_latency=delay, write_latency=0)
        self.submodules.controller = controller = LiteDRAMController(
            phy_settings=phy, geom_settings=made.geom_settings, timing_settings=made.timing_settings,
            clk_freq=mhz * 1e6, controller_settings=ControllerSettings(with_auto_precharge=False))
        self.submodules.crossbar = crossbar = LiteDRAMCrossbar(controller.interface)
        axi = LiteDRAMAXIPort(data_width=8 * bus, address_width=bits, id_width=1)
        self.submodules.axi = LiteDRAMAXI2Native(axi, crossbar.get_port(data_width=8 * bus))
        self.ports = {self.cd_sys.clk, self.cd_sys.rst}
        for channel, wires in CHANNELS.items():
            for wire in (*wires, "valid", "ready"):
                self._port(getattr(getattr(axi, channel), wire), f"axi_{channel}{wire}")
        for wire in DFI:  # LiteDRAM counts cycles until data come, and does without rddata_en and rddata_valid
            self._port(getattr(controller.dfi.p0, wire), f"dfi_{wire}")

    def _port(self, signal: Signal, name: str):
        signal.name_override = name
        self.ports.add(signal)


def text(name: str, **described) -> str:
    """Verilog of the controller, equal from run to run."""
    core = Core(**described)
    made = str(convert(core, core.ports, name=name))
    made = re.sub(r"^//.*\n|^`timescale.*\n", "", made, flags=re.MULTILINE)
    return re.sub(r"\n{2,}", "\n", made)


if __name__ == "__main__":
    print(text(**json.loads(sys.argv[1])))
