"""After a reset at any time, or after a malformed message, the next program gives golden's bits."""

import numpy as np
import pytest
from concord.sim.machines.host import QUIET, HardwareMachine, machine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.message_cases import malformed
from concord.sim.stimulus.programs import random_program, written_program
from concord.spec.host.registers import Counter, Status
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset
from concord.tests.machine.test_entries_on_gates import PROGRAMS

CONFIGS = ("tiny", "serial")


def reset(nnp):
    """Reset a machine, which forgets its error, and drop the input of the program that ran."""
    nnp.reset()
    assert nnp.error() == (Error.NONE, 0)
    # INPUT that was not taken before the reset still goes into NetQ as far as there is room: it is dropped.
    while nnp.link.queued:
        nnp.settle(QUIET)
        nnp.reset()


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
            reset(nnp)
            assert compare(random_program(config, rng), nnp) is None
    assert interrupted > 10


def convolution(config, rng, *, integer):
    """A program that writes an image to VectorRf and multiplies its windows, on random numbers."""
    text = PROGRAMS["convolution"].format(
        n=config.native_dim, short=2 * config.native_dim - 1, mode=", integer" * integer)
    return written_program(config, rng, text + "end\n", integer=integer)


def test_reset_in_the_middle_of_a_convolution():
    """Resets strike throughout a program whose product reads windows of VectorRf while its entries are written."""
    config, rng, columns = preset("tiny"), np.random.default_rng(3), Counter.READ_VECTOR_RF
    with machine("library", config) as nnp:
        assert compare(convolution(config, rng, integer=False), nnp) is None
        total, cycles, interrupted = nnp.counter(columns), nnp.counter(Counter.CYCLES), 0
        for turn in range(0, cycles, 5):
            case = convolution(config, rng, integer=bool(rng.integers(2)))
            nnp.clear()
            nnp.send(*case.setup, *case.inputs)
            nnp.start()
            nnp.link.step(turn)
            interrupted += 0 < nnp.counter(columns) < total and Status.RUNNING in nnp.status()
            reset(nnp)
            assert compare(convolution(config, rng, integer=bool(rng.integers(2))), nnp) is None, turn
    assert interrupted > 40


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
