"""A copy engine in its stand, with exponents and the port of server memory."""

from amaranth import Cat, Module, ResetInserter, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.server_port import ServerPort
from concord.hw.trainer.wires import Word, exponent_reader, exponent_writer
from concord.sim.trainer.stand import Stand
from concord.spec.trainer.config import LANES, TrainerConfig

CONFIG = TrainerConfig(words=512, accumulator_rows=64)
_WORDS = CONFIG.exponents // LANES
_OUTSIDE = "base", "reset", "failed", "idle"  #: Members of the port beside its wires.


class CopyStand(wiring.Component):
    """An engine for copies with all memories that it knows.

    Members:
        exponents: Out. The words of exponents, the first one in the low bits; `set`: they become `exponents_new`.
        base, reset, failed, idle, m_axi_...: of `ServerPort`; `reset` resets the engine, too.
        All others are those of `Stand`.
    """

    def __init__(self, engine: wiring.Component):
        self.stand, self.port = Stand(engine, CONFIG), ServerPort()
        inside = {*self.port.signature.members, *exponent_reader(), *exponent_writer()}
        here = {name: member for name, member in self.stand.signature.members.items() if name not in inside}
        there = {
            name: member
            for name, member in self.port.signature.members.items()
            if name in _OUTSIDE or name.startswith("m_axi")
        }
        self.outside = [(self.stand, here), (self.port, there)]
        bits = 8 * LANES * _WORDS
        super().__init__(here | there | {"exponents": Out(bits), "exponents_new": In(bits), "set": In(1)})

    def elaborate(self, platform):
        m = Module()
        stand, port = self.stand, self.port
        m.submodules.stand, m.submodules.port = ResetInserter(self.reset)(stand), port
        for unit, members in self.outside:
            for name, member in members.items():
                _through(m, member, getattr(self, name), getattr(unit, name))
        for name, member in port.signature.members.items():
            if name not in dict(self.outside[1][1]) and hasattr(stand, name):
                ends = getattr(stand, name), getattr(port, name)
                if member.is_signature:
                    wiring.connect(m, *ends)
                else:
                    m.d.comb += ends[0].eq(ends[1])
        self._exponents(m)
        return m

    def _exponents(self, m):
        """Words of exponents, which are read a cycle later; every second write waits where accesses are refused."""
        words, stand, waits = [Signal(8 * LANES, name=f"word{k}") for k in range(_WORDS)], self.stand, Signal()
        m.d.comb += self.exponents.eq(Cat(words))
        m.d.sync += waits.eq(~waits & self.refused.any())
        if hasattr(stand, "exponent_write"):
            write = stand.exponent_write
            m.d.comb += write.ready.eq(~waits)
            for k, word in enumerate(words):
                with m.If(write.valid & write.ready & (write.p.word == k)):
                    m.d.sync += word.eq(Value.cast(write.p.bytes))
        with m.If(self.set):
            m.d.sync += Cat(words).eq(self.exponents_new)
        if hasattr(stand, "exponent"):
            read = Signal(Word)
            m.d.sync += Value.cast(read).eq(self.exponents.word_select(stand.exponent, 8 * LANES))
            m.d.comb += stand.exponents.eq(read)


def _through(m, member: wiring.Member, outer, inner):
    """Connect a member of the stand with that of a part."""
    if member.is_signature:
        wiring.connect(m, wiring.flipped(outer), inner)
    elif member.flow == Out:
        m.d.comb += outer.eq(inner)
    else:
        m.d.comb += inner.eq(outer)
