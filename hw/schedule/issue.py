"""Issues words to the multi-function units."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import bits_for
from concord.hw.lib.jobs import TICKET, issue_job, progress
from concord.hw.lib.lookahead import following, moving, pending, unfinished
from concord.hw.lib.payloads import MVM, OPERANDS, address_bits, controls, outside_mark, turn, word
from concord.hw.lib.pipeline import delay_control
from concord.hw.schedule.address_generator import AddressGenerator, outside_words, vector_reads
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
        net_room: In(1). NetQ has space for one more word. On machines with Dram, outside: In(stream word), words from
            it, and outside_room: In(1), it takes one more word.
        landed: In(1). A word has left the units and is written.
        go: Out(1). A word is issued. enter: Out(1). It enters the units, one cycle later. word: Out. That word, one
            cycle after `enter`.
        control: Out. Operations of the units on it. addresses: Out. Addresses of its operands. Both with `enter`.
        turn, held: Out. Position of the word in its iteration, and operands whose first element all lanes take, with
            `enter`; on machines with `more_functions`.
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
            "net_room": In(1), "landed": In(1), "go": Out(1), "enter": Out(1), "word": Out(word(config)),
            "control": Out(controls(config)),
            "addresses": Out(data.ArrayLayout(address_bits(config), len(OPERANDS))),
            "stages": Out(STAGES), "reads": Out(len(OPERANDS)), "to_net": Out(1), "popped": Out(1),
            "waits_operand": Out(1), "waits_output": Out(1), "starved": Out(1), **entries, **outside_words(config),
            **({"outside_room": In(1)} if config.dram_words else {})})

    def elaborate(self, platform):
        m = Module()
        m.submodules.source = source = AddressGenerator(self.config)
        job, words = self.job.p, source.ahead(m)
        certain = self._older(m, words)
        kept = {name: job[name] for name in ("control", "net", "serial", *self._entry_fields())}
        kept |= {"popped": job.pop & (job.memory == MVM), "operands": Cat(operand.valid for operand in job.operands),
                 "stages": Cat(control[stage.name.lower()].any() for control in job.control for stage in Stage)}
        _, present = words.of_jobs(kept)
        m.d.comb += source.walk(job)
        wiring.connect(m, wiring.flipped(self.net), source.net)
        wiring.connect(m, source.vectors, wiring.flipped(self.vectors))
        if self.config.dram_words:
            wiring.connect(m, wiring.flipped(self.outside), source.outside)
        self._pop(m, source, present)
        operands_written = self._operands(m, source, words)
        words.queue()
        if self.config.more_functions:
            m.d.sync += [self.turn.valid.eq(self.go), self.turn.first.eq(source.present.first_word),
                         self.turn.tail.eq(Mux(source.present.last_word, present["tail"], 0))]

        # The word before has landed, which shows one cycle late.
        inside, alone = Signal(bits_for(timing.mfu_pipeline(self.config) + 2)), Signal()
        m.d.sync += [inside.eq(inside + self.go - self.landed), alone.eq((inside == 0) & ~self.go),
                     self.enter.eq(self.go), self.control.eq(present["control"])]
        no_room = present["net"] & ~self.net_room
        if self.config.dram_words:
            no_room |= present["outside"] & ~self.outside_room
        m.d.comb += [
            source.job.valid.eq(self.job.valid), self.job.ready.eq(source.job.ready),
            source.mfu.eq(self.mfu), source.copy.eq(self.copy),
            source.hold.eq(~certain | ~operands_written | no_room | (present["serial"] & ~alone)),
            self.go.eq(source.go), self.word.eq(source.word),
            self.to_net.eq(present["net"]), self.popped.eq(source.go & present["popped"]),
            self.stages.eq(present["stages"]), self.reads.eq(present["operands"]),
            self.waits_output.eq(source.present.valid & no_room),
            self.waits_operand.eq(source.present.valid & ~no_room & ~source.go), self.starved.eq(source.starved)]
        return m

    def _entry_fields(self):
        """Fields of the job that only some machines have, and that a word keeps."""
        return ["gather"] * bool(self.config.vector_rf) + ["tail"] * self.config.more_functions + [
            *outside_mark(self.config)]

    def _older(self, m, words):
        """Whether the chains of other pipelines that must come before the present word are finished."""
        job = self.job.p
        done = {"fetch": self.fetch, "copy": self.copy.done}
        if self.config.vector_rf:
            done["product"] = self.product
        coming, present = words.of_jobs({pipe: job[pipe] for pipe in done})
        done = {pipe: following(m, f"following_{pipe}", tickets) for pipe, tickets in done.items()}
        return words.certain("older", lambda choose: ~Cat(
            unfinished(choose(coming[pipe], present[pipe]), done[pipe]) for pipe in done).any())

    def _pop(self, m, source, present):
        """Take words of products and of the gather unit."""
        job, queues = self.job.p, self.job.p.pop
        if not self.config.vector_rf:
            wiring.connect(m, wiring.flipped(self.pop), source.pop)
        else:
            queues |= job.gather
            gather = present["gather"]
            m.d.comb += [
                source.pop.valid.eq(Mux(gather, self.gathered.valid, self.pop.valid)),
                source.pop.p.eq(Mux(gather, self.gathered.p.as_value(), self.pop.p.as_value())),
                self.gathered.ready.eq(source.pop.ready & gather), self.pop.ready.eq(source.pop.ready & ~gather)]
        with m.If(queues):
            m.d.comb += [source.job.p.memory.eq(MVM), source.job.p.source.valid.eq(0)]

    def _operands(self, m, source, words):
        """Drive the addresses of the operands. Returns whether all operands will be written when they are read."""
        job, position, bits = self.job.p, source.walked, address_bits(self.config)
        stride, moved = words.of_job("stride_out", job.stride_out), Signal(bits)
        with m.If(source.advance):
            with m.If(source.begins):
                m.d.sync += moved.eq(job.stride_out)
            with m.Elif(position.last_word):
                m.d.sync += moved.eq(moved + stride)
        issued = Signal(TICKET, init=1)  # ticket of the first chain that is not issued
        with m.If(source.go & source.last):
            m.d.sync += issued.eq(issued + 1)

        written, due = [], timing.operands_due(self.config)
        copy = following(m, "following_copy_writes", self.copy.done)
        for k in range(len(OPERANDS)):
            low = self._low(m, k, source, words, moved)
            # The word goes one cycle after it is looked up, or later.
            mfu = self._progress(m, issued, low, timing.mfu_pipeline(self.config) - due[k] - 1)
            written.append(self._operand(m, k, source, words, moved, {
                "mfu": (mfu.first, mfu.low), "copy": (copy, self.copy.low[OPERANDS[k]])}))
        return Cat(written).all()

    def _operand(self, m, k, source, words, moved, pipes):
        """Drive the address of one operand. Returns whether it will be written when it is read."""
        operand, now = self.job.p.operands[k], words.of_job(f"operand{k}", self.job.p.operands[k])
        still = now.held if self.config.more_functions else 0
        address = moving(m, words, f"operand{k}", access=operand, walked=now, ends=source.walked.last_word,
                         moved=moved, still=still)
        coming, present = {}, {}
        for name, value in {"address": address, **{pipe: pending(
                m, f"pending_{pipe}{k}", now[pipe], address, now.valid) for pipe in pipes}}.items():
            coming[name], present[name] = words.carry(f"{name}{k}", value)
        m.d.sync += self.addresses[k].eq(present["address"])
        if self.config.more_functions:
            m.d.sync += self.held[k].eq(words.carry(f"held{k}", now.held)[1])

        def written(choose):
            address = choose(coming["address"], present["address"])
            return ~Cat(unfinished(choose(coming[pipe], present[pipe]), first, address < low)
                        for pipe, (first, low) in pipes.items()).any()

        return words.certain(f"operand{k}", written)

    def _low(self, m, k, source, words, moved):
        """Lowest address that the chain of the present word may still write to an operand's memory."""
        target, now = self.job.p.targets[k], words.of_job(f"target{k}", self.job.p.targets[k])
        here = moving(m, words, f"target{k}", access=target, walked=now, ends=source.walked.last_word, moved=moved)
        lowest = Signal(address_bits(self.config), name=f"lowest{k}")
        m.d.comb += lowest.eq(Mux(now.rising | source.walked.last_iteration, here, now.lo))
        return Mux(source.present.valid, words.carry(f"low{k}", lowest)[1], 0)

    def _progress(self, m, issued, low, cycles):
        """Progress of the writes of one memory at the time at which an operand is read, after its `go`."""
        state = Signal(data.StructLayout({"first": TICKET, "low": address_bits(self.config)}))
        m.d.comb += [state.first.eq(issued), state.low.eq(low)]
        return delay_control(m, state, cycles)  # reset with the tickets
