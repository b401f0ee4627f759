"""The modes in which native tiles were loaded, in program order."""

from itertools import pairwise

from amaranth import *
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS

CHUNK = 32  #: Number of tiles that one cycle handles.
LATENCY = 5  #: Cycles of a request beside those of its chunks.


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
        One cycle for every aligned group of 32 tiles that the range touches, and `LATENCY` cycles. Reset does not
        change the table.
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

        # Five stages: the last tile; a chunk's tiles; its mask; the modes that differ; whether there are any.
        request, low = self.i.p, CHUNK.bit_length() - 1
        wanted = request.integer.replicate(CHUNK)
        chunk, last = Signal(range(table.depth)), Signal(len(request.first))
        known, walks, first = Signal(), Signal(), Signal()
        m.d.sync += [last.eq(request.first + request.count - 1), known.eq(self.i.valid & ~self.done), first.eq(~known)]
        ends = chunk == last[low:]
        with m.If(~known):
            m.d.sync += [chunk.eq(request.first[low:]), walks.eq(self.i.valid & ~self.done)]
        with m.Elif(walks):
            m.d.sync += [chunk.eq(chunk + 1), walks.eq(~ends)]

        begin, end, mask = Signal(range(CHUNK)), Signal(range(CHUNK)), Signal(CHUNK)
        m.d.sync += [begin.eq(Mux(first, request.first[:low], 0)), end.eq(Mux(ends, last[:low], CHUNK - 1)),
                     mask.eq(Cat((k >= begin) & (k <= end) for k in range(CHUNK)))]
        marks = [Signal(data.StructLayout({"valid": 1, "ends": 1, "chunk": chunk.shape()}), name=f"mark{k}")
                 for k in range(3)]
        m.d.sync += [marks[0].valid.eq(walks), marks[0].ends.eq(ends), marks[0].chunk.eq(chunk),
                     *(later.eq(sooner) for sooner, later in pairwise(marks))]
        here, differs, disagree = marks[1], Signal(CHUNK), Signal()  # `disagree`: a tile has the other mode
        m.d.comb += [read.addr.eq(here.chunk), write.addr.eq(here.chunk), write.en.eq(here.valid & request.set),
                     write.data.eq((read.data & ~mask) | (wanted & mask))]
        m.d.sync += [
            differs.eq((read.data ^ wanted) & mask), disagree.eq(known & (disagree | (marks[2].valid & differs.any()))),
            self.done.eq(marks[2].valid & marks[2].ends)]
        m.d.comb += [self.i.ready.eq(self.done), self.agree.eq(~disagree)]
        return m
