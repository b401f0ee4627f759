"""The modes in which native tiles were loaded, in program order."""

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS

CHUNK = 32  #: Number of tiles that one cycle handles.


#: A request to set the mode of the tiles first..first+count-1, or to ask whether they have this mode.
ModeRequest = data.StructLayout({"set": 1, "integer": 1, "first": ADDRESS_BITS, "count": REGISTER_BITS})


class ModeTable(wiring.Component):
    """Holds one bit for each tile, its mode. A load sets the bits of a range of tiles; a product reads a range.

    Args:
        tiles: Number of native tiles of MatrixRf.

    Members:
        i: In(stream ModeRequest). Requests; `count` is at least 1, and all tiles are within MatrixRf.
        done: Out(1). The request ends in this cycle, in which `agree` is its answer.
        agree: Out(1). All tiles of the range have the mode `integer`.

    Timing:
        One cycle for every aligned group of 32 tiles that the range touches. Reset does not change the table.
    """

    def __init__(self, tiles: int):
        self.tiles = tiles
        super().__init__({
            "i": In(stream.Signature(ModeRequest)),
            "done": Out(1), "agree": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.table = table = memory.Memory(shape=CHUNK, depth=max(2, -(-self.tiles // CHUNK)), init=[])
        read, write = table.read_port(domain="comb"), table.write_port()

        request = self.i.p
        chunk, started = Signal(range(table.depth)), Signal()
        disagree = Signal()  # a tile of an earlier chunk has the other mode
        last = request.first + request.count - 1
        here = Mux(started, chunk, request.first[CHUNK.bit_length() - 1:])
        begin = Mux(started, 0, request.first[:CHUNK.bit_length() - 1])
        ends = here == last[CHUNK.bit_length() - 1:]
        end = Mux(ends, last[:CHUNK.bit_length() - 1], CHUNK - 1)
        mask = Signal(CHUNK)
        m.d.comb += mask.eq(Cat((k >= begin) & (k <= end) for k in range(CHUNK)))

        wanted = request.integer.replicate(CHUNK)
        differs = ((read.data ^ wanted) & mask).any()
        m.d.comb += [
            read.addr.eq(here), write.addr.eq(here),
            write.data.eq((read.data & ~mask) | (wanted & mask)),
            write.en.eq(self.i.valid & request.set),
            self.done.eq(self.i.valid & ends), self.i.ready.eq(self.done),
            self.agree.eq(~disagree & ~differs),
        ]
        with m.If(self.i.valid):
            m.d.sync += [chunk.eq(here + 1), started.eq(~ends), disagree.eq((disagree | differs) & ~ends)]
        return m
