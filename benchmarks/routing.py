"""Components placed and routed for an ECP5 between shift registers, so that their own paths bound the clock."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amaranth.hdl import Cat, Module, Mux, Shape, Signal, Value
from amaranth.lib.wiring import Component, In, Out
from concord.handover.place import Placed, place
from concord.hw.lib.ecp5 import Ecp5
from concord.hw.netlist import synthesise
from concord.hw.verilog import verilog

DEVICE = ("--85k", "--package", "CABGA381", "--speed", "6")
PIECE = 500  #: Largest number of bits of a shift register: Yosys walks along longer ones until its stack is full.


class Boxed(Component):
    """A component between shift registers, so that a few pins are enough and none of them limits the clock.

    Args:
        dut: Component to measure.

    Members:
        in_bits: In. Shifted into the registers of all inputs.
        out_bits: Out. The outputs of the cycle in which `load` was high, bit by bit.
        load: In(1). Loads the outputs into their shift registers.
    """

    def __init__(self, dut: Component):
        self.dut = dut
        ports = [(member.flow, value) for _, member, value in dut.signature.flatten(dut)
                 if Shape.cast(member.shape).width]
        self.inputs, self.outputs = (Cat(value for flow, value in ports if flow == way) for way in (In, Out))
        super().__init__({"load": In(1), "in_bits": In(_pieces(self.inputs)), "out_bits": Out(_pieces(self.outputs))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = self.dut
        load = Signal()
        m.d.sync += load.eq(self.load)
        for k, bit in enumerate(self.in_bits):
            piece = self.inputs[k * PIECE:(k + 1) * PIECE]
            entering = Signal(len(piece), name=f"entering{k}")
            m.d.sync += entering.eq(Cat(bit, entering))
            m.d.comb += piece.eq(entering)
        for k, bit in enumerate(self.out_bits):
            piece = self.outputs[k * PIECE:(k + 1) * PIECE]
            leaving = Signal(len(piece), name=f"leaving{k}")
            m.d.sync += leaving.eq(Mux(load, piece, leaving >> 1))
            m.d.comb += bit.eq(leaving[0])
        return m


def _pieces(bits: Value) -> int:
    return -(-len(bits) // PIECE)


def boxed(dut: Component) -> str:
    """The Verilog of a component between shift registers."""
    return verilog(Boxed(dut), "top", Ecp5())


def route(text: str, target: int, seed: int = 1) -> Placed:
    """Place and route the Verilog that `boxed` gives.

    Args:
        text:   The Verilog.
        target: Clock in MHz that placement aims at.
        seed:   Seed of placement.

    Raises:
        RuntimeError: a tool fails, and the message names its log, which stays; or it is not installed, and the message
            says how to install it.
    """
    with tool_folder() as folder:
        return place(synthesise(text, folder), [*DEVICE, "--lpf-allow-unconstrained"], target=target, seed=seed,
                     name="unit")


@contextmanager
def tool_folder() -> Iterator[Path]:
    """A folder for the files of tools, which stays where one of them fails: its message names a log in there."""
    folder, stays = Path(tempfile.mkdtemp(prefix="concord-tools-")), False
    try:
        yield folder
    except RuntimeError:
        stays = True
        raise
    finally:
        if not stays:
            shutil.rmtree(folder)
