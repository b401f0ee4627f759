"""The windows of registers behind the control port of an accelerator."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.utils import exact_log2
from concord.hw.host.control import BUS
from concord.spec.accelerator.registers import ADDRESS_BITS, WINDOW

#: The wires of AXI4-Lite by their names, as the side of the registers has them.
LITE = {name.removeprefix("s_axil_"): member for name, member in BUS.items()}

#: What each channel carries.
CARRIED = {"aw": ("awaddr", "awprot"), "w": ("wdata", "wstrb"), "b": ("bresp",), "ar": ("araddr", "arprot"),
           "r": ("rdata", "rresp")}


class WindowRouter(wiring.Component):
    """Gives each access of the host to the window of its address.

    An absent window reads as 0, and writing it has no effect; its response is OKAY.

    Args:
        cores: Number of cores.

    Members:
        s_axil_...: AXI4-Lite, the host's side, with addresses of 16 bits.
        window0_...: AXI4-Lite, the registers of the command processor. window1_..., window2_...: those of the cores.
            Addresses have 12 bits.

    Timing:
        1 cycle more than the window takes; one write and one read are under way.
    """

    def __init__(self, cores: int):
        self.windows = cores + 1
        address = dict.fromkeys(("s_axil_awaddr", "s_axil_araddr"), In(ADDRESS_BITS))
        super().__init__(BUS | address | {
            f"window{k}_{name}": member.flip() for k in range(self.windows) for name, member in LITE.items()})

    def elaborate(self, platform):
        m = Module()
        self._route(m, ("aw", "w"), "b")
        self._route(m, ("ar",), "r")
        return m

    def _route(self, m, channels: tuple[str, ...], answer: str):
        """Connect the host and the window of the access that is under way, whose address is on the first channel."""
        host = {name: getattr(self, f"s_axil_{name}") for name in LITE}
        inside, first = exact_log2(WINDOW), channels[0]
        opened, window = Signal(name=f"{first}_opened"), Signal(ADDRESS_BITS - inside, name=f"{first}_window")
        given = {channel: Signal(name=f"{channel}_given") for channel in channels}
        ready = {channel: Signal(name=f"{channel}_ready") for channel in channels}
        there, ends = host[f"{answer}valid"], Signal(name=f"{answer}_ends")
        m.d.comb += [there.eq(opened & Cat(given.values()).all()), *(one.eq(1) for one in ready.values())]
        for number in range(self.windows):
            wire = {name: getattr(self, f"window{number}_{name}") for name in LITE}
            m.d.comb += [wire[name].eq(host[name]) for channel in channels for name in CARRIED[channel]]
            with m.If(opened & (window == number)):
                m.d.comb += [there.eq(wire[f"{answer}valid"]), wire[f"{answer}ready"].eq(host[f"{answer}ready"]),
                             *(host[name].eq(wire[name]) for name in CARRIED[answer])]
                for channel in channels:
                    m.d.comb += [ready[channel].eq(wire[f"{channel}ready"]),
                                 wire[f"{channel}valid"].eq(host[f"{channel}valid"] & ~given[channel])]
        m.d.comb += ends.eq(there & host[f"{answer}ready"])
        for channel in channels:
            m.d.comb += host[f"{channel}ready"].eq(opened & ready[channel] & ~given[channel])
            with m.If(~opened):
                m.d.sync += given[channel].eq(0)
            with m.Elif(host[f"{channel}valid"] & ready[channel]):
                m.d.sync += given[channel].eq(1)
        with m.If(~opened):
            m.d.sync += [opened.eq(host[f"{first}valid"]), window.eq(host[f"{first}addr"][inside:])]
        with m.Elif(ends):
            m.d.sync += opened.eq(0)
