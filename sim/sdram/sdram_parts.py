# amaranth: UnusedElaboratable=no
"""A controller with the model of its chip, and a machine with both, as Verilog."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from amaranth.hdl import ClockSignal, Const, Instance, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from concord.hw.dram.axi import bus
from concord.hw.nnp import NNP, ports
from concord.hw.sdram.chip import CHIPS, SdramChip
from concord.hw.sdram.core_text import core_text
from concord.hw.sdram.sdram_controller import SdramController, memory_side
from concord.hw.verilog import verilog
from concord.sim.drivers.configs import to_text
from concord.sim.machines.build import build, simulate
from concord.sim.machines.library import Library, cached_verilog
from concord.spec.machine.config import Config

MODEL = Path(__file__).with_name("sdram_chip.v")
CHIP = CHIPS["MT48LC16M16"]
STARTED = 20  #: Microseconds within which the chip is ready after the time of power-up.
SLOW = 4096  #: Clock cycles that a message may wait for the words before it.
TIMES = ("rcd", "rp", "ras", "rc", "rrd", "rfc", "wr", "refi")  #: In nanoseconds; the model takes picoseconds.
#: What the model says when it is stricter, by the number at its port `strict`.
STRICT: Mapping[int, str] = MappingProxyType(dict(enumerate((
    "tRCD", "tRP", "tRAS", "tRC", "tRRD", "tRFC", "tWR", "tMRD", "too many refreshes are owed",
    "a command before the time of power-up"), 1)))


def model_parameters(chip: SdramChip, mhz: float) -> Mapping[str, int]:
    """Parameters of the model of a chip at a clock."""
    return {"PERIOD": round(1e6 / mhz), "MRD_CYCLES": chip.mrd, "POWER_UP": round(1e6 * chip.power_up),
            "CL2_PERIOD": round(1e3 * chip.period2) - 1, "CL3_PERIOD": round(1e3 * chip.period3) - 1,
            "ROW_BITS": chip.row_bits, "COLUMN_BITS": chip.column_bits,
            **{name.upper(): round(1e3 * getattr(chip, name)) for name in TIMES}}


def add_chip(m: Module, controller: SdramController, strict: Value | None = None) -> None:
    """Give a controller the model of its chip, which sees its clock half a cycle later, and which may be stricter."""
    outputs = ("cke", "cs_n", "ras_n", "cas_n", "we_n", "a", "ba", "dqm")
    m.submodules.chip = Instance(
        "sdram_chip", i_clk=~ClockSignal(), **{f"i_{name}": getattr(controller, name) for name in outputs},
        i_d=controller.dq, i_d_driven=~controller.released[0], o_q=controller.read,
        i_strict=Const(0, 4) if strict is None else strict,
        **{f"p_{name}": value for name, value in model_parameters(controller.chip, controller.mhz).items()})


class SdramBench(wiring.Component):
    """A controller and the model of a chip.

    Args:
        config: The machine.
        mhz:    Clock.
        chip:   The chip.

    Members:
        s_axi_*: AXI4.
        strict: In(4). Number, in `STRICT`, of what the chip wants more of than the controller knows; 0 for nothing.
    """

    def __init__(self, config: Config, mhz: float, chip: SdramChip = CHIP):
        self.config, self.mhz, self.chip = config, mhz, chip
        super().__init__(memory_side(config) | {"strict": In(4)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.controller = controller = SdramController(self.config, self.chip, self.mhz)
        for name, member in memory_side(self.config).items():
            ours, theirs = getattr(self, name), getattr(controller, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        add_chip(m, controller, self.strict)
        return m


class SdramMachine(wiring.Component):
    """A machine whose memory outside is an SDRAM at its clock; its other ports are those of the machine."""

    def __init__(self, config: Config, mhz: float, chip: SdramChip = CHIP):
        self.config, self.mhz, self.chip = config, mhz, chip
        super().__init__({name: member for name, member in ports(config).items() if name not in bus(config)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.machine = machine = NNP(self.config)
        m.submodules.controller = controller = SdramController(self.config, self.chip, self.mhz)
        for name, member in ports(self.config).items():
            theirs = getattr(machine, name)
            outside = name in bus(self.config)
            ours = getattr(controller, name.replace("m_axi", "s_axi")) if outside else getattr(self, name)
            m.d.comb += theirs.eq(ours) if member.flow == In else ours.eq(theirs)
        add_chip(m, controller)
        return m


def run_bench(bench: SdramBench, *, seed: int = 1, strict: int = 0) -> Path:
    """Run the testbench `sim.sdram.sdram_controller`; the result is that of `sim.machines.build.run`.

    Args:
        bench:  The controller and its chip.
        seed:   Seed of the bursts and pauses.
        strict: What the port `strict` of the bench has.

    Raises:
        AssertionError: a test failed.
        ValueError: LiteDRAM is not installed.
    """
    text = (verilog(bench, "bench"), core_text(bench.chip, bench.config.dram_bus, bench.mhz), MODEL.read_text())
    return simulate(build("".join(text), "bench"), "bench", "concord.sim.sdram.sdram_controller", seed=seed,
                    env={"CONFIG": to_text(bench.config), "MHZ": str(bench.mhz), "POWER_UP": str(bench.chip.power_up),
                         "STRICT": str(strict)})


def machine_verilog(config: Config, mhz: float) -> str:
    """Verilog of a machine with an SDRAM, whose top is `nnp`, for `sim.machines.library.Library`."""
    top = cached_verilog(f"sdram {mhz:g} {config}", lambda: verilog(SdramMachine(config, mhz), "nnp"))
    return "".join((top, core_text(CHIP, config.dram_bus, mhz), MODEL.read_text()))


class SdramLibrary(Library):
    """The Verilated machine with an SDRAM, which is ready; options are those of `Library`."""

    def __init__(self, config: Config, mhz: float, **options):
        super().__init__(config, text=machine_verilog(config, mhz), memory=None, **options)
        self.step(round((CHIP.power_up + STARTED) * mhz))

    def settle(self, quiet: int, blocked: int, most: int) -> bool:
        """As `Library.settle`; what an SDRAM has not written yet holds up messages for longer than other memories."""
        return super().settle(quiet, max(blocked, SLOW), most)
