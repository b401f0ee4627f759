"""An engine of a trainer with the real memories, for its testbench."""

import zlib

from amaranth.hdl import Assert, Const, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.pipeline import delay, delay_control
from concord.hw.trainer.accumulators import Accumulators
from concord.hw.trainer.chip_memory import ChipMemory
from concord.hw.trainer.wires import ROW, ROW_ADDS, ChipAnswer, ChipRead, ChipWrite, RowAdd, RowAnswer
from concord.spec.trainer.config import TrainerConfig

#: Ports of an engine by the end of their name: what they ask for, and the end of the name of the answer.
_PORTS = {
    "read": (ChipRead, "answer"),
    "write": (ChipWrite, ""),
    "row": (ROW, "sums"),
    "row_add": (RowAdd, ""),
}
#: Ports of the bench by the same kinds. They come first.
_BENCH = {
    "peek": In(stream.Signature(ChipRead)),
    "peeked": Out(ChipAnswer),
    "poke": In(stream.Signature(ChipWrite)),
    "row_peek": In(stream.Signature(ROW)),
    "row_peeked": Out(RowAnswer),
    "row_poke": In(stream.Signature(RowAdd)),
    "refused": In(8),
}


class Stand(wiring.Component):
    """Connect an engine with an on-chip memory and accumulators, and let the bench see both.

    Ports of the engine are known by their names and payloads: `read` and `answer`, `write`, `row` and `sums`,
    `row_add`, also with a name before them, such as `a_read` and `a_answer`. Its other ports are ports of the stand.

    Args:
        engine: The engine.
        config: Sizes of the memories.
        order:  Ports of the engine in the order in which they are served, such as ("drain_read", "block_read"). Others
                follow in the order of the engine.

    Members:
        peek, peeked, poke: A reader and a writer of the chip, served before the engine.
        row_peek, row_peeked, row_poke: A reader and an adder of the accumulators, alike.
        refused: In(8). In so many of 256 cycles a port of the engine is not served, each for itself.

    The stand asserts that the engine holds what it asks for until it is taken, reaches words that are there, and
    neither reads nor adds to a row sooner than ROW_ADDS cycles behind an add to it.
    """

    def __init__(self, engine: wiring.Component, config: TrainerConfig, order: tuple[str, ...] = ()):
        self.engine, self.config = engine, config
        members = dict(engine.signature.members)
        names = sorted(members, key=lambda name: order.index(name) if name in order else len(order))
        self.ports = {kind: [name for name in names if _is(kind, name, members[name])] for kind in _PORTS}
        for kind, ports in self.ports.items():
            for name in ports:
                del members[name]
                members.pop(_answer(kind, name), None)
        self.outside = tuple(members)
        super().__init__(_BENCH | members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine = self.engine
        for name in self.outside:
            inner, outer = getattr(self.engine, name), getattr(self, name)
            if self.signature.members[name].is_signature:
                wiring.connect(m, inner, wiring.flipped(outer))
            else:
                m.d.comb += outer.eq(inner) if self.signature.members[name].flow == Out else inner.eq(outer)
        count = {kind: 1 + len(ports) for kind, ports in self.ports.items()}
        m.submodules.chip = chip = ChipMemory(self.config.words, range(count["read"]), range(count["write"]))
        m.submodules.rows = rows = Accumulators(self.config.accumulator_rows, count["row"], count["row_add"])
        for memory, kind, own in (
            (chip, "read", "peek"),
            (chip, "write", "poke"),
            (rows, "row", "row_peek"),
            (rows, "row_add", "row_poke"),
        ):
            self._serve(m, memory, kind, own)
        self._watch_rows(m, rows, count)
        return m

    def _serve(self, m, memory, kind: str, own: str):
        """Connect all ports of a kind."""
        ports = [(getattr(self, own), getattr(self, f"{own}ed", None), Const(0))]
        for name in self.ports[kind]:
            answer = getattr(self.engine, _answer(kind, name), None)
            ports.append((getattr(self.engine, name), answer, self._stalls(m, name)))
        for k, (asked, answer, stalls) in enumerate(ports):
            port = getattr(memory, f"{kind}{k}")
            m.d.comb += [port.p.eq(asked.p), port.valid.eq(asked.valid & ~stalls), asked.ready.eq(port.ready & ~stalls)]
            if answer is not None:
                m.d.comb += answer.eq(getattr(memory, f"{_PORTS[kind][1]}{k}"))
            self._watch(m, asked, kind)

    def _stalls(self, m, name: str):
        """Whether a port is not served in this cycle, of random bits of its own."""
        state = Signal(32, init=zlib.crc32(name.encode()) | 1, name=f"{name}_random")
        first = Signal(32)
        second = Signal(32)
        m.d.comb += [first.eq(state ^ (state << 13)), second.eq(first ^ (first >> 17))]
        m.d.sync += state.eq(second ^ (second << 5))
        return state[:8] < self.refused

    def _watch(self, m, asked, kind: str):
        """What is asked for stays until it is taken, and is there."""
        waits, payload = Signal(), Value.cast(asked.p)
        before = Signal.like(payload)
        m.d.sync += [
            waits.eq(asked.valid & ~asked.ready),
            before.eq(payload),
            Assert(~waits | (asked.valid & (before == payload))),
        ]
        if kind in ("read", "write"):
            unread = asked.p.zeros if kind == "read" else 0
            m.d.sync += Assert(~asked.valid | unread | (asked.p.word < self.config.words))
        else:
            row = asked.p if kind == "row" else asked.p.row
            m.d.sync += Assert(~asked.valid | (row < self.config.accumulator_rows))

    def _watch_rows(self, m, rows, count):
        """No row that is being added to is read, or added to again."""
        reads, adds = ([getattr(rows, f"{kind}{k}") for k in range(count[kind])] for kind in ("row", "row_add"))
        taken, row = Signal(), Signal(ROW)
        for port in adds:
            with m.If(port.valid & port.ready):
                m.d.comb += [taken.eq(1), row.eq(port.p.row)]
        for _ in range(ROW_ADDS - 1):
            taken, row = delay_control(m, taken, 1), delay(m, row, 1)
            for port in reads:
                m.d.sync += Assert(~(taken & port.valid & port.ready & (port.p == row)))
            for port in adds:
                m.d.sync += Assert(~(taken & port.valid & port.ready & (port.p.row == row)))


def _is(kind: str, name: str, member: wiring.Member) -> bool:
    """Whether a member of an engine is a port of this kind."""
    if not member.is_signature or not isinstance(member.signature, stream.Signature):
        return False
    ends = name == kind or name.endswith(f"_{kind}")
    return ends and member.signature.members["payload"].shape == _PORTS[kind][0]


def _answer(kind: str, name: str) -> str:
    """The name of the answers to a port."""
    return name.removesuffix(kind) + _PORTS[kind][1]
