"""What the comparison of two trainers finds, with golden for both; and damaged programs."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from concord.golden.trainer.trainer import Trainer
from concord.sim.machines import trainer_scoreboard
from concord.sim.machines.trainer_scoreboard import compared, explained
from concord.sim.stimulus.trainer_damage import damaged
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import SERVER_WORDS, random_program
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import TrainerError, TrainerOp


class Faulty(Trainer):
    """A trainer that does something wrong behind its first `measure`."""

    fault = staticmethod(lambda core: None)
    measured = False

    def _step(self):
        yield from super()._step()
        if self._decoded[self.address].op == TrainerOp.MEASURE and not self.measured:
            self.measured = True
            self.fault(self.core)

    def close(self):
        """Nothing is held."""


def faulty(fault=Faulty.fault) -> Faulty:
    found = Faulty(SMALL, np.zeros((SERVER_WORDS, LANES), np.uint8))
    found.fault = fault
    return found


def flip_chip(core):
    core.chip[17, 3] ^= 1


def lose_a_bit(core):
    core.accumulators[5, 16] ^= 1 << 40


def raise_an_exponent(core):
    core.exponents[7].now += 1


PROGRAM = next(
    made
    for made in (random_program(np.random.default_rng(seed), 4) for seed in range(100))
    if made.error == TrainerError.NONE and "measure" in trainer_scoreboard.disassemble(made.words)
)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (flip_chip, "word 17, lane 3 of CHIP as stored is"),
        (lose_a_bit, "lane 0 of ACCUMULATORS as stored is"),
        (raise_an_exponent, "word 0, lane 7 of EXPONENTS as stored is"),
    ],
)
def test_the_first_difference_is_named(fault, text, monkeypatch):
    assert compared(PROGRAM, faulty(), faulty()) == ("", TrainerError.NONE)
    assert text in compared(PROGRAM, faulty(), faulty(fault))[0]
    monkeypatch.setattr(trainer_scoreboard, "empty_trainers", lambda: (faulty(), faulty(fault)))
    found = explained(PROGRAM)
    assert found.startswith("behind `measure ")
    assert found.endswith("end\n")
    assert text in found


def test_errors_and_registers_are_compared():
    early = replace(PROGRAM, words=[*PROGRAM.words[:-1], 0])
    one, other = (trainer_scoreboard.play(made, faulty()) for made in (PROGRAM, early))
    assert "golden ends with no error, the other one with ILLEGAL at" in trainer_scoreboard.difference(one, other)
    wrong = replace(one, registers=one.registers | {"R3": 77})
    assert "register R3 is" in trainer_scoreboard.difference(one, wrong)


def test_damaged_programs_end_soon():
    errors = Counter()
    for seed in range(25):
        rng = np.random.default_rng(seed)
        made = damaged(rng, random_program(rng, 3))
        golden = made.started()
        assert (golden.run(), golden.address) == (made.error, made.address)
        errors[made.error] += 1
    assert len(errors) >= 4, errors
