"""Weights behind their quantiser: integers with a gradient, and what one of them is worth.

Source: S0 (WRPN, adjusted start), S0.c; DoReFa-Net (Zhou et al., 2016); learned step size (Esser et al., 2020).
"""

import numpy as np
import torch
from concord.train import ptq
from concord.train.lib.methods import Recipe, Start, WeightTraining
from concord.train.lib.straight_through import passed
from concord.train.ptq.grid import Grid
from torch import nn
from torch.autograd import Function

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
        unit:   float64[rows], the same before batch normalisation: there, one learning rate suits every row. None is 0.
        change: float32[rows]: gain = scale * (1 + change), so that one learning rate suits scales of any size.
    """

    def __init__(self, codes, scales, grid: Grid, fraction, fold):
        super().__init__()
        self.grid = grid
        scales = np.array(scales, np.float64)
        self.register_buffer("scale", torch.from_numpy(scales))
        self.register_buffer("unit", torch.from_numpy(np.where(scales == 0, 1.0, scales / fold)))
        self.change = nn.Parameter(torch.zeros(len(scales)))
        self.weight = nn.Parameter(self.begin(codes, fraction).float())

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The integers, float32[rows, columns], and the gain, float64[rows]."""
        return Rows.apply(self.weight, self.change, self)

    def quantised(self) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """As of `forward`, without a record of gradients, and what `back` needs."""
        grid, grown = self.grid, 1 + self.change.detach().double()
        per_weight = self.per_weight(grown)
        steps = self.bent() * per_weight
        if grid.step == 1:
            integers = steps.round()
        else:
            integers = ((steps - grid.least) / grid.step).round_().mul_(grid.step).add_(grid.least)
        return integers.clamp_(grid.lowest, grid.highest), self.scale * grown, (steps, grown, per_weight)

    def back(self, of_integers, of_gain, kept: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of `weight`, which passes inside the range, and of `change`."""
        steps, grown, per_weight = kept
        of_steps = passed(of_integers, steps, self.grid.lowest, self.grid.highest)
        of_change = self.of_change(of_gain * self.scale, of_steps, steps, grown)
        return self.of_weight(of_steps * per_weight), of_change.float()

    def enlarge(self, factor: torch.Tensor):
        """Let a step be worth factor[rows] times as much."""
        self.scale.mul_(factor)
        self.unit.mul_(factor)

    def begin(self, codes, fraction) -> torch.Tensor:
        """The weights whose integers are `codes`."""
        raise NotImplementedError

    def per_weight(self, grown: torch.Tensor) -> float | torch.Tensor:
        """Steps of one weight, for each row a float32[rows, 1] or for all.

        Args:
            grown: float64[rows], 1 + change.
        """
        raise NotImplementedError

    def bent(self) -> torch.Tensor:
        """The weights, as far as they are not in proportion to their steps."""
        return self.weight.detach()

    def of_weight(self, of_bent) -> torch.Tensor:
        """The gradient of `weight`."""
        return of_bent

    def of_change(self, of_gain, of_steps, steps, grown) -> torch.Tensor:
        """The gradient of `change`, float64[rows], by those of the gain (times scale) and of what is rounded."""
        return of_gain


class Rows(Function):
    """`Weights.quantised` with its gradients; the parameters are arguments so that PyTorch asks for theirs."""

    @staticmethod
    def forward(ctx, weight, change, kind: Weights):
        integers, gain, ctx.kept = kind.quantised()
        ctx.kind = kind
        return integers, gain

    @staticmethod
    def backward(ctx, of_integers, of_gain):
        return *ctx.kind.back(of_integers, of_gain, ctx.kept), None


class Wrpn(Weights):
    """Weights in shares of their range: n = clip(round(w * 2**(bits - 1)))."""

    def begin(self, codes, fraction):
        self.half = self.grid.highest + 1.0
        return torch.from_numpy((codes + fraction) / self.half)

    def per_weight(self, grown):
        return self.half


class Uniform(Weights):
    """Weights in real units, on the grid of the start: n = clip(round(w / unit))."""

    def begin(self, codes, fraction):
        return torch.from_numpy((codes + fraction) * self.unit.numpy()[:, None])

    def per_weight(self, grown):
        return self.unit.reciprocal().float()[:, None]


class LearnedStep(Uniform):
    """Weights in real units on a grid whose step is learned: n = clip(round(w / step)), step = unit * (1 + change).

    What a weight is worth moves with the step by n - w / step inside the range, by n outside. The step moves by its
    own gradient over sqrt(columns * highest), as the method has it.
    """

    def per_weight(self, grown):
        return (self.unit * grown).reciprocal_().float()[:, None]

    def of_change(self, of_gain, of_steps, steps, grown):
        apart = self.grid.step  # of neighbours, in units
        damping = (steps.shape[1] * self.grid.highest / apart) ** -0.5 / apart**2
        return (of_gain - (of_steps * steps).sum(1) / grown) * damping / self.unit.square()


class DoReFa(Weights):
    """Weights behind a tanh: n is odd, round to (2**bits - 1) * tanh(w) / normaliser; the normaliser stays."""

    def begin(self, codes, fraction):
        self.most = self.grid.highest
        self.register_buffer("normaliser", torch.tensor(np.tanh(1.0)))
        share = np.clip((codes + fraction) / self.most, -1, 1)
        return torch.from_numpy(np.arctanh(share * self.normaliser.item()))

    def per_weight(self, grown):
        return self.most / self.normaliser.item()

    def bent(self):
        return torch.tanh(self.weight.detach())

    def of_weight(self, of_bent):
        return of_bent * (1 - self.bent().square())


KINDS = {
    WeightTraining.WRPN: Wrpn, WeightTraining.UNIFORM: Uniform, WeightTraining.LSQ: LearnedStep,
    WeightTraining.LSQ_ODD: LearnedStep, WeightTraining.DOREFA: DoReFa}


def grid_of(method: WeightTraining, bits: int, symmetric: bool) -> Grid:
    """The integers of a width."""
    half = 1 << bits - 1
    return Grid.odd(bits) if method.odd else Grid(symmetric - half, half - 1)


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
    grid = grid_of(recipe.weights, bits, recipe.symmetric[0])
    fold = np.broadcast_to(np.asarray(fold, np.float64), len(rows))
    fold = np.where(fold == 0, 1.0, fold)
    if recipe.start is Start.FP32:
        scales = fold / (grid.highest + 2 - grid.step)
        worth = np.clip(rows / scales[:, None], grid.lowest, grid.highest)
        return kind(grid.nearest(worth), scales, grid, worth - grid.nearest(worth), fold)
    parts = np.arange(len(rows)) // (recipe.methods.rows or len(rows))
    codes, scales = ptq.weights(rows, grid, recipe.methods.weights, parts)
    worth = np.divide(rows, scales[:, None], out=np.zeros_like(rows), where=scales[:, None] != 0)
    limit = NEARLY_HALF * grid.step if recipe.unrounded else 0.0
    return kind(codes, scales, grid, np.clip(worth - codes, -limit, limit), fold)
