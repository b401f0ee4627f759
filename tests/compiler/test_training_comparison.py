"""A machine that leaves another memory than golden: the first wrong number is named."""

from functools import partial

import numpy as np
import pytest
from concord.compiler.training.comparison import ComparedSession, TrainingDiffers
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu
from concord.golden.lazy.tensor_training import Rates
from concord.golden.trainer.trainer import Trainer
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.config import TrainerConfig
from concord.spec.trainer.instructions import TrainerError

LAYERS = (Conv(1, 4, 3, 1, 1), Relu(), MaxPool(2, 2), Dense(36, 5))
SHAPE = (1, 6, 6)
BATCH = 3


class Faulty(Trainer):
    """A trainer that changes a number of server memory behind a program, or stops."""

    def __init__(self, config, server, run, fault):
        super().__init__(config, server)
        self.run_, self.fault, self.runs = run, fault, 0

    def run(self, first=0, second=0):
        found = super().run(first, second)
        self.runs += 1
        if self.runs == self.run_:
            found = self.fault(self.server, second) or found
        return found


def trained(run, fault) -> ComparedSession:
    """A session that has had two steps."""
    rng = np.random.default_rng(0)
    shapes = {
        f"{name}.{part}": shape
        for name, layer in (("0", LAYERS[0]), ("3", LAYERS[3]))
        for part, shape in layer.shapes.items()
    }
    begun = {name: initial_parameters(rng.normal(size=shape), LazyFormat()) for name, shape in shapes.items()}
    session = ComparedSession(
        LAYERS,
        SHAPE,
        TrainerConfig(),
        Rates(learning_rate=0.1, momentum=0.5),
        begun,
        batches=[BATCH],
        machine=partial(Faulty, run=run, fault=fault),
    )
    for _ in range(2):
        session.step(to_training_tensor(rng.normal(size=(BATCH, *SHAPE)), Width.ACTIVATION), rng.integers(0, 5, BATCH))
    return session


def at(find, plane=0, lane=0):
    """A fault: a bit of a word that is found in the map of memory."""

    def fault(server, second):
        server[find(MEMORY_MAP, second) + plane, lane] ^= 1

    return fault


RIGHT = trained(0, None)
MEMORY_MAP = RIGHT.programs[BATCH].memory_map


def output(memory_map, _):
    return [*memory_map.values.values()][-1].offset + 1  # sample 1


def gradient(memory_map, _):
    return [*memory_map.gradients.values()][-1].offset + 9 + 4  # sample 1, row 1, column 1


def weight(memory_map, second):
    return second + memory_map.records["3"].weight + 2  # the first tap, output 2


@pytest.mark.parametrize(
    ("run", "fault", "text"),
    [
        (1, at(output, lane=4), "step 1, forward: the output of layer '3', element [1, 4, 0, 0], is "),
        (3, at(output, lane=4), "step 2, forward: the output of layer '3', element [1, 4, 0, 0], is "),
        (2, at(gradient, lane=3), "the gradient of the output of layer '0', element [1, 3, 1, 1], is "),
        (4, at(weight, lane=1), "step 2, backward: '3.weight', element [2, 9], is "),
        (2, at(lambda found, _: found.numbers // 16), "the exponent of the gradient of the output of layer '0' is "),
        (
            2,
            lambda server, _: server.fill(0),
            "the exponent of the input is 2 on golden and -126 on the machine; 1 of 1 ",
        ),
        (2, lambda *_: TrainerError.RANGE, "step 1, backward: the trainer stopped at instruction "),
    ],
)
def test_the_first_wrong_number_is_named(run, fault, text):
    with pytest.raises(TrainingDiffers) as found:
        trained(run, fault)
    assert text in str(found.value), str(found.value)


def test_what_was_wrong_can_be_run_again():
    with pytest.raises(TrainingDiffers) as found:
        trained(4, at(weight, lane=1))
    one = found.value
    again = Trainer(RIGHT.config, one.memory)
    one.session.write_rates(again)
    again.load(*one.programs)
    again.run(*one.session.copies)
    assert np.flatnonzero((again.server != one.session.memory).any(1)).tolist() == one.wrong.tolist()
    np.testing.assert_array_equal(again.server, RIGHT.memory)
