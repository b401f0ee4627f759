"""The sequencer of a trainer with its instruction buffer and registers, for its testbench."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In
from concord.hw.host.control import BUS
from concord.hw.lib.reset_domain import reset_too
from concord.hw.trainer.instruction_buffer import InstructionBuffer, ProgramWord
from concord.hw.trainer.program_sequencer import ProgramSequencer
from concord.hw.trainer.trainer_registers import TrainerRegisters, Watch
from concord.spec.trainer.config import TrainerConfig

#: Ports of the sequencer that belong to the registers or the buffer.
_INNER = ("start", "progress", "events", "address", "fetched", "outside", "limit", "rate", "decay") + (
    "host_base_number",
    "host_base",
    "host_word",
    "host_bytes",
    "host_free",
)


class SequencerStand(wiring.Component):
    """Connect the sequencer with what it is driven by.

    Args:
        config: Sizes.

    Members:
        s_axil_...: the registers. program: In(stream of ProgramWord). The program.
        watch: Out(Watch). State of the core. idle: In(1). What it says of server memory.
        reset_core: Out(1). The registers reset the core.
        Others are those of the sequencer.
    """

    def __init__(self, config: TrainerConfig):
        self.config, self.sequencer = config, ProgramSequencer(config)
        members = {name: member for name, member in self.sequencer.signature.members.items() if name not in _INNER}
        self.outside = tuple(members)
        super().__init__(
            {
                **BUS,
                "program": In(stream.Signature(ProgramWord)),
                "watch": wiring.Out(Watch),
                "reset_core": wiring.Out(1),
                **members,
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = TrainerRegisters(self.config)
        m.submodules.buffer = buffer = InstructionBuffer(self.config.instructions)
        sequencer = self.sequencer
        m.submodules.sequencer = reset_too(m, "core", registers.reset)(sequencer)
        for name, member in BUS.items():
            inner, outer = getattr(registers, name), getattr(self, name)
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        for name in self.outside:
            inner, outer, member = getattr(sequencer, name), getattr(self, name), self.signature.members[name]
            if member.is_signature:
                ends = (inner, wiring.flipped(outer)) if member.flow == wiring.Out else (wiring.flipped(outer), inner)
                wiring.connect(m, *ends)
            else:
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        wiring.connect(m, wiring.flipped(self.program), buffer.load)
        m.d.comb += [
            buffer.forget.eq(registers.reset),
            buffer.address.eq(sequencer.address),
            sequencer.fetched.eq(buffer.word),
            sequencer.outside.eq(buffer.outside),
            sequencer.start.eq(registers.start & ~registers.reset),
            sequencer.limit.eq(registers.limit),
            sequencer.rate.eq(registers.rate),
            sequencer.decay.eq(registers.decay),
            registers.events.eq(sequencer.events),
            sequencer.host_base_number.eq(registers.base_number),
            registers.base.eq(sequencer.host_base),
            sequencer.host_word.eq(registers.word),
            registers.bytes.eq(sequencer.host_bytes),
            registers.word_free.eq(sequencer.host_free),
            registers.watch.eq(self.watch),
            self.watch.idle.eq(self.quiet),
            self.reset_core.eq(registers.reset),
            *(self.watch[name].eq(sequencer.progress[name]) for name in sequencer.progress.shape().members),
        ]
        return m
