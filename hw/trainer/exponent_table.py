"""The exponents of a trainer."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.measure import LSB, ExponentState
from concord.hw.trainer.wires import LENGTH, ExponentWrite, Word
from concord.spec.numbers.lazy import EXPONENT_BITS
from concord.spec.trainer.config import LANES

NUMBER = 6  #: Bits of the number of an exponent.
_ROWS = (1 << NUMBER) // LANES
#: What a write of a whole word sets to 0 or to E.
_Guess = data.StructLayout({name: ExponentState[name].shape for name in ("next", "change")})
_Unit = data.StructLayout({"lsb": LSB, "written": 1})

#: A length that goes to an exponent, which keeps the larger one.
Merged = data.StructLayout({"number": NUMBER, "length": LENGTH})


class ExponentTable(wiring.Component):
    """Holds the state of all exponents. A reset makes all of it 0, one exponent a cycle.

    Words of 16 exponents are read and written at once, so E and the guess lie in 16 memories.

    Members:
        number: In(6). state: Out(ExponentState). The state of this exponent, one cycle later.
        write: In(1). written: In(ExponentState). Writes the state of exponent `number`.
        unit: In(1). lsb: In. Exponent `number` gets sums of this unit.
        merge: In(stream of Merged). A length that was measured.
        word_write: In(stream of ExponentWrite). A word of E, which becomes the guess, too, and ends a change.
        word: In(2). bytes: Out(Word). E + 126 of the exponents of this word, one cycle later.
        busy: Out(1). Exponents become 0; nothing is taken.
    """

    def __init__(self):
        super().__init__({
            "number": In(NUMBER), "state": Out(ExponentState), "write": In(1), "written": In(ExponentState),
            "unit": In(1), "lsb": In(LSB), "merge": In(stream.Signature(Merged)),
            "word_write": In(stream.Signature(ExponentWrite)), "word": In(2), "bytes": Out(Word),
            "busy": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        place = Signal(NUMBER)
        m.d.sync += place.eq(place + 1)
        with m.If(place.all()):
            m.d.sync += self.busy.eq(0)
        m.d.comb += [self.word_write.ready.eq(~self.busy & ~self.write), self.merge.ready.eq(~self.busy & ~self.write)]
        self._guesses(m, place)
        self._lengths(m, place)
        self._units(m, place)
        return m

    def _guesses(self, m, place):
        """E, and the guess with the change, of the exponents whose number has the low bits of each lane."""
        now, guesses = Signal(data.ArrayLayout(EXPONENT_BITS, LANES)), Signal(data.ArrayLayout(_Guess, LANES))
        row, state = Signal(2), self.written
        m.d.comb += row.eq(Mux(self.busy, place >> 4, Mux(self.write, self.number >> 4, self.word_write.p.word)))
        for lane in range(LANES):
            m.submodules[f"now{lane}"] = exponents = Memory(shape=EXPONENT_BITS, depth=_ROWS, init=[])
            m.submodules[f"guesses{lane}"] = others = Memory(shape=_Guess, depth=_ROWS, init=[])
            e, guess = Signal(EXPONENT_BITS, name=f"e{lane}"), Signal(_Guess, name=f"guess{lane}")
            enable, byte = Signal(name=f"enable{lane}"), self.word_write.p.bytes[lane]
            m.d.comb += enable.eq(self.busy | Mux(self.write, self.number[:4] == lane, self.word_write.valid))
            with m.If(~self.busy):
                m.d.comb += [e.eq(Mux(self.write, state.now, byte)), guess.next.eq(Mux(self.write, state.next, byte)),
                             guess.change.eq(Mux(self.write, state.change, 0))]
            for memory, value in ((exponents, e), (others, guess)):
                write = memory.write_port()
                m.d.comb += [write.addr.eq(row), Value.cast(write.data).eq(value), write.en.eq(enable)]
            for memory, number, found in ((exponents, self.number >> 4, now[lane]), (others, self.number >> 4, guesses[
                    lane]), (exponents, self.word, None)):
                read = memory.read_port(domain="comb")
                m.d.comb += read.addr.eq(number)
                if found is None:
                    m.d.sync += self.bytes[lane].eq(read.data)
                else:
                    m.d.comb += Value.cast(found).eq(Value.cast(read.data))
        lane, guess = self.number[:4], Signal(_Guess)
        m.d.comb += guess.eq(guesses[lane])
        m.d.sync += [self.state.now.eq(now[lane]), self.state.next.eq(guess.next), self.state.change.eq(guess.change)]

    def _lengths(self, m, place):
        """The lengths, of which the larger one stays."""
        m.submodules.lengths = memory = Memory(shape=Shape.cast(LENGTH), depth=1 << NUMBER, init=[])
        write, shown, old = memory.write_port(), memory.read_port(domain="comb"), memory.read_port(domain="comb")
        merged = self.merge.p
        m.d.comb += [shown.addr.eq(self.number), old.addr.eq(merged.number),
                     write.en.eq(self.busy | self.write | self.merge.valid)]
        m.d.sync += self.state.length.eq(shown.data)
        with m.If(self.busy):
            m.d.comb += write.addr.eq(place)
        with m.Elif(self.write):
            m.d.comb += [write.addr.eq(self.number), write.data.eq(self.written.length)]
        with m.Else():
            m.d.comb += [write.addr.eq(merged.number),
                         write.data.eq(Mux(old.data > merged.length, old.data, merged.length))]

    def _units(self, m, place):
        """The units of sums."""
        m.submodules.units = memory = Memory(shape=_Unit, depth=1 << NUMBER, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += [read.addr.eq(self.number), write.en.eq(self.busy | self.write | self.unit),
                     write.addr.eq(Mux(self.busy, place, self.number))]
        with m.If(self.write):
            m.d.comb += [write.data.lsb.eq(self.written.lsb), write.data.written.eq(self.written.written)]
        with m.Elif(self.unit):
            m.d.comb += [write.data.lsb.eq(self.lsb), write.data.written.eq(1)]
        m.d.sync += [self.state.lsb.eq(read.data.lsb), self.state.written.eq(read.data.written)]
