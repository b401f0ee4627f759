"""Random programs mean on golden what the loops of `slow_machine` compute."""

import numpy as np
import pytest
from concord.golden.host.messages import words_of
from concord.golden.machine import Machine
from concord.sim.stimulus.programs import random_illegal, random_program
from concord.spec.host.messages import unpack
from concord.spec.host.registers import Counter, Status
from concord.spec.machine.config import preset
from concord.tests.machine.slow_machine import SlowMachine


def compared(case):
    """Run a case on golden and on the slow machine, and compare everything that both have."""
    machine = Machine(case.config)
    for message in (*case.setup, *case.inputs):
        machine.send(message)
    slow = SlowMachine(case.config, machine)
    machine = Machine(case.config)
    for message in (*case.setup, *case.inputs):
        machine.send(message)
    machine.start()
    assert machine.run() & Status.DONE
    slow.run(case.program)
    for mem, words in machine.memory.vectors.items():
        assert words.tolist() == slow.vectors[mem], (mem, case.text)
    entries = machine.memory.entries
    assert list(zip(entries.mantissas.tolist(), entries.exponents.tolist(), strict=True)) == slow.entries, case.text
    received = [words_of(case.config, unpack(case.config, data, to_machine=False)) for data in machine.receive()]
    assert [word for words in received for word in words.tolist()] == slow.out, case.text
    for name in ("READ_VECTOR_RF", "WRITE_VECTOR_RF", "POOL", "VECTORS"):
        assert machine.counters.values[Counter[name]] == slow.counts[name], (name, case.text)
    assert bool(machine.status & Status.INVALID_VECTOR) == slow.invalid, case.text


@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "tiny_softmax", "tiny_vector"])
def test_random_programs(name):
    for seed in range(12):
        compared(random_program(preset(name), np.random.default_rng([7, seed])))
    for seed in range(3):
        compared(random_illegal(preset(name), np.random.default_rng([7, seed])))
