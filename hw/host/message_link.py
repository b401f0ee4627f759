"""Between two machines of a pipeline: results go to the next machine, everything else between host and machines."""

from amaranth import *
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out
from concord.hw.lib import message_payloads
from concord.spec.host.messages import MessageKind
from concord.spec.machine.config import Config


class Chosen(enum.Enum):
    """Whose message the next machine gets."""

    NOBODY = 0
    HOST = 1
    RESULTS = 2


class MessageLink(wiring.Component):
    """Sends INPUT messages of a machine to the next machine, and all of its other messages to the host.

    The next machine also gets the messages of the host. Messages never mix, and results go first.

    Args:
        config: Configuration of either machine; their beats are equal.

    Members:
        results: In(stream {data, last}). Beats of the machine before.
        from_host: In(stream {data, last}). Beats of the host for the next machine.
        to_host: Out(stream {data, last}). Beats of the machine before for the host.
        o: Out(stream {data, last}). Beats for the next machine.

    Timing:
        No cycle of delay; one beat in each cycle.
    """

    def __init__(self, config: Config):
        self.config = config
        beat = stream.Signature(message_payloads.beat(config))
        super().__init__({"results": In(beat), "from_host": In(beat), "to_host": Out(beat), "o": Out(beat)})

    def elaborate(self, platform):
        m = Module()
        results, from_host, to_host, o = self.results, self.from_host, self.to_host, self.o

        # The first beat of a message holds its kind.
        inside, passing, passes = Signal(), Signal(), Signal()
        m.d.comb += passes.eq(Mux(inside, passing, results.p.data[:8] == MessageKind.INPUT))
        with m.If(results.valid & results.ready):
            m.d.sync += [inside.eq(~results.p.last), passing.eq(passes)]

        # A choice holds while a beat waits and until its message ends, so that an offered beat stays as it is.
        kept, chosen, there = Signal(Chosen), Signal(Chosen), Signal()
        m.d.comb += there.eq(results.valid & passes)
        with m.If(kept == Chosen.NOBODY):
            m.d.comb += chosen.eq(Mux(there, Chosen.RESULTS, Chosen.HOST))
        with m.Else():
            m.d.comb += chosen.eq(kept)
        with m.If(o.valid):
            m.d.sync += kept.eq(Mux(o.ready & o.p.last, Chosen.NOBODY, chosen))

        with m.If(chosen == Chosen.RESULTS):
            m.d.comb += [o.p.eq(results.p), o.valid.eq(there)]
        with m.Else():
            m.d.comb += [o.p.eq(from_host.p), o.valid.eq(from_host.valid)]
        m.d.comb += [
            from_host.ready.eq(o.ready & (chosen == Chosen.HOST)),
            results.ready.eq(Mux(passes, o.ready & (chosen == Chosen.RESULTS), to_host.ready)),
            to_host.p.eq(results.p), to_host.valid.eq(results.valid & ~passes)]
        return m
