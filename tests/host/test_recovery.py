"""After a reset at any time, or after a malformed message, the next program gives golden's bits."""

import numpy as np
import pytest
from concord.sim.machines.host import QUIET, HardwareMachine, machine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.message_cases import malformed
from concord.sim.stimulus.programs import random_program
from concord.spec.config import preset
from concord.spec.isa import Error
from concord.spec.registers import Status

CONFIGS = ("tiny", "serial")


@pytest.mark.parametrize("name", CONFIGS)
def test_reset_in_the_middle_of_a_program(name):
    config, rng = preset(name), np.random.default_rng(1)
    with machine("library", config) as nnp:
        assert isinstance(nnp, HardwareMachine)
        interrupted = 0
        for _ in range(25):
            case = random_program(config, rng)
            nnp.send(*case.setup, *case.inputs)
            nnp.start()
            nnp.link.step(int(rng.integers(1, 1500)))
            interrupted += Status.RUNNING in nnp.status()
            nnp.reset()
            assert nnp.error() == (Error.NONE, 0)
            # INPUT that was not taken before the reset still goes into NetQ as far as there is room: it is dropped.
            while nnp.link.queued:
                nnp.settle(QUIET)
                nnp.reset()
            assert compare(random_program(config, rng), nnp) is None
    assert interrupted > 10


@pytest.mark.parametrize("name", CONFIGS)
def test_malformed_message(name):
    """Every fault is reported as MESSAGE; no program starts until a reset, and the next one gives golden's bits."""
    config, rng = preset(name), np.random.default_rng(2)
    with machine("library", config) as nnp:
        for fault, data in malformed(config, rng).items():
            nnp.reset()
            nnp.send(data)
            nnp.settle(QUIET)
            assert nnp.error() == (Error.MESSAGE, 0), fault
            nnp.start()
            assert not nnp.run() & (Status.RUNNING | Status.DONE), fault
            assert compare(random_program(config, rng, length=3), nnp) is None, fault
