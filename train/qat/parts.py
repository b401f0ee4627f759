"""Parts of the inputs of a layer under training: what each becomes ahead of the codes of all.

Source: paragraph [0113] of the first document.
"""

from dataclasses import replace

import numpy as np
import torch
from concord.net.arithmetic.line import Line
from concord.net.quantize.integers import Rows
from concord.net.quantize.recipe import Recipe
from concord.train.qat.activations import Activations
from torch import nn

#: Smallest change of a scale, which stays above 0.
LEAST = -0.9


class TrainedParts(nn.Module):
    """u = (1 + change) * (scale * x + offset) + shift, with one change and one shift for each part.

    The codes of u have a saturation b and an offset m. In x, a part has the saturation b / (scale * (1 + change)), and
    an offset that follows from m in the same way. So a larger change is a smaller saturation.

    Args:
        line:   What becomes of each channel at the start; neighbours of one line are a part.
        inputs: The codes of u.
        recipe: What is trained: saturations, and offsets unless zeros are put around the inputs.

    Attributes:
        change: float32[parts], the share by which scales have grown.
        shift:  float32[parts], in units of u.
    """

    def __init__(self, line: Line, inputs: Activations, recipe: Recipe):
        super().__init__()
        self.begun = line
        ends = (np.diff(line.scale) != 0) | (np.diff(line.offset) != 0)
        self.part = torch.from_numpy(np.concatenate([[0], np.cumsum(ends)]))
        zeros = torch.zeros(int(self.part[-1]) + 1)
        self.change = nn.Parameter(zeros, requires_grad=inputs.learns_saturation)
        self.shift = nn.Parameter(zeros.clone(), requires_grad=recipe.activations.learns_offset and not inputs.padded)

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """float64[channels] scales and offsets."""
        grown, shift = (1 + self.change.double())[self.part], self.shift.double()[self.part]
        return grown * torch.from_numpy(self.begun.scale), grown * torch.from_numpy(self.begun.offset) + shift

    @torch.no_grad()
    def bound(self):
        """Keep all scales above 0."""
        self.change.clamp_(min=LEAST)

    @torch.no_grad()
    def written(self, rows: Rows) -> Rows:
        """The rows behind what training has made of the parts, whose float weights take the inverse."""
        more = Line(scale=(1 + self.change.double())[self.part].numpy(), offset=self.shift.double()[self.part].numpy())
        op = rows.op.of_scaled(more.inverse.scale, more.inverse.offset)
        return replace(rows, line=self.begun.then(more), narrow=rows.narrow.then(more), op=op)
