"""Recurrent layers of training in block floating point: golden's own arithmetic, over processes."""

import numpy as np
import torch
from concord.golden.lazy import tensor, tensor_layers, tensor_network
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_sequence import Tape, unrolled
from concord.spec.numbers.lazy import Width
from concord.train.bfp.parallel import Alone
from concord.train.bfp.tensor import ExactTensor, exact


class Recurrent:
    """Recurrent layers over each other, from a sequence to the last hidden vector.

    Args:
        layer:      Layer of `golden.lazy.tensor_network`.
        name:       Name of the layer, with which the names of its parameters begin.
        parameters: Parameters by name, each with `mantissas` and `lsb`.
        group:      Processes that share each training tensor.
    """

    def __init__(self, layer: tensor_network.Recurrent, name: str, parameters: dict, group=Alone):
        self.layer, self.name, self.group, self.found = layer, name, group, {}
        self.parameters = {f"{name}.{part}": parameters[f"{name}.{part}"] for part in layer.shapes}
        self.tape, self.last = None, None

    def forward(self, x: ExactTensor) -> ExactTensor:
        whole = {name: tensor_layers.whole(kept.mantissas.to(torch.int64).numpy(), kept.lsb + Width.PARAMETER - 1,
                                           Width.PARAMETER) for name, kept in self.parameters.items()}
        self.tape = Tape(whole, self._requantized, self._total)
        lengths = np.full(len(x.values), x.shape[1]) if x.lengths is None else x.lengths.numpy()
        self.last = unrolled(self.tape, self.layer.cell, self.layer.hidden, f"{self.name}.", x.golden(), lengths)
        return exact(self.last.tensor, torch.empty(0))

    def backward(self, gradient: ExactTensor) -> None:
        self.tape.backward(self.last, gradient.golden())
        self.found = {name: exact(made, torch.empty(0)) for name, made in self.tape.gradients.items()}
        self.tape = self.last = None

    def _requantized(self, sums: np.ndarray, lsb: int, bits: int) -> TrainingTensor:
        """Sums under the exponent of the largest one of all processes."""
        top = self.group.largest(int(np.abs(sums).max(initial=0)))
        made = tensor.requantize(sums, lsb, bits, exponent=tensor.measure(np.int64(top), lsb).item())
        return tensor_layers.whole(made.mantissas, int(made.exponent), bits)

    def _total(self, sums: np.ndarray) -> np.ndarray:
        return self.group.total(torch.from_numpy(sums)).numpy()
