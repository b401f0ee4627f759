"""What a pooling engine reads: the words of each row of y, and what becomes of them."""

from amaranth import *
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.trainer.all_blocks import all_blocks
from concord.hw.trainer.pooling_windows import INDEX, PoolingWindows
from concord.hw.trainer.tap_walker import TapWalker
from concord.hw.trainer.wires import ADD, CHIP_ADDRESS, COUNT, POOL, POOL_BACK, PoolingJob
from concord.spec.trainer.config import LANES

GROUP = 4  #: Lanes that are converted in a cycle.
GROUPS = LANES // GROUP
ROWS = 16  #: Most rows of y that are read and not yet written.


class Use(enum.Enum, shape=4):
    """What becomes of a word. Each lane has a total, and beside it another number."""

    NOTHING = 0  #: It is not used.
    SUM = 1  #: Bytes with their sign are added to the totals.
    LOW = 2  #: Low bytes are added.
    HIGH = 3  #: High bytes are added.
    LARGEST = 4  #: A byte that is larger becomes the total, and its index in the window the other number.
    OTHER = 5  #: Bytes with their sign become the other numbers.
    OTHER_LOW = 6  #: Low bytes become the other numbers; pixels that windows have chosen do, too.
    OTHER_HIGH = 7  #: High bytes are put above them.
    MASK = 8  #: Bytes decide which lanes of y may be other than 0.


#: `first`: totals begin anew. `last`: the row is complete. `index`: index of the pixel in the window.
PoolingTag = data.StructLayout({"use": Use, "first": 1, "last": 1, "index": INDEX})
#: A word to be read, or zeros, and what becomes of it.
PoolingRead = data.StructLayout({"word": CHIP_ADDRESS, "zeros": 1, "tag": PoolingTag})


class Asked(enum.Enum):
    """Which word of a row is next."""

    NONE = 0  #: There is no row.
    ROW = 1  #: The first one, of the row or of a further window.
    LOW = 2  #: Low bytes of a window.
    HIGH = 3  #: High bytes of a window or of a.
    OTHER = 4  #: Bytes of b, or its low bytes.
    OTHER_HIGH = 5  #: High bytes of b.
    MASK = 6  #: The mask.


def in_parts(job):
    """Whether sums are multiplied in two parts: more than four windows may hold a pixel."""
    return (job.kind == POOL_BACK) & (job.size > job.stride << 1)


class PoolingReads(wiring.Component):
    """Make the reads of a job, row by row and block by block.

    Where rows are converted, their last words are GROUPS reads apart, or twice as many where sums are multiplied
    `in_parts`. Reads of zeros fill the gaps.

    Members:
        job: In(PoolingJob). Held from `start` on.
        start: In(1). Pulse: the job begins.
        written: In(1). Pulse for each row of y that has left the engine; ROWS of them are inside at most.
        o: Out(stream of PoolingRead). Reads in their order.

    Timing:
        A read every cycle.
    """

    def __init__(self):
        super().__init__({"job": In(PoolingJob), "start": In(1), "written": In(1),
                          "o": Out(stream.Signature(PoolingRead))})

    def elaborate(self, platform):
        m = Module()
        job = self.job
        self.step, self.go, self.finishes, self.final = Signal(Asked), Signal(), Signal(), Signal()
        self.two, self.begun, self.number = job.y.planes == 2, Signal(), Signal(INDEX)
        m.submodules.windows, m.submodules.taps = self.windows, self.taps = PoolingWindows(), TapWalker()
        self.x, self.other, self.mask = (
            all_blocks(m, platform, name, view, self.start, self.go & self.final)
            for name, view in (("x", job.x), ("other", job.other), ("mask", job.mask.view)))
        with m.Switch(job.kind):
            for kind, words in ((POOL, self._pool), (POOL_BACK, self._pool_back), (ADD, self._add)):
                with m.Case(kind):
                    words(m)
        with m.If(self.step == Asked.MASK):
            self._read(m, self.mask.word, ~self.mask.inside, Use.MASK)
        m.d.comb += self.final.eq(Mux(job.mask.there, self.step == Asked.MASK, self.finishes))
        self._send(m)
        self._rows(m)
        self._taps(m)
        return m

    def _read(self, m, word, zeros, use, *, first=0, then=None):
        """Read a word; `then` is the step behind it, and without one it is the last one but for the mask."""
        payload = self.o.p
        m.d.comb += [payload.word.eq(word), payload.zeros.eq(zeros), payload.tag.use.eq(use),
                     payload.tag.first.eq(first), self.finishes.eq(then is None)]
        with m.If(self.go):
            m.d.sync += self.step.eq(Asked.MASK if then is None else then)

    def _pool(self, m):
        """The pixels of a window, one after the other."""
        with m.If(self.step == Asked.ROW):
            self._read(m, self.x.word, ~self.x.inside, Mux(self.job.mean, Use.SUM, Use.LARGEST),
                       first=self.taps.first, then=Asked.ROW)
            m.d.comb += self.finishes.eq(self.taps.last)

    def _add(self, m):
        """a, then b."""
        with m.Switch(self.step):
            with m.Case(Asked.ROW):
                self._read(m, self.x.word, ~self.x.inside, Mux(self.two, Use.LOW, Use.SUM), first=1,
                           then=Mux(self.two, Asked.HIGH, Asked.OTHER))
            with m.Case(Asked.HIGH):
                self._read(m, self.x.word, ~self.x.inside, Use.HIGH, then=Asked.OTHER)
            with m.Case(Asked.OTHER):
                self._read(m, self.other.word, ~self.other.inside, Mux(self.two, Use.OTHER_LOW, Use.OTHER),
                           then=Mux(self.two, Asked.OTHER_HIGH, Asked.MASK))
                m.d.comb += self.finishes.eq(~self.two)
            with m.Case(Asked.OTHER_HIGH):
                self._read(m, self.other.word, ~self.other.inside, Use.OTHER_HIGH)

    def _pool_back(self, m):
        """What each window has chosen, and its gradient; nothing where the totals hold the only window already."""
        windows, chosen, first = self.windows, self.job.chosen.there, ~self.begun
        with m.Switch(self.step):
            with m.Case(Asked.ROW):
                with m.If(~windows.some):
                    self._read(m, 0, 1, Use.SUM, first=1)
                with m.Elif(windows.same):
                    self._read(m, 0, 1, Use.NOTHING)
                with m.Else():
                    self._read(m, Mux(chosen, windows.which, windows.word), 0, Mux(chosen, Use.OTHER_LOW, Use.LOW),
                               first=first, then=Mux(chosen, Asked.LOW, Asked.HIGH))
            with m.Case(Asked.LOW):
                self._read(m, windows.word, 0, Use.LOW, first=first, then=Asked.HIGH)
            with m.Case(Asked.HIGH):
                then = Mux(windows.more, Asked.ROW, Asked.MASK)
                self._read(m, windows.word + self.job.x.plane, 0, Use.HIGH, then=then)
                m.d.comb += self.finishes.eq(~windows.more)

    def _send(self, m):
        """Give the read, or one of zeros where the last word of a row would come too early."""
        job, tag, early = self.job, self.o.p.tag, Signal(range(2 * GROUPS))  # `early`: reads up to the next last one
        pause, rows = Signal(), Signal(range(ROWS + 1))
        m.d.comb += [pause.eq(self.final & early.any()),
                     self.o.valid.eq((self.step != Asked.NONE) & (pause | ~self.final | (rows != ROWS))),
                     self.go.eq(self.o.valid & self.o.ready & ~pause),
                     tag.index.eq(self.windows.index), tag.last.eq(self.final & ~pause)]
        with m.If(job.kind == POOL):
            m.d.comb += tag.index.eq(self.number)
        with m.If(pause):
            m.d.comb += [self.o.p.zeros.eq(1), tag.use.eq(Use.NOTHING)]
        with m.If(self.start):
            m.d.sync += early.eq(0)
        with m.Elif(self.o.valid & self.o.ready):
            cycles = Mux(in_parts(job), 2 * GROUPS - 1, GROUPS - 1)
            m.d.sync += early.eq(Mux(tag.last, Mux(job.converts, cycles, 0), early - early.any()))
        m.d.sync += rows.eq(rows + (self.go & self.final) - self.written)

    def _rows(self, m):
        """Go to the next row, block or window."""
        job, windows, ends, blocks = self.job, self.windows, self.go & self.final, Signal(COUNT)
        last = Mux(job.kind == POOL_BACK, windows.last, self.x.last)
        m.d.comb += [windows.job.eq(job), windows.start.eq(self.start), windows.step.eq(ends),
                     windows.turn.eq(self.go & (self.step == Asked.HIGH) & windows.more)]
        with m.If(self.start):
            m.d.sync += [self.step.eq(Asked.ROW), blocks.eq(job.y.blocks)]
        with m.Elif(ends):
            m.d.sync += [self.step.eq(Mux(last & (blocks == 1), Asked.NONE, Asked.ROW)), blocks.eq(blocks - last)]
        with m.If(self.go):
            m.d.sync += self.begun.eq(~self.final & (self.begun | (self.step == Asked.HIGH)))

    def _taps(self, m):
        """Walk through the pixels of a window, or through the planes of a."""
        job, taps, pool = self.job, self.taps, self.job.kind == POOL
        walks = (self.step == Asked.ROW) | (self.step == Asked.HIGH)
        m.d.comb += [
            taps.start.eq(self.start), taps.step.eq(self.go & walks), taps.taps.n0.eq(1),
            taps.taps.n1.eq(Mux(pool, job.size, 1)), taps.taps.n2.eq(Mux(pool, job.size, job.y.planes)),
            taps.strides[1].eq(job.x.pitch1), taps.strides[2].eq(Mux(pool, job.x.pitch2, job.x.plane)),
            self.x.offset.eq(taps.offset), self.other.offset.eq(Mux(self.step == Asked.OTHER_HIGH, job.other.plane, 0))]
        with m.If(pool):
            m.d.comb += [self.x.c1.eq(taps.c1), self.x.c2.eq(taps.c2)]
        with m.If(self.start | self.go):
            m.d.sync += self.number.eq(Mux(self.start | self.final, 0, self.number + 1))
