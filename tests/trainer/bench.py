"""A trainer with tensors in its on-chip memory, and a program that is written line by line."""

from dataclasses import replace

import numpy as np
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.trainer.memory import Seen, matrix_of, read_parts, words_of, write_parts
from concord.golden.trainer.trainer import Trainer
from concord.spec.trainer.config import NONE, TrainerConfig
from concord.spec.trainer.instructions import MeasureKind, TrainerError, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView


class Bench:
    """Tensors lie one behind the other from word 0 on, each from a multiple of 16."""

    def __init__(self, words: int = 8192, seed: int = 0):
        self.trainer = Trainer(TrainerConfig(words=words), np.zeros((8192, 16), np.uint8))
        self.core, self.next, self.views, self.used = self.trainer.core, 0, 0, 0
        self.program: list[int] = []
        self.exponents: dict[int, int] = {}
        self.rng = np.random.default_rng(seed)

    def room(self, rows: int, columns: int, planes: int) -> TrainerView:
        """A view of a matrix that has an address and no numbers yet."""
        blocks, tall = -(-columns // 16), rows + -rows % 16
        view = TrainerView(
            planes=planes, offset=self.next, plane=blocks * tall, n0=rows, s0=1, blocks=blocks, block=tall
        )
        self.next += planes * blocks * tall
        assert self.next <= len(self.core.chip)
        return view

    def put(self, matrix: np.ndarray, planes: int) -> TrainerView:
        """A view of a matrix int64[rows, columns]."""
        view = self.room(*matrix.shape, planes)
        write_parts(self.core.chip, Seen(view, 0), words_of(matrix, planes))
        return view

    def get(self, view: TrainerView, columns: int) -> np.ndarray:
        """The matrix that a view sees."""
        return matrix_of(read_parts(self.core.chip, Seen(view, 0)), columns)

    def view(self, view: TrainerView | None) -> int:
        """The number of a view that the program writes here; NONE for None."""
        if view is None:
            return NONE
        self.views += 1
        self.program += view.tensor(self.views % NONE).words
        return self.views % NONE

    def exponent(self, value: int | None = None) -> int:
        """The number of an exponent that begins with a value, or with any guess."""
        self.used += 1
        self.exponents[self.used] = int(self.rng.integers(-60, 60)) if value is None else value
        return self.used

    def tensor(self, rows: int, columns: int, planes: int) -> TrainingTensor:
        """A random tensor of few or many bits."""
        bits = self.rng.integers(1, 8 * planes)
        values = self.rng.integers(-(1 << bits), 1 << bits, (rows, columns))
        return TrainingTensor(values, np.full((1, 1), self.rng.integers(-20, 20)), 8 * planes)

    def do(self, op: TrainerOp, **fields: int):
        """Append an instruction."""
        self.program += instruction(op, **fields).words

    def repeated(self, begin: int, kind: MeasureKind = MeasureKind.TENSOR, **fields: int):
        """Append `measure` and `repeat` of what began at an address."""
        self.do(TrainerOp.MEASURE, kind=kind, **fields)
        self.do(TrainerOp.REPEAT, target=begin)

    def run(self) -> TrainerError:
        """Run the program to its end."""
        self.do(TrainerOp.END)
        self.load()
        return self.trainer.run()

    def load(self):
        """Load the program and set exponents."""
        self.trainer.load(self.program)
        for number, value in self.exponents.items():
            self.core.exponents[number].set(value)


def image(view: TrainerView, shape: tuple[int, int, int], **changes: int) -> TrainerView:
    """A view of rows (sample, row, column) as images of a shape [samples, rows, columns]."""
    samples, rows, columns = shape
    return replace(view, n0=samples, s0=rows * columns, n1=rows, pitch1=columns, n2=columns, pitch2=1, **changes)


def to_rows(values: np.ndarray) -> np.ndarray:
    """Images [samples, channels, rows, columns] as a matrix whose rows are pixels."""
    return values.transpose(0, 2, 3, 1).reshape(-1, values.shape[1])


def to_images(matrix: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The images of a shape [samples, channels, rows, columns] of a matrix of pixels."""
    samples, channels, rows, columns = shape
    return matrix.reshape(samples, rows, columns, channels).transpose(0, 3, 1, 2)


def tapped(weight: np.ndarray) -> np.ndarray:
    """Weights [outputs, channels, size, size] as matrices of taps and channel blocks over each other, [rows, 16]."""
    outputs, channels, size, _ = weight.shape
    padded = np.pad(weight, ((0, -outputs % 16), (0, -channels % 16), (0, 0), (0, 0)))
    blocks = padded.reshape(len(padded), -1, 16, size, size)
    return blocks.transpose(3, 4, 1, 0, 2).reshape(-1, 16)
