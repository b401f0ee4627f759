"""Several managers of AXI4 before one port of a memory."""

from functools import reduce
from operator import or_

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.utils import bits_for, exact_log2
from concord.hw.dram.axi import INCR, wires
from concord.hw.lib.queue import Queue

WRITES = 8  #: Writes that are asked for and lack beats.
UNDER_WAY = 12  #: Bits of the number of reads, or of writes, that are under way.


class Arbiter(wiring.Component):
    """Gives the port to the bursts of all managers in turns.

    AR and AW have turns of their own, and W follows AW. A manager asks only for what it has room for, and writes only
    what it has, so nobody holds up a channel of the others. Responses find their way by the ID: that of the port has
    the number of the manager above the manager's own bit. Responses to nobody are lost.

    Args:
        size:     Bytes of the bus.
        managers: Number of managers, at least 2.

    Members:
        manager0_..., manager1_...: The wires of `hw.dram.axi.wires`, with IDs of 1 bit, as a memory has them. Bursts
            are INCR and of whole beats; SIZE and BURST do not count.
        m_axi_...: The port, whose IDs have `ids` bits.
        busy: Out(1). Bursts are under way: one is offered, or lacks its last response.

    Timing:
        A burst takes 2 cycles on AR or AW. W, R and B have one beat a cycle and a latency of 1 cycle. While a manager
        offers a burst on AR or AW, each other manager is served at most once, and one of them twice.
    """

    def __init__(self, size: int, managers: int):
        self.size, self.count, self.ids = size, managers, 1 + bits_for(managers - 1)
        self.names = tuple(wires(size, 1))
        super().__init__({
            **{f"manager{k}_{name}": member.flip() for k in range(managers) for name, member in wires(size, 1).items()},
            **{f"m_axi_{name}": member for name, member in wires(size, self.ids).items()}, "busy": Out(1)})

    def elaborate(self, platform):
        m = Module()
        self.port = {name: getattr(self, f"m_axi_{name}") for name in self.names}
        self.managers = [{name: getattr(self, f"manager{k}_{name}") for name in self.names} for k in range(self.count)]
        m.submodules.order = order = Queue(range(self.count), WRITES)  # whose beats W has, burst by burst
        read, _ = self._ask(m, "ar", C(1))
        written, writer = self._ask(m, "aw", order.i.ready)
        m.d.comb += [order.i.valid.eq(written), order.i.p.eq(writer)]
        self._write(m, order.o)
        ended = self._answer(m, "r", ("data", "resp", "last")), self._answer(m, "b", ("resp",))
        m.d.comb += self.busy.eq(Cat(
            _count(m, read, ended[0] & self.managers[0]["rlast"]), _count(m, written, ended[1]),
            *(one[f"{channel}valid"] for one in self.managers for channel in ("ar", "aw"))).any())
        return m

    def _ask(self, m, channel: str, room):
        """Give the bursts of AR or AW. Returns whether one is taken while there is room, and its manager."""
        valid, ready = self.port[f"{channel}valid"], self.port[f"{channel}ready"]
        requests = Cat(one[f"{channel}valid"] for one in self.managers)
        turn = Signal(self.count, init=1, name=f"{channel}_turn")  # of the manager to be served, or that was the last
        chosen, taken = Signal(name=f"{channel}_chosen"), Signal(name=f"{channel}_taken")
        number = Cat(Cat(turn[k] for k in range(self.count) if k >> bit & 1).any() for bit in range(self.ids - 1))
        m.d.comb += [taken.eq(chosen & room & (~valid | ready)), self.port[f"{channel}size"].eq(exact_log2(self.size)),
                     self.port[f"{channel}burst"].eq(INCR)]
        with m.If(ready):
            m.d.sync += valid.eq(0)
        with m.If(taken):
            m.d.sync += [chosen.eq(0), valid.eq(1), self.port[f"{channel}id"].eq(
                Cat(self._picked(f"{channel}id", turn), number))]
            m.d.sync += [self.port[channel + wire].eq(self._picked(channel + wire, turn)) for wire in ("addr", "len")]
        with m.Elif(~chosen & requests.any()):
            m.d.sync += [chosen.eq(1), turn.eq(_next(requests, turn))]
        m.d.comb += [one[f"{channel}ready"].eq(taken & bit) for one, bit in zip(self.managers, turn, strict=True)]
        return taken, number

    def _picked(self, name: str, turn):
        """A wire of the manager whose turn it is."""
        return reduce(or_, (Mux(bit, one[name], 0) for one, bit in zip(self.managers, turn, strict=True)))

    def _write(self, m, whose):
        """Give the beats of the oldest write that lacks some."""
        free, there, moved = Signal(), Signal(), Signal()
        port, beat = self.port, {wire: Signal.like(self.port[wire]) for wire in ("wdata", "wstrb", "wlast")}
        m.d.comb += [free.eq(~port["wvalid"] | port["wready"]), moved.eq(whose.valid & there & free),
                     whose.ready.eq(moved & beat["wlast"])]
        with m.Switch(whose.p):
            for number, one in enumerate(self.managers):
                with m.Case(number):
                    m.d.comb += [there.eq(one["wvalid"]), one["wready"].eq(whose.valid & free),
                                 *(value.eq(one[wire]) for wire, value in beat.items())]
        with m.If(free):
            m.d.sync += [port["wvalid"].eq(moved), *(port[wire].eq(value) for wire, value in beat.items())]

    def _answer(self, m, channel: str, parts: tuple[str, ...]):
        """Give responses to their managers, from registers: the port's READY does not depend on the ID that stands
        there. Returns whether one is taken.
        """
        there, whose = Signal(name=f"{channel}_there"), Signal(self.ids - 1, name=f"{channel}_whose")
        ready, ended = Signal(name=f"{channel}_ready"), Signal(name=f"{channel}_ended")
        nobody = (1 << (1 << self.ids - 1)) - (1 << self.count)  # takes what comes
        m.d.comb += [
            ready.eq((Cat(one[f"{channel}ready"] for one in self.managers) | nobody).bit_select(whose, 1)),
            self.port[f"{channel}ready"].eq(~there | ready), ended.eq(there & ready)]
        held = {wire: Signal.like(self.port[channel + wire], name=f"{channel}_{wire}") for wire in ("id", *parts)}
        m.d.comb += whose.eq(held["id"][1:])
        with m.If(self.port[f"{channel}ready"]):
            m.d.sync += [there.eq(self.port[f"{channel}valid"]),
                         *(value.eq(self.port[channel + wire]) for wire, value in held.items())]
        for number, one in enumerate(self.managers):
            m.d.comb += [one[f"{channel}valid"].eq(there & (whose == number)),
                         *(one[channel + wire].eq(value) for wire, value in held.items())]
        return ended


def _next(requests, turn):
    """Of requests, the first one above the turn, or else the first one."""
    above = requests & ~(turn | (turn - 1))
    among = Mux(above.any(), above, requests)
    return among & (~among + 1)


def _count(m, begun, ended):
    """Whether something is under way that begins and ends so often. A surplus end does not count."""
    level = Signal(UNDER_WAY)
    m.d.sync += level.eq(level + begun - (ended & level.any()))
    return level.any()
