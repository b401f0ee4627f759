"""Weights after their quantiser: integers with a gradient, and what one of them is worth.

Source: S0, adjusted start.
"""

import numpy as np
import torch
from concord.net.ops.operator import Operator
from concord.net.ops.weighted import NodeLinear
from concord.net.quantize.integers import Rows
from concord.net.quantize.recipe import Recipe, Start
from concord.net.quantize.weights import Grid
from concord.train.lib.straight_through import passed
from torch import nn
from torch.autograd import Function

#: Largest fraction that is kept of what rounding cuts off.
NEARLY_HALF = 0.499


class TrainedWeights(nn.Module):
    """Integers n and their real value `gain` for each row: a layer computes with gain * n.

    A method of training is a class below this one. It says how a weight becomes an integer (`begin`, `per_weight` and
    `bent`), and how gradients come back (`of_weight` and `of_change`).

    Args:
        codes:    Integers[rows, columns], from which training starts.
        scales:   float64[rows], the real value of one step of the codes.
        grid:     The integers that weights may become.
        fraction: Real[rows, columns] within +-1/2, the part of the weights that rounding to codes cuts off.
        fold:     float64[rows], the factor by which batch normalisation multiplied each row.

    Attributes:
        weight:        The trained parameter, from which the quantiser makes integers.
        scale:         float64[rows], the scale from which training starts.
        unit:          float64[rows], the scale before batch normalisation, for which one learning rate suits every row.
            It is never 0.
        change:        float32[rows]: gain = scale * (1 + change), so that one learning rate suits scales of any size.
        in_real_units: Whether `weight` stays as it is where a step is enlarged, since it is in real units.
    """

    in_real_units = False

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
        return TrainedRows.apply(self.weight, self.change, self)

    def quantized(self) -> tuple[torch.Tensor, torch.Tensor, tuple]:
        """The results of `forward`, without a record of gradients, and what `back` needs."""
        grid, grown = self.grid, 1 + self.change.detach().double()
        per_weight = self.per_weight(grown)
        steps = self.bent() * per_weight
        if grid.step == 1:
            integers = steps.round()
        else:
            integers = ((steps - grid.least) / grid.step).round_().mul_(grid.step).add_(grid.least)
        return integers.clamp_(grid.lowest, grid.highest), self.scale * grown, (steps, grown, per_weight)

    def back(self, of_integers, of_gain, kept: tuple) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of `weight`, which are 0 outside the range of the integers, and of `change`."""
        steps, grown, per_weight = kept
        of_steps = passed(of_integers, steps, self.grid.lowest, self.grid.highest)
        of_change = self.of_change(of_gain * self.scale, of_steps, steps, grown)
        return self.of_weight(of_steps * per_weight), of_change.float()

    @torch.no_grad()
    def enlarge(self, factor: torch.Tensor):
        """Let a step be worth factor[rows] times as much, where the real weights stay and their integers shrink."""
        self.scale.mul_(factor)
        self.unit.mul_(factor)

    @torch.no_grad()
    def clip(self, limit: torch.Tensor):
        """Replace weights of more than limit[rows] steps by the limit, where a step stays worth the same."""
        bent = self.bent()
        steps = (bent * self.per_weight(1 + self.change.double())).abs()
        share = (limit[:, None] / steps.clamp(min=1e-30)).clamp(max=1.0)
        self.weight.copy_(self.unbent((bent * share).to(bent.dtype)))

    def begin(self, codes, fraction) -> torch.Tensor:
        """The weights whose integers are `codes`."""
        raise NotImplementedError

    def per_weight(self, grown: torch.Tensor) -> float | torch.Tensor:
        """Number of steps that one unit of `weight` makes: float32[rows, 1], or one number for all rows.

        Args:
            grown: float64[rows], the value of 1 + change.
        """
        raise NotImplementedError

    def bent(self) -> torch.Tensor:
        """The weights after the curve that they pass before they are scaled to steps."""
        return self.weight.detach()

    def unbent(self, bent: torch.Tensor) -> torch.Tensor:
        """The weights that the curve takes to `bent`."""
        return bent

    def of_weight(self, of_bent) -> torch.Tensor:
        """The gradient of `weight`, from that of `bent`."""
        return of_bent

    def of_change(self, of_gain, of_steps, steps, grown) -> torch.Tensor:
        """The gradient of `change`, float64[rows].

        Args:
            of_gain:  float64[rows], the gradient of the gain, times `scale`.
            of_steps: float32[rows, columns], the gradient of `steps`.
            steps:    float32[rows, columns], the weights in steps, before they are rounded.
            grown:    float64[rows], the value of 1 + change.
        """
        return of_gain


class TrainedRows(Function):
    """`TrainedWeights.quantized` with its gradients; the parameters are arguments so that PyTorch asks for theirs."""

    @staticmethod
    def forward(ctx, weight, change, kind: TrainedWeights):
        integers, gain, ctx.kept = kind.quantized()
        ctx.kind = kind
        return integers, gain

    @staticmethod
    def backward(ctx, of_integers, of_gain):
        return *ctx.kind.back(of_integers, of_gain, ctx.kept), None


def keep_structure(op: Operator, weight: nn.Parameter, *others: nn.Parameter):
    """Keep the zeros of the weights of a graph from training, or all parameters where they are the graph's own."""
    if isinstance(op, NodeLinear) and op.constant:
        for one in (weight, *others):
            one.requires_grad_(False)
    elif isinstance(op, NodeLinear):
        zeros = torch.from_numpy(op.weight == 0)
        weight.register_hook(lambda gradient: gradient.masked_fill(zeros, 0))


def weights(real: np.ndarray, rows: Rows, recipe: Recipe, fold: np.ndarray | float = 1.0) -> TrainedWeights:
    """Weights that start from the integers of a layer.

    Args:
        real:   Real[rows, columns], the weights in FP32.
        rows:   Their integers, of post-training quantisation on the grid of their training, or from FP32.
        recipe: Method of training.
        fold:   Factor by which batch normalisation multiplied each row.
    """
    codes, scales, grid = rows.weights, rows.gain, rows.grid
    fold = np.broadcast_to(np.asarray(fold, np.float64), len(real))
    fold = np.where(fold == 0, 1.0, fold)
    real = np.asarray(real, np.float64)
    worth = np.divide(real, scales[:, None], out=np.zeros_like(real), where=scales[:, None] != 0)
    if recipe.start is Start.FP32:
        fraction = np.clip(worth, grid.lowest, grid.highest) - codes
    else:
        limit = NEARLY_HALF * grid.step if recipe.unrounded else 0.0
        fraction = np.clip(worth - codes, -limit, limit)
    return recipe.weights.load()(codes, scales, grid, fraction, fold)
