"""Gathers vectors to native tiles, whose rows or columns they are, and gives the tiles row by row to the quantiser."""

from amaranth import *
from amaranth.lib import memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib.arithmetic import low_high
from concord.hw.lib.jobs import build_job
from concord.hw.lib.payloads import Load, word
from concord.hw.lib.queue import Queue
from concord.spec.isa.instructions import REGISTER_BITS
from concord.spec.machine.config import Config


def rotated(values: list, by) -> list:
    """Of a power of two of values, the one with number k + `by`, modulo their number, for each k."""
    return [Array(values)[(k + by)[:(len(values) - 1).bit_length()]] for k in range(len(values))]


class TileBuilder(wiring.Component):
    """Makes tiles: vector v is row v of its tile, or column v if the job transposes, from element `first` * M on.

    Two tiles have room: one is filled while the other one leaves. There is a bank for each lane. Element e of vector v
    lies in bank (v + e) mod M, so that M elements of one vector, and element e of M vectors, lie in different banks.

    Members:
        job: In(stream build_job). The tiles of each chain; taken with the last word of the last one.
        i: In(stream word). Words of the vectors, `words` of each of `vectors` for each of `count` tiles.
        load: Out(stream Load). One payload for each tile. o: Out(stream word). Its words, row by row. Elements that no
            vector has, or that lie beyond its words or its tail, are +0.

    Timing:
        One word a cycle in and out. A tile leaves from 3 cycles after its last word on.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "job": In(stream.Signature(build_job(config))), "i": In(stream.Signature(word(config))),
            "load": Out(stream.Signature(Load)), "o": Out(stream.Signature(word(config)))})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        self.banks = [memory.Memory(shape=16, depth=2 * config.native_dim * config.vector_words, init=[])
                      for _ in range(config.mfu_lanes)]
        for lane, bank in enumerate(self.banks):
            m.submodules[f"bank{lane}"] = bank
        self.tiles = [Signal(build_job(config), name=f"tile{k}") for k in range(2)]  # those that are whole
        filled, emptied, whole = Signal(), Signal(), Signal(range(3))
        m.d.sync += whole.eq(whole + filled - emptied)
        m.d.comb += filled.eq(self._fill(m, whole == 2))
        m.d.comb += emptied.eq(self._drain(m, whole != 0))
        return m

    def _fill(self, m, full):
        """Write the words of vectors to their banks. Returns whether a tile becomes whole."""
        config, job = self.config, self.job.p
        half, vector, number = Signal(), Signal(range(config.native_dim)), Signal(range(config.vector_words))
        tile, place = Signal(REGISTER_BITS), Signal(range(config.vector_words))
        take, last_word, last, ends = Signal(), Signal(), Signal(), Signal()
        turn, _ = low_high(vector, config.mfu_lanes)
        m.d.comb += [
            take.eq(self.job.valid & self.i.valid & ~full), self.i.ready.eq(self.job.valid & ~full),
            last_word.eq(number == job.words - 1), last.eq(last_word & (vector == job.vectors - 1)),
            ends.eq(take & last), self.job.ready.eq(ends & (tile == job.count - 1)), place.eq(job.first + number)]
        for bank, written in enumerate(rotated(list(self.i.p), -turn)):
            write = self.banks[bank].write_port()
            m.d.comb += [write.en.eq(take), write.addr.eq(Cat(place, vector, half)), write.data.eq(written)]
        with m.If(take):
            m.d.sync += [number.eq(Mux(last_word, 0, number + 1)), vector.eq(Mux(last, 0, vector + last_word))]
        with m.If(ends):
            m.d.sync += [half.eq(~half), tile.eq(Mux(self.job.ready, 0, tile + 1))]
            for k, kept in enumerate(self.tiles):
                with m.If(half == k):
                    m.d.sync += [kept.eq(job), kept.tile.eq(job.tile + tile)]
        return ends

    def _drain(self, m, there):
        """Read the rows of whole tiles. Returns whether the last word of a tile is read."""
        config, size, lanes = self.config, self.config.vector_words, self.config.mfu_lanes
        m.submodules.loads = loads = Queue(Load, 3)
        half, row, number = Signal(), Signal(range(config.native_dim)), Signal(range(size))
        job = Signal(build_job(config), name="present")
        step, go, first, last = Signal(), Signal(), Signal(), Signal()
        low, high = low_high(row, lanes)
        m.d.comb += [
            job.eq(Mux(half, self.tiles[1].as_value(), self.tiles[0].as_value())),
            first.eq((row == 0) & (number == 0)), last.eq((row == config.native_dim - 1) & (number == size - 1)),
            step.eq(~self.o.valid | self.o.ready), go.eq(step & there & (loads.i.ready | ~first)),
            loads.i.valid.eq(step & there & first), loads.i.p.tile.eq(job.tile), loads.i.p.integer.eq(job.integer)]
        wiring.connect(m, loads.o, wiring.flipped(self.load))
        with m.If(go):
            m.d.sync += [number.eq(Mux(number == size - 1, 0, number + 1)), row.eq(row + (number == size - 1)),
                         half.eq(half ^ last)]

        # Lane k has element `row` of vector number * M + k of a tile that is transposed, or else element number * M + k
        # of vector `row`.
        read, valid, turn, kept = [], Signal(), Signal.like(low), Signal(lanes)
        for k, bank in enumerate(self.banks):
            port, lane = bank.read_port(), (k - low)[:len(low)]
            vector = Mux(job.transposed, Cat(lane, number), row)
            m.d.comb += [port.en.eq(step), port.addr.eq(Cat(Mux(job.transposed, high, number), vector, half))]
            read.append(port.data)
        with m.If(step):
            m.d.sync += [valid.eq(go), turn.eq(low), self.o.valid.eq(valid),
                         *(kept[k].eq(self._keeps(job, Mux(job.transposed, Cat(Const(k, len(low)), number), row),
                                                  Mux(job.transposed, high, number), Mux(job.transposed, low, k)))
                           for k in range(lanes)),
                         *(self.o.p[k].eq(Mux(kept[k], value, 0))
                           for k, value in enumerate(rotated(read, turn)))]
        return go & last

    @staticmethod
    def _keeps(job, vector, place, lane):
        """Whether a vector, and the word at a place in a native vector, and the lane are ones that the job has."""
        last = place == job.first + job.words - 1
        return (vector < job.vectors) & (place >= job.first) & (place < job.first + job.words) & ~(
            last & (job.tail != 0) & (lane >= job.tail))
