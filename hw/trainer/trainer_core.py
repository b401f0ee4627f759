"""A core that trains: the sequencer, the engines, the memories, and its ports."""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.dram import axi
from concord.hw.host.control import BUS
from concord.hw.lib.reset_domain import reset_too
from concord.hw.trainer.accumulators import Accumulators
from concord.hw.trainer.chip_memory import ChipMemory
from concord.hw.trainer.hazards import ENGINES
from concord.hw.trainer.instruction_buffer import InstructionBuffer, ProgramWord
from concord.hw.trainer.jobs import JOBS
from concord.hw.trainer.load_engine import LoadEngine
from concord.hw.trainer.move_engine import MoveEngine
from concord.hw.trainer.pooling_engine import PoolingEngine
from concord.hw.trainer.program_sequencer import Meeting, Met, ProgramSequencer
from concord.hw.trainer.server_port import ServerPort
from concord.hw.trainer.store_engine import StoreEngine
from concord.hw.trainer.tensor_engine import TensorEngine
from concord.hw.trainer.trainer_registers import TrainerRegisters, Watch
from concord.hw.trainer.update_engine import UpdateEngine
from concord.spec.trainer.config import LANES, TrainerConfig

NUMBER = 3  #: Bits of the number of a core.
_PAGE = axi.EDGE.bit_length() - 1  # low bits of DRAM_BASE that do not count

#: Who reads and writes the memories, in the order in which they are served. What drains comes first, as products wait
#: for it; vectors come behind what they wait for; copies have time.
_READERS = ("tensor.drain_read", "tensor.block_read", "tensor.vector_read", "update.read", "pooling.read", "move.read",
            "store.read")
_WRITERS = ("tensor.write", "update.write", "pooling.write", "load.write", "move.write")
#: Their paths. Vectors have one of their own, as there may be one in every cycle; updates and poolings read and write
#: beside products and copies.
READ_PATHS, WRITE_PATHS = (0, 0, 1, 2, 2, 0, 0), (0, 0, 0, 1, 1)
_ROW_READERS = ("tensor.row", "update.row", "move.row", "store.row")
_ROW_ADDERS = ("tensor.row_add", "load.row_add", "move.row_add")


class TrainerCore(wiring.Component):
    """Executes programs of `spec.trainer.instructions`, bit for bit as `golden.trainer.trainer.Trainer`.

    Args:
        config:   Sizes.
        together: It may wait for other cores. Otherwise these never come.

    Members:
        s_axil_...: AXI4-Lite, 12-bit byte addresses, 32-bit data: the registers of `spec.trainer.registers`.
        m_axi_...: AXI4 of 16 bytes: server memory. IDs have 1 bit.
        load: In(stream of ProgramWord). A program for the instruction buffer, from word 0; zeros follow its last word.
        first, second: In(32). What R0 and R1 begin with, taken with START.
        number: In(3). Number of the core, which is its bit in masks.
        watch: Out(Watch). State of the core.
        meeting: Out(Meeting). met: In(Met). Where it waits for other cores, and the answer; with `together`.
    """

    def __init__(self, config: TrainerConfig, together: bool = False):
        self.config, self.together = config, together
        super().__init__({
            **BUS, **{f"m_axi_{name}": member for name, member in axi.wires(LANES, 1).items()},
            "load": In(stream.Signature(ProgramWord)), "first": In(32), "second": In(32), "number": In(NUMBER),
            "watch": Out(Watch), **({"meeting": Out(Meeting), "met": In(Met)} if together else {})})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = self.registers = registers = TrainerRegisters(self.config)
        m.submodules.buffer = self.buffer = InstructionBuffer(self.config.instructions)
        m.submodules.port = self.port = ServerPort()
        # What a RESET sets back, too. The port is told instead, as bursts under way must end.
        renamed = reset_too(m, "core", registers.reset)
        self.sequencer = ProgramSequencer(self.config)
        m.submodules.sequencer = renamed(self.sequencer)
        self.engines = {
            "load": LoadEngine(), "store": StoreEngine(), "move": MoveEngine(), "tensor": TensorEngine(),
            "pooling": PoolingEngine(), "update": UpdateEngine()}
        for name, engine in self.engines.items():
            m.submodules[name] = renamed(engine)
        m.submodules.chip = self.chip = renamed(ChipMemory(self.config.words, READ_PATHS, WRITE_PATHS))
        m.submodules.rows = self.rows = renamed(
            Accumulators(self.config.accumulator_rows, len(_ROW_READERS), len(_ROW_ADDERS)))
        self._control(m)
        self._jobs(m)
        self._memories(m)
        self._server(m)
        return m

    def _control(self, m):
        """Connect the registers, the instruction buffer and the sequencer."""
        registers, buffer, sequencer = self.registers, self.buffer, self.sequencer
        for name, member in BUS.items():
            inner, outer = getattr(registers, name), getattr(self, name)
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        wiring.connect(m, wiring.flipped(self.load), buffer.load)
        m.d.comb += [
            buffer.forget.eq(registers.reset), buffer.address.eq(sequencer.address), sequencer.fetched.eq(buffer.word),
            sequencer.outside.eq(buffer.outside), sequencer.start.eq(registers.start & ~registers.reset),
            sequencer.first.eq(self.first), sequencer.second.eq(self.second), sequencer.number.eq(self.number),
            sequencer.limit.eq(registers.limit), sequencer.rate.eq(registers.rate),
            sequencer.decay.eq(registers.decay), registers.events.eq(sequencer.events),
            sequencer.host_base_number.eq(registers.base_number), registers.base.eq(sequencer.host_base),
            sequencer.host_word.eq(registers.word), registers.bytes.eq(sequencer.host_bytes),
            registers.word_free.eq(sequencer.host_free), registers.watch.eq(self.watch),
            *([self.meeting.eq(sequencer.meeting), sequencer.met.eq(self.met)] if self.together
              else [sequencer.met.stopped.eq(1)]),
            self.watch.idle.eq(self.port.idle), self.watch.base.eq(Cat(C(0, _PAGE), registers.dram_base[_PAGE:])),
            *(self.watch[name].eq(sequencer.progress[name]) for name in sequencer.progress.shape().members)]

    def _jobs(self, m):
        """Connect the engines with the sequencer."""
        sequencer, engines = self.sequencer, self.engines
        for k, name in enumerate(ENGINES):
            wiring.connect(m, getattr(sequencer, name), engines[name].job)
            m.d.comb += sequencer.ended[k].eq(engines[name].ended)
        update = engines["update"]
        m.d.comb += [
            sequencer.momentum.eq(update.momentum), sequencer.summary.eq(update.summary),
            update.clear.eq(sequencer.clear_summary), sequencer.store_word.eq(engines["store"].exponent),
            sequencer.move_word.eq(engines["move"].exponent),
            *(engines[name].exponents.eq(sequencer.exponents) for name in ("store", "move"))]
        for name, inner in (("load", sequencer.load_exponent), ("move", sequencer.move_exponent)):
            wiring.connect(m, engines[name].exponent_write, inner)

    def _of(self, path: str):
        """A port of an engine."""
        name, _, port = path.partition(".")
        return getattr(self.engines[name], port)

    def _memories(self, m):
        """Connect the engines with the memories."""
        for memory, kind, paths, asked, answer in (
                (self.chip, "read", _READERS, "read", "answer"), (self.chip, "write", _WRITERS, None, None),
                (self.rows, "row", _ROW_READERS, "row", "sums"), (self.rows, "row_add", _ROW_ADDERS, None, None)):
            for k, path in enumerate(paths):
                wiring.connect(m, self._of(path), getattr(memory, f"{kind}{k}"))
                if answer:
                    m.d.comb += self._of(path.removesuffix(asked) + answer).eq(getattr(memory, f"{answer}{k}"))

    def _server(self, m):
        """Connect the load and store engines with server memory."""
        port, load, store = self.port, self.engines["load"], self.engines["store"]
        for name, member in axi.wires(LANES, 1).items():
            inner, outer = getattr(port, f"m_axi_{name}"), getattr(self, f"m_axi_{name}")
            m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        wiring.connect(m, load.read_range, port.read_range)
        wiring.connect(m, port.words, load.words)
        wiring.connect(m, store.write_range, port.write_range)
        wiring.connect(m, store.write_word, port.write_word)
        m.d.comb += [
            port.base.eq(self.registers.dram_base >> _PAGE << _PAGE), port.reset.eq(self.registers.reset),
            store.write_room.eq(port.write_room), store.write_done.eq(port.write_done),
            self.sequencer.failed.eq(port.failed), self.sequencer.quiet.eq(port.idle)]


assert tuple(JOBS) == ENGINES
