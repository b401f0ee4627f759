"""Random programs: all of them end as they were made, and they reach every instruction and every error of one core."""

from collections import Counter

import numpy as np
import pytest
from concord.golden.trainer import copying, pooling, product, update
from concord.golden.trainer.memory import write_parts
from concord.sim.stimulus.trainer_programs import random_program
from concord.spec.trainer.instructions import TrainerError, TrainerOp, decode
from concord.spec.trainer.text import assemble, disassemble


@pytest.fixture
def _written_once(monkeypatch):
    """Views that write a word twice are errors: which value stays is not defined."""

    def checked(words, seen, parts):
        every = (seen.offsets + seen.rows()[0]).ravel()
        assert len(np.unique(every)) == len(every)
        write_parts(words, seen, parts)

    for module in copying, pooling, product, update:
        monkeypatch.setattr(module, "write_parts", checked)


@pytest.mark.usefixtures("_written_once")
def test_random_programs():
    ops, errors, repeats = Counter(), Counter(), 0
    for seed in range(40):
        made = random_program(np.random.default_rng(seed), parts=8)
        one = made.started()
        assert (one.run(), one.address) == (made.error, made.address)
        assert assemble(disassemble(made.words)) == made.words
        errors[made.error] += 1
        repeats += one.repeats
        address = 0
        while address < len(made.words):
            found = decode(made.words, address)
            assert found is not None
            ops[found.op] += 1
            address += len(found.words)
    assert set(ops) >= set(TrainerOp) - {TrainerOp.BARRIER, TrainerOp.SUM}
    assert set(errors) >= {TrainerError.NONE, TrainerError.ILLEGAL, TrainerError.SIZE, TrainerError.RANGE}
    assert repeats > 40
