"""Steps of training on several cores: the bits of golden.lazy, and no race for a word of server memory."""

from functools import partial
from itertools import product

import numpy as np
import pytest
from concord.compiler.training.comparison import ComparedSession, TrainingDiffers
from concord.compiler.training.costs import costs, explained, step_bytes, step_cycles
from concord.compiler.training.emitter import Span
from concord.compiler.training.program import compile_training
from concord.compiler.training.session import TrainingSession
from concord.compiler.training.shares import boxes, share
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import initial_parameters
from concord.golden.lazy.tensor import to_training_tensor
from concord.golden.lazy.tensor_network import Conv, Dense, MaxPool, Relu, Residual
from concord.golden.lazy.tensor_training import Rates
from concord.golden.trainer.cores import TrainerCores
from concord.golden.trainer.trainer import Trainer
from concord.spec.numbers.lazy import LazyFormat, Width
from concord.spec.trainer.config import LANES, TrainerConfig
from concord.spec.trainer.instructions import TrainerError, TrainerOp, instruction

RATES = Rates(learning_rate=0.05, momentum=0.9)
SMALL = TrainerConfig(words=1024, accumulator_rows=64)

#: Shape, layers, a core, sizes of batches and numbers of cores.
CASES = {
    "weights by blocks of channels, sums of groups": (
        (100,), (Dense(100, 34), Relu(), Dense(34, 30)), SMALL, [9], [4, 2]),
    "a share of some samples, and none": (
        (1, 9, 7), (Conv(1, 18, 3, 1, 1), Relu(), MaxPool(2, 2), Dense(18 * 12, 5)), TrainerConfig(), [5, 2, 1], [4]),
    "sums of images, rows of kernels": (
        (20, 7, 8),
        (Conv(20, 18, 3, 2, 1), Relu(), Conv(18, 17, 2, 1, 1), MaxPool(2, 3), Relu(), Dense(68, 3)),
        SMALL, [3], [3]),
    "sums of branches": (
        (3, 6, 6),
        (Conv(3, 8, 2, 1, 1), Relu(), Residual((Relu(), Conv(8, 8, 3, 1, 1), Relu()), (Conv(8, 8, 1),)), Relu(),
         Dense(392, 4)),
        TrainerConfig(words=2048), [4], [2]),
    "patches of strips, made again": (
        (1, 40, 24), (Conv(1, 17, 3, 2, 1), Relu(), MaxPool(2, 2), Dense(17 * 60, 3)),
        TrainerConfig(words=512, accumulator_rows=256), [4], [3]),
    "more cores than rows of weights": ((20,), (Dense(20, 3),), TrainerConfig(), [9, 9, 9], [8]),
    "groups of the largest share": (
        (48,), (Dense(48, 30),), TrainerConfig(words=512, accumulator_rows=64), [65], [4]),
}  # fmt: skip


class WatchedMemory:
    """Server memory as one core has it, which notes who reads and writes a word between two rendezvous.

    Args:
        words:  uint8[words, 16].
        number: Number of the core.
        seen:   By number of the rendezvous before, masks of the cores that have read and written each word.
    """

    def __init__(self, words: np.ndarray, number: int, seen: dict[int, np.ndarray]):
        self.words, self.number, self.seen, self.met = words, number, seen, 0

    def __len__(self):
        return len(self.words)

    def _note(self, words, written: int):
        masks = self.seen.setdefault(self.met, np.zeros((2, len(self.words)), np.uint8))
        masks[written, words] |= 1 << self.number

    def __getitem__(self, words):
        self._note(words, 0)
        return self.words[words]

    def __setitem__(self, words, values):
        self._note(words, 1)
        self.words[words] = values


class WatchedTrainer(Trainer):
    """A trainer that tells its memory of each rendezvous that waits for stores: a `measure` does not."""

    def _meet(self, i, *arguments):
        met = yield from super()._meet(i, *arguments)
        self.core.server.met += i.op != TrainerOp.MEASURE
        return met


class WatchedCores(TrainerCores):
    """Trainers with rubbish in their memories, whose programs must not race for a word of server memory."""

    def __init__(self, config, server, cores):
        super().__init__(config, server, cores)
        self.seen, rng = {}, np.random.default_rng(cores)
        self.trainers = [WatchedTrainer(config, WatchedMemory(server, k, self.seen), k) for k in range(cores)]
        for trainer in self.trainers:
            trainer.core.chip[:] = rng.integers(0, 256, trainer.core.chip.shape)
            trainer.core.accumulators[:] = rng.integers(-1 << 47, 1 << 47, trainer.core.accumulators.shape)

    def run(self, first, second):
        self.seen.clear()
        for trainer in self.trainers:
            trainer.core.server.met = 0
        error = super().run(first, second)
        for read, written in self.seen.values():
            # Core 0 stores the exponents behind a `measure` of all cores, each of which had loaded them before.
            read[: self.trainers[0].config.exponents // LANES] = 0
            touched = read | written
            assert not np.flatnonzero((written > 0) & (touched & touched - 1 > 0)).size, "cores race for a word"
        writers = np.bitwise_or.reduce([written for _, written in self.seen.values()])
        assert not (writers & writers - 1).any(), "two cores write one word"
        return error


def begun(layers):
    """Random parameters by name."""
    rng = np.random.default_rng(0)
    return {
        name: initial_parameters(rng.normal(size=shape) / np.sqrt(np.prod(shape[1:])), LazyFormat())
        for name, shape in tensor_network.shapes(layers).items()
    }


@pytest.mark.parametrize(("case", "cores"), [(name, cores) for name, case in CASES.items() for cores in case[4]])
def test_steps_on_several_cores_end_with_the_bits_of_one(case, cores):
    """Outputs, parameters, momenta, exponents and counts; `test_training` compares one core with golden.lazy."""
    shape, layers, config, sizes, _ = CASES[case]
    rng = np.random.default_rng(1)
    make = partial(TrainingSession, layers, shape, config, RATES, begun(layers), batches=sizes)
    one, several = make(), make(machine=WatchedCores, cores=cores)
    for size in [sizes[0], *sizes]:
        x = to_training_tensor(rng.normal(size=(size, *shape)), Width.ACTIVATION)
        labels = rng.integers(0, 3, size)
        assert one.step(x, labels) == several.step(x, labels)
        made = one.programs[size].memory_map
        same = slice(0, made.old + 2 * made.parameters)
        np.testing.assert_array_equal(one.memory[same], several.memory[same])
    assert one.counts == several.counts
    assert several.trainer.repeats == one.trainer.repeats


@pytest.mark.parametrize(("shape", "layers", "batch", "rows"), [
    ((784,), (Dense(784, 128), Relu(), Dense(128, 64), Relu(), Dense(64, 10)), 256, 0),
    ((1, 28, 28), (Conv(1, 16, 3, 1, 1), Relu(), MaxPool(2, 2), Conv(16, 32, 3, 1, 1), Relu(), MaxPool(2, 2),
                   Dense(1568, 10)), 32, 16 + 9 * 32),
])  # fmt: skip
def test_four_cores_take_less_than_a_third_of_the_cycles(shape, layers, batch, rows):
    """Rows are those that cores add up: each has 12 words in server memory for each core."""
    made = [compile_training(layers, shape, batch, TrainerConfig(), cores) for cores in (1, 2, 4)]
    one, two, four = map(step_cycles, made)
    assert two < 0.52 * one
    assert four < one / 3
    assert step_bytes(made[0]) == sum(work.bytes for work in costs(made[0]))
    assert sum(work.exchange for work in costs(made[2])) == rows * 12 * 4
    assert explained(made[2]).splitlines()[-1].split()[-2] == f"{rows * 12 * 4:,}"


@pytest.mark.parametrize(
    ("counts", "cores", "most"), [*product([(2, 3, 5), (1, 9, 4), (3, 1, 1)], [1, 4, 8], [3, 7, 99])]
)
def test_shares_and_boxes_take_each_row_once(counts, cores, most):
    number, found = np.arange(np.prod(counts)).reshape(counts), []
    for core in range(cores):
        for first, sizes in boxes(share(number.size, core, cores), counts, most):
            assert np.prod(sizes) <= most
            found += number[tuple(slice(a, a + n) for a, n in zip(first, sizes, strict=True))].ravel().tolist()
    assert found == list(range(number.size))
    assert share(10, 3, 4) == Span(8, 2)


def test_what_several_cores_cannot_do_is_refused():
    for cores in (0, 9):
        with pytest.raises(ValueError, match=f"cores = {cores}: programs of a step are made for 1 to 8 cores"):
            compile_training((Dense(20, 5),), (20,), 4, TrainerConfig(), cores)


def test_the_core_that_is_wrong_is_named_and_not_those_that_wait_for_it():
    cores = TrainerCores(TrainerConfig(), np.zeros((16, LANES), np.uint8), 2)
    wait, end = (
        instruction(op, **values).words for op, values in ((TrainerOp.BARRIER, {"cores": 3}), (TrainerOp.END, {}))
    )
    cores.load([*wait, *end], [*wait, 0])
    assert (cores.run(0, 0), cores.address) == (TrainerError.ILLEGAL, 1)
    cores.load([*wait, *end], [0])
    assert (cores.run(0, 0), cores.address, cores.stopped.number) == (TrainerError.ILLEGAL, 0, 1)
    cores.load([*wait, *end], [*wait, *end])
    assert cores.run(0, 0) == TrainerError.NONE


class Wrong(TrainerCores):
    """Cores that write one wrong bit into a word of server memory."""

    word = 0

    def run(self, first: int, second: int) -> TrainerError:
        error = super().run(first, second)
        self.trainers[0].server[self.word, 3] ^= 1
        return error


def test_the_first_wrong_number_is_named_with_its_core():
    """Of 9 samples, core 0 has 5, and core 1 the others."""
    shape, layers, *_ = CASES["weights by blocks of channels, sums of groups"]
    begun = {name: initial_parameters(np.ones(size), LazyFormat())
             for name, size in tensor_network.shapes(layers).items()}
    session = ComparedSession(layers, shape, SMALL, RATES, begun, batches=[9], machine=Wrong, cores=2)
    memory_map = session.programs[9].memory_map
    session.trainer.word = memory_map.values[session.programs[9].graph.y].offset + 5
    with pytest.raises(TrainingDiffers, match=r"step 1, forward: the output of layer '2', element \[5, 3, 0, 0\], is "
                       r"-?\d+ on golden and -?\d+ on the machine, where core 1 writes it; 1 of 270 differ"):
        session.forward(to_training_tensor(np.ones((9, *shape)), Width.ACTIVATION))
