"""Weights behind their quantiser: integers with a gradient, and what one of them is worth.

Source: S0 (WRPN, adjusted start), S0.c; DoReFa-Net (Zhou et al., 2016); learned step size (Esser et al., 2020).
"""

import numpy as np
import torch
from torch import nn

from train import ptq
from train.methods import Recipe, Start, WeightTraining
from train.ptq.grid import Grid
from train.straight_through import Gain, Round

#: Largest fraction that is kept of what rounding cuts off.
NEARLY_HALF = 0.499


class Weights(nn.Module):
    """Integers n and their real value `gain` for each row: a layer computes with gain * n.

    Args:
        codes:    Integers[rows, columns], from which training starts.
        scales:   float64[rows].
        grid:     The integers.
        fraction: Real[rows, columns] within +-1/2, what rounding cuts off.
        fold:     float64[rows], by what batch normalisation multiplied rows.

    Attributes:
        weight: What is trained, behind the quantiser.
        scale:  float64[rows], of the start.
        change: float32[rows]: gain = scale * (1 + change), so that one learning rate suits scales of any size.
    """

    def __init__(self, codes, scales, grid: Grid, fraction, fold):
        super().__init__()
        self.grid = grid
        self.register_buffer("scale", torch.from_numpy(np.array(scales, np.float64)))
        self.register_buffer("fold", torch.from_numpy(fold))
        self.change = nn.Parameter(torch.zeros(len(scales)))
        self.weight = nn.Parameter(self.begin(codes, fraction).float())

    @staticmethod
    def grid_of(bits: int, symmetric: bool) -> Grid:
        """The integers of a width."""
        half = 1 << bits - 1
        return Grid(symmetric - half, half - 1)

    def begin(self, codes, fraction) -> torch.Tensor:
        """The weights whose integers are `codes`."""
        raise NotImplementedError

    def steps(self) -> torch.Tensor:
        """float32[rows, columns]: what is rounded to integers."""
        raise NotImplementedError

    def integers(self) -> torch.Tensor:
        """float32[rows, columns]."""
        grid = self.grid
        if grid.step == 1:
            return Round.apply(self.steps(), grid.lowest, grid.highest)
        ends = ((end - grid.least) / grid.step for end in (grid.lowest, grid.highest))
        return Round.apply((self.steps() - grid.least) / grid.step, *ends) * grid.step + grid.least

    @property
    def gain(self) -> torch.Tensor:
        """float64[rows]."""
        return Gain.apply(self.change, self.scale, 1.0)

    @property
    def unit(self) -> torch.Tensor:
        """float64[rows], the scale before batch normalisation: there, one learning rate suits every row. None is 0."""
        return torch.where(self.scale == 0, 1.0, self.scale / self.fold)


class Wrpn(Weights):
    """Weights in shares of their range: n = clip(round(w * 2**(bits - 1)))."""

    def begin(self, codes, fraction):
        self.half = self.grid.highest + 1.0
        return torch.from_numpy((codes + fraction) / self.half)

    def steps(self):
        return self.weight * self.half


class Uniform(Weights):
    """Weights in real units, on the grid of the start: n = clip(round(w / unit))."""

    def begin(self, codes, fraction):
        return torch.from_numpy((codes + fraction) * self.unit.numpy()[:, None])

    def steps(self):
        return self.weight / self.unit.float()[:, None]


class LearnedStep(Uniform):
    """Weights in real units on a grid whose step is learned: n = clip(round(w / step)), step = unit * (1 + change).

    What a weight is worth moves with the step by n - w / step inside the range, by n outside.
    """

    def steps(self):
        return self.weight / self._moved(self.unit).float()[:, None]

    @property
    def gain(self):
        return self._moved(self.scale)

    def _moved(self, start):
        """The step moves by its own gradient over sqrt(columns * highest), as the method has it."""
        grid = self.grid
        damping = (self.weight.shape[1] * grid.highest / grid.step) ** -0.5
        return Gain.apply(self.change, start, damping / (grid.step * self.unit).square())


class LearnedOddStep(LearnedStep):
    """The same on odd integers: no zero, but as many levels as the bits have."""

    @staticmethod
    def grid_of(bits, symmetric):
        return Grid.odd(bits)


class DoReFa(Weights):
    """Weights behind a tanh: n is odd, round to (2**bits - 1) * tanh(w) / normaliser; the normaliser stays."""

    @staticmethod
    def grid_of(bits, symmetric):
        return Grid.odd(bits)

    def begin(self, codes, fraction):
        self.most = self.grid.highest
        self.register_buffer("normaliser", torch.tensor(np.tanh(1.0)))
        share = np.clip((codes + fraction) / self.most, -1, 1)
        return torch.from_numpy(np.arctanh(share * self.normaliser.item()))

    def steps(self):
        return torch.tanh(self.weight) / self.normaliser.float() * self.most


KINDS = {
    WeightTraining.WRPN: Wrpn, WeightTraining.UNIFORM: Uniform, WeightTraining.LSQ: LearnedStep,
    WeightTraining.LSQ_ODD: LearnedOddStep, WeightTraining.DOREFA: DoReFa}


def weights(rows: np.ndarray, bits: int, recipe: Recipe, fold: torch.Tensor | float = 1.0) -> Weights:
    """Weights that start from post-training quantisation on the grid of their training, or from FP32.

    Args:
        rows:   float64[rows, columns].
        bits:   Of their integers.
        recipe: For all else.
        fold:   By what batch normalisation multiplied rows: a start from FP32 takes them as they were before.

    Raises:
        ValueError: the method cannot search so many integers.
    """
    kind = KINDS[recipe.weights]
    grid = kind.grid_of(bits, recipe.symmetric[0])
    fold = np.broadcast_to(np.asarray(fold, np.float64), len(rows))
    fold = np.where(fold == 0, 1.0, fold)
    if recipe.start is Start.FP32:
        scales = fold / (grid.highest + 2 - grid.step)
        worth = np.clip(rows / scales[:, None], grid.lowest, grid.highest)
        return kind(grid.nearest(worth), scales, grid, worth - grid.nearest(worth), fold)
    parts = np.zeros(len(rows), int) if recipe.methods.tensor else None
    codes, scales = ptq.weights(rows, grid, recipe.methods.weights, parts)
    worth = np.divide(rows, scales[:, None], out=np.zeros_like(rows), where=scales[:, None] != 0)
    limit = NEARLY_HALF * grid.step if recipe.unrounded else 0.0
    return kind(codes, scales, grid, np.clip(worth - codes, -limit, limit), fold)
