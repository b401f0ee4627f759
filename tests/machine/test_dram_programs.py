"""Random programs with Dram give golden's bits at any latency."""

from concord.campaigns.dram_programs import differences


def test_random_programs():
    assert not differences("tiny", 1, list(range(40)))
