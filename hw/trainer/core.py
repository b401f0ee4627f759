"""A core that trains: the sequencer, the engines, the memories, and its ports."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram import axi
from concord.hw.host.control import BUS
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import WORD

NUMBER = 3  #: Bits of the number of a core.
INSTRUCTION_ADDRESS = 12  #: Bits of the address of an instruction.

#: A word of a program on its way into the instruction buffer.
ProgramWord = data.StructLayout({"word": WORD, "last": 1})
#: What a core shows besides its registers. `idle`: no access to server memory is under way.
Watch = data.StructLayout({"running": 1, "done": 1, "error": 4, "address": INSTRUCTION_ADDRESS, "idle": 1})


class TrainerCore(wiring.Component):
    """Executes programs of `spec.trainer.instructions`, bit for bit as `golden.trainer.trainer.Trainer`.

    Args:
        config: Sizes.

    Members:
        s_axil_...: AXI4-Lite, 12-bit byte addresses, 32-bit data: the registers of `spec.trainer.registers`.
        m_axi_...: AXI4 of 16 bytes: server memory. IDs have 1 bit.
        load: In(stream of ProgramWord). A program for the instruction buffer, from word 0; zeros follow its last word.
        first, second: In(32). What R0 and R1 begin with, taken with START.
        number: In(3). Number of the core, which is its place in masks.
        watch: Out(Watch). State of the core.
    """

    def __init__(self, config: TrainerConfig):
        self.config = config
        super().__init__({
            **BUS, **{f"m_axi_{name}": member for name, member in axi.wires(LANES, 1).items()},
            "load": In(stream.Signature(ProgramWord)), "first": In(32), "second": In(32), "number": In(NUMBER),
            "watch": Out(Watch)})

    def elaborate(self, platform):
        m = Module()
        return m
