"""Issues words to the multi-function units."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.jobs import TICKET, blocked, issue_job, progress, waiting
from concord.hw.lib.payloads import MVM, OPERANDS, address_bits, controls, turn, word
from concord.hw.lib.pipeline import delay_control
from concord.hw.schedule.address_generator import AddressGenerator, vector_reads
from concord.spec.isa.instructions import STAGES
from concord.spec.isa.operations import Stage
from concord.spec.machine import timing
from concord.spec.machine.config import Config


class Issue(wiring.Component):
    """Issues the words of each chain to the multi-function units, as soon as all operands are certain.

    The units never stall, so a word is issued only when its source, its operands and its space in NetQ are certain. An
    operand is certain if its write will have landed by the time at which its stage reads it.

    Args:
        config: The machine.

    Members:
        job: In(stream issue_job). Chains.
        mfu, copy: In(`progress`). Progress of both writing pipelines. fetch, product: In. Number of chains that operand
            fetch, and of products (tiles read), have finished.
        vectors: Out(`vector_reads`). Reads of the vector memories.
        net, pop, gathered: In(stream word). Words from NetQ, from MvmQ and from the gather unit.
        net_room: In(1). NetQ has space for one more word.
        landed: In(1). A word has left the units and is written.
        go: Out(1). A word is issued. word: Out. That word, one cycle later.
        control: Out. Operations of the units on it. addresses: Out. Addresses of its operands. Both with `go`.
        turn, held: Out. Place of the word in its iteration, and operands whose first element all lanes take, with `go`;
            on machines with `more_functions`.
        stages, reads: Out. Stages that process the word, and operands that it reads; both with `go`.
        to_net: Out(1). The word is written to NetQ. popped: Out(1). The word comes from MvmQ.
        waits_operand, waits_output, starved: Out(1). Activity for the counters.

    Timing:
        One word in each cycle, without a gap between chains that do not depend on each other.
    """

    def __init__(self, config: Config):
        self.config = config
        entries = {"gathered": In(stream.Signature(word(config))), "product": In(TICKET)} if config.vector_rf else {}
        if config.more_functions:
            entries |= {"turn": Out(turn(config.mfu_lanes)), "held": Out(len(OPERANDS))}
        super().__init__({
            "job": In(stream.Signature(issue_job(config))), "mfu": In(progress(config)), "copy": In(progress(config)),
            "fetch": In(TICKET), "vectors": Out(vector_reads(config)),
            "net": In(stream.Signature(word(config))), "pop": In(stream.Signature(word(config))),
            "net_room": In(1), "landed": In(1), "go": Out(1), "word": Out(word(config)),
            "control": Out(controls(config)),
            "addresses": Out(data.ArrayLayout(address_bits(config), len(OPERANDS))),
            "stages": Out(STAGES), "reads": Out(len(OPERANDS)), "to_net": Out(1), "popped": Out(1),
            "waits_operand": Out(1), "waits_output": Out(1), "starved": Out(1), **entries})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = AddressGenerator(self.config)
        job = self.job.p
        m.d.comb += source.walk(job)
        wiring.connect(m, wiring.flipped(self.net), source.net)
        wiring.connect(m, source.vectors, wiring.flipped(self.vectors))
        behind = self._pop(m, source)
        if self.config.more_functions:
            m.d.comb += [self.turn.valid.eq(self.go), self.turn.first.eq(source.index == 0),
                         self.turn.tail.eq(Mux(source.last_word, job.tail, 0)),
                         self.held.eq(Cat(operand.held for operand in job.operands))]

        inside = Signal(bits_for(timing.mfu_pipeline(self.config) + 1))
        m.d.sync += inside.eq(inside + self.go - self.landed)
        operands_written = self._operands(m, source)
        no_room = job.net & ~self.net_room
        m.d.comb += [
            source.job.valid.eq(self.job.valid), source.mfu.eq(self.mfu), source.copy.eq(self.copy),
            source.hold.eq(waiting(job.fetch, self.fetch) | waiting(job.copy, self.copy.done) | ~behind
                           | ~operands_written | no_room | (job.serial & (inside != 0))),
            self.go.eq(source.go), self.word.eq(source.word), self.control.eq(job.control),
            self.job.ready.eq(source.go & source.last), self.to_net.eq(job.net),
            self.popped.eq(source.go & job.pop & (job.memory == MVM)),
            self.stages.eq(Cat(control[stage.name.lower()].any() for control in job.control for stage in Stage)),
            self.reads.eq(Cat(operand.valid for operand in job.operands)),
            self.waits_output.eq(self.job.valid & no_room),
            self.waits_operand.eq(self.job.valid & ~no_room & ~source.go), self.starved.eq(source.starved)]
        return m

    def _pop(self, m, source):
        """Take words of products and of the gather unit. Returns whether the products that must come first are done."""
        job, queues = self.job.p, self.job.p.pop
        if not self.config.vector_rf:
            wiring.connect(m, wiring.flipped(self.pop), source.pop)
        else:
            queues |= job.gather
            m.d.comb += [
                source.pop.valid.eq(Mux(job.gather, self.gathered.valid, self.pop.valid)),
                source.pop.p.eq(Mux(job.gather, self.gathered.p.as_value(), self.pop.p.as_value())),
                self.gathered.ready.eq(source.pop.ready & job.gather),
                self.pop.ready.eq(source.pop.ready & ~job.gather)]
        with m.If(queues):
            m.d.comb += [source.job.memory.eq(MVM), source.job.source.valid.eq(0)]
        return ~waiting(job.product, self.product) if self.config.vector_rf else Const(1)

    def _operands(self, m, source):
        """Drive the addresses of the operands. Returns whether all operands will be written when they are read."""
        job = self.job.p
        moved = Signal(address_bits(self.config))
        with m.If(source.go & source.last_word):
            m.d.sync += moved.eq(Mux(source.last, 0, moved + job.stride_out))
        issued = Signal(TICKET)
        with m.If(source.go & source.last):
            m.d.sync += issued.eq(issued + 1)

        written, due = [], timing.operands_due(self.config)
        for k, (operand, target, address) in enumerate(zip(job.operands, job.targets, self.addresses, strict=True)):
            index = Mux(operand.held, 0, source.index) if self.config.more_functions else source.index
            m.d.comb += address.eq(operand.lo + index + Mux(operand.inc, moved, 0))
            low = Signal(address_bits(self.config), name=f"low{k}")
            here = target.lo + source.index + Mux(target.inc, moved, 0)
            m.d.comb += low.eq(Mux(self.job.valid, Mux(target.rising | source.last_iteration, here, target.lo), 0))
            mfu = self._progress(m, issued, low, timing.mfu_pipeline(self.config) - due[k])
            waits = (blocked(operand.mfu, mfu, mfu.low, address)
                     | blocked(operand.copy, self.copy, self.copy.low[OPERANDS[k]], address))
            written.append(~(operand.valid & waits))
        return Cat(written).all()

    def _progress(self, m, issued, low, cycles):
        """Progress of the writes of one memory at the time at which an operand is read, after its `go`."""
        state = Signal(data.StructLayout({"done": TICKET, "low": address_bits(self.config)}))
        m.d.comb += [state.done.eq(issued), state.low.eq(low)]
        return delay_control(m, state, cycles)  # reset with the tickets
