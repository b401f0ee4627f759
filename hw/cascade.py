"""A pipeline of processors: each sends its results to the next one."""

from collections.abc import Sequence

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from concord.hw.host.message_link import MessageLink
from concord.hw.nnp import ports
from concord.spec.machine.config import Config


class Cascade(wiring.Component):
    """Processors with one clock, and a `MessageLink` between each two neighbours.

    The processors are modules of their own, which `modules` names: equal ones are generated once.

    Args:
        configs: The machines, in order; hardware can be generated for each.

    Members:
        machine0_*, machine1_*, ...: The ports of each `NNP`. The host has the streams of all machines; INPUT messages
            that a machine makes, which register PEER asks for, go to the next machine instead of the host.

    Raises:
        ValueError: beats of neighbours have different widths.
    """

    def __init__(self, configs: Sequence[Config]):
        if len({config.message_bytes for config in configs}) != 1:
            raise ValueError("machines of a pipeline have beats of one width: choose machines of equal message_bytes")
        self.configs = tuple(configs)
        distinct = dict.fromkeys(configs)
        #: Name of the Verilog module of each machine, by its configuration.
        self.modules = {config: f"nnp{k}" for k, config in enumerate(distinct)}
        super().__init__({f"machine{k}_{name}": member for k, config in enumerate(configs)
                          for name, member in ports(config).items()})

    def elaborate(self, platform):
        m = Module()
        links = [MessageLink(config) for config in self.configs[:-1]]
        for k, link in enumerate(links):
            m.submodules[f"link{k}"] = link
        for k, config in enumerate(self.configs):
            before, behind = links[k - 1] if k else None, links[k] if k < len(links) else None
            wires = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
            for name, member in ports(config).items():
                outer, inner = getattr(self, f"machine{k}_{name}"), Signal(member.shape, name=f"machine{k}_{name}")
                wires[f"{'i' if member.flow == In else 'o'}_{name}"] = inner
                if name.startswith("s_axis_") and before:
                    _join(m, name, before.from_host, outer, before.o, inner)
                elif name.startswith("m_axis_") and behind:
                    _join(m, name, behind.to_host, outer, behind.results, inner)
                else:
                    m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
            m.submodules[f"machine{k}"] = Instance(self.modules[config], **wires)
        return m


def _join(m, name: str, of_host, outer, of_machine, inner):
    """Connect one wire of a bus of a machine, and the same wire of the host, to two streams of a link."""
    wire, to_machine = name.rpartition("_")[2], name.startswith("s_")
    host, machine = ({"tdata": each.p.data, "tlast": each.p.last, "tvalid": each.valid, "tready": each.ready}[wire]
                     for each in (of_host, of_machine))
    # Host to machine, every wire goes through the link from `outer` to `inner`, but tready goes back.
    forward = to_machine != (wire == "tready")
    m.d.comb += [host.eq(outer), inner.eq(machine)] if forward else [outer.eq(host), machine.eq(inner)]
