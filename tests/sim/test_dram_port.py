"""The port of Dram under random transactions, and its monitor."""

from dataclasses import replace

import pytest
from concord.campaigns.dram_port import BROKEN, BUSES, WORDS, broken_rules, chosen_ports, transactions
from concord.sim.machines.build import ROOT
from concord.sim.machines.port import Port
from concord.spec.machine.config import preset


@pytest.mark.parametrize(("bus", "size"), [(4, 16), (8, 4), (64, 16)])
def test_random_transactions(bus, size):
    """Every byte is right, and no rule is broken, with words of several beats and beats of several words."""
    assert bus in BUSES
    assert size in WORDS
    counts, violations = transactions(bus, size, 1000)
    assert not violations
    assert (counts.differing, counts.errors, counts.hangs) == (0, 0, 0)
    assert counts.reads + counts.writes >= 1000
    assert min(counts.reads, counts.writes, counts.resets, counts.bytes_read, counts.bytes_written) > 0


@pytest.mark.parametrize("rule", ["WVALID was dropped before WREADY", "a burst crosses 4,096 bytes"])
def test_the_monitor_names_the_rule_that_a_port_breaks(rule, tmp_path):
    chosen, = (one for one in BROKEN if one.rule == rule)
    assert rule in broken_rules(chosen, tmp_path / "tree")


def test_broken_ports_are_chosen_by_a_part_of_a_rule():
    assert chosen_ports("all") == list(BROKEN)
    assert chosen_ports("none") == []
    assert [one.rule for one in chosen_ports("WLAST")] == ["WLAST is not at the last beat alone"]
    with pytest.raises(ValueError, match=r"--broken wlast: give all, none, or a part .*WLAST is not at"):
        chosen_ports("wlast")


def test_each_rule_has_a_port_that_breaks_it():
    """And each broken line is there once."""
    with Port(replace(preset("tiny"), dram_words=1 << 20, dram_bus=8)) as port:
        assert [one.rule for one in BROKEN] == port.rules()
    for one in BROKEN:
        assert (ROOT / one.file).read_text().count(one.old) == 1
