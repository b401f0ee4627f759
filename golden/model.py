"""The quantised model: what training hands to the compiler.

Layers apply in the order of `Model.layers`. A recurrent layer gives a recurrent successor its hidden vector of every
time step; a dense successor sees that of the last step.
"""

from dataclasses import dataclass

import numpy as np

from golden.layers import LSTM, BlockDense, BlockLSTM, Dense, Layer, Unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Where a model comes from.

    Attributes:
        command:         The command that made it.
        method:          How it was trained and quantised, in a sentence.
        seed:            Of every random choice.
        fp32_accuracy:   Share of the test set that the FP32 network classifies correctly.
        qat_accuracy:    The same for the float network under quantisation-aware training, before the lowered phase.
        golden_accuracy: The same for this model in golden arithmetic.
    """

    command: str
    method: str
    seed: int
    fp32_accuracy: float
    qat_accuracy: float
    golden_accuracy: float


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Model:
    """A quantised network.

    Attributes:
        name:             For people.
        data:             Name of its test set, as `golden.dataset` knows it.
        preprocessing:    How raw data become the binary16 input vector, in words.
        classes:          Names of the outputs.
        layers:           In order.
        provenance:       Where it comes from.
        fp32_predictions: uint8[samples], class that the FP32 network gives each sample of the test set, in its order.
        qat_predictions:  uint8[samples], the same for the float network under quantisation-aware training.
    """

    name: str
    data: str
    preprocessing: str
    classes: tuple[str, ...]
    layers: tuple[Layer, ...]
    provenance: Provenance
    fp32_predictions: np.ndarray
    qat_predictions: np.ndarray

    def __post_init__(self):
        if not self.layers:
            raise ValueError(f"model {self.name!r} has no layers; it needs one at least")
        names = [layer.name for layer in self.layers]
        if len(set(names)) < len(names):
            raise ValueError(f"model {self.name!r} has two layers of one name in {', '.join(names)}; rename one")
        for before, after in zip(self.layers, self.layers[1:], strict=False):
            _check_edge(before, after)

    @property
    def recurrent(self) -> bool:
        """Whether an input is a sequence of vectors, not one vector."""
        return isinstance(self.layers[0], LSTM | BlockLSTM)

    @property
    def inputs(self) -> int:
        """Elements of one input vector."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Elements of the output vector."""
        return self.layers[-1].outputs


def _check_edge(before: Layer, after: Layer):
    """Refuse two neighbours that do not fit each other."""
    if isinstance(before, Unknown) or isinstance(after, Unknown):
        return
    if before.outputs != after.inputs:
        raise ValueError(
            f"layer {after.name!r} takes {after.inputs} inputs, but {before.name!r} before it gives {before.outputs}; "
            "make the two sizes equal"
        )
    if isinstance(after, LSTM | BlockLSTM) and isinstance(before, Dense | BlockDense):
        raise ValueError(
            f"recurrent layer {after.name!r} cannot follow dense layer {before.name!r}, which sees one vector and not "
            "a sequence; put recurrent layers first"
        )
