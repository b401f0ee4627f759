"""The wires of a machine's buses, of one alone and of one that is a core."""

from amaranth.lib.wiring import In, Member, Out
from concord.hw.dram.axi import bus
from concord.hw.host.control import BUS
from concord.hw.host.watch import Watch
from concord.spec.machine.config import Config


def ports(config: Config) -> dict[str, Member]:
    """The wires of a machine's buses, from its point of view."""
    bits, outside = 8 * config.message_bytes, bus(config) if config.dram_words else {}
    return {"s_axis_tdata": In(bits), "s_axis_tvalid": In(1), "s_axis_tready": Out(1), "s_axis_tlast": In(1),
            "m_axis_tdata": Out(bits), "m_axis_tvalid": Out(1), "m_axis_tready": In(1), "m_axis_tlast": Out(1), **BUS,
            **outside}


def core_ports(config: Config) -> dict[str, Member]:
    """The wires of a machine that is a core of an accelerator: `watch` is what its driver sees besides."""
    return {**ports(config), "watch": Out(Watch)}
