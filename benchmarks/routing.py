"""Components placed and routed for an ECP5 between shift registers, so that their own paths bound the clock."""

import subprocess
import tempfile
from pathlib import Path

from amaranth.hdl import Cat, Module, Mux, Shape, Signal
from amaranth.lib.wiring import Component, In, Out
from concord.benchmarks.synth import YosysScript
from concord.handover.place import Placed, place
from concord.hw.verilog import YOSYS, verilog

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


def boxed(dut: Component) -> str:
    """The Verilog of a component between shift registers."""
    return verilog(Boxed(dut), "top")


def route(text: str, target: int, seed: int = 1) -> Placed:
    """Place and route the Verilog that `boxed` gives.

    Args:
        text:   The Verilog.
        target: Clock in MHz that placement aims at.
        seed:   Seed of placement.

    Raises:
        RuntimeError: a tool fails, or is not installed; the message says how to install it.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "top.v").write_text(text)
        done = subprocess.run([YOSYS, "-q", "-p", f"{SCRIPT.text}; write_json top.json"], cwd=folder, check=False,
                              capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"yosys failed:\n{(done.stdout + done.stderr)[-2000:]}")
        return place(Path(folder, "top.json"), [*DEVICE, "--lpf-allow-unconstrained"], target=target, seed=seed,
                     name="unit")
