"""A multi-layer perceptron trained in block floating point by the lazy update, from nothing to the model file.

The mantissas that training ends with are those of the model: no real number lies between them.

Source: S2.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor_training import Rates
from concord.net.layers.dense import BlockDense
from concord.net.lowering.rounding import binary16
from concord.net.model import Model
from concord.net.ops.weighted import Linear
from concord.spec.numbers.activation import Activation
from concord.spec.numbers.formats import Format
from concord.train.bfp.parameters import UpdateRule
from concord.train.bfp.tensor_network import TensorNetwork, batch, float_network, initial_values, inputs, network
from concord.train.lib import data
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, batches, cross_entropy, fit, reproducible, silent
from concord.train.lib.observer import EpochRecord, Observer

#: Operands of the preset `trainer`: mantissas as training leaves them.
EIGHT_BITS = Format(bits=8, e_min=-11, e_max=4)
BATCH = 50


def layers(sizes: Sequence[int]) -> tuple[tensor_network.Layer, ...]:
    """Dense layers with relu between them."""
    dense = [tensor_network.Dense(i, o) for i, o in zip(sizes, sizes[1:], strict=False)]
    return tuple(layer for one in dense[:-1] for layer in (one, tensor_network.Relu())) + (dense[-1],)


def block_dense(name: str, weight: Parameters, bias: Parameters, weights_format: Format, input_format: Format,
                block: int, activation: Activation) -> BlockDense:
    """A layer of the model with the mantissas of training, under their one exponent.

    The values of the mantissas are those of its float operator, so that a report can tell the loss by quantised
    activations.

    Raises:
        ValueError: the exponent is none of the format, or a bias is not a binary16 number.
    """
    if not weights_format.e_min <= weight.exponent <= weights_format.e_max:
        raise ValueError(f"layer {name!r}: its weights ended with exponent {weight.exponent}, which the format "
                         f"{weights_format.e_min}..{weights_format.e_max} does not have; choose a wider format")
    records, columns = weight.mantissas.shape
    bits = binary16(bias.values, f"layer {name!r}, bias")
    if (bits.view(np.float16) != bias.values).any():
        raise ValueError(f"layer {name!r}: its biases are too small for binary16")
    return BlockDense(
        name=name, weights_format=weights_format, input_format=input_format, block=block,
        mantissas=weight.mantissas.astype(np.int16),
        exponents=np.full((records, -(-columns // block)), weight.exponent, np.int8), bias=bits, activation=activation,
        float_operator=Linear(weight=weight.values.astype(np.float32), bias=bias.values.astype(np.float32)))


def train_network(net: TensorNetwork, images: torch.Tensor, labels: np.ndarray, *, epochs: int, rate: float, seed: int,
                  progress: Progress, patience: int = 0) -> int:
    """Train on batches, with a learning rate that falls along a half cosine from epoch to epoch.

    Training ends after a number of epochs, or when it has converged (source: [0149] of the second hardware document).

    Args:
        epochs:   Most epochs.
        patience: Number of epochs in a row without a new smallest mean loss after which training has converged; 0 for
            all epochs.

    Returns:
        The number of epochs that were trained.
    """
    least, stale = np.inf, 0
    x, generator = inputs(images), torch.Generator().manual_seed(seed)
    for epoch in range(epochs):
        now = Rates(learning_rate=rate * (1 + np.cos(np.pi * epoch / epochs)) / 2)
        for parameter in net.parameters.values():
            parameter.learning_rate = now.learning_rate_tensor
        losses = [net.step(batch(x, index), labels[index.numpy()]) for index in batches(len(labels), BATCH, generator)]
        Observer.of(progress).write(EpochRecord(
            phase="lazy update", epoch=epoch + 1, step=(epoch + 1) * len(losses), rate=now.learning_rate,
            loss=float(np.mean(losses))))
        progress("lazy update", epoch + 1, epochs, f"loss {np.mean(losses):.3f}")
        stale = 0 if np.mean(losses) < least else stale + 1
        least = min(least, np.mean(losses))
        if patience and stale == patience:
            return epoch + 1
    return epochs


def train_lazy_mlp(
    out: Path,
    *,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (64, 32),
    weights_format: Format = EIGHT_BITS,
    input_format: Format = EIGHT_BITS,
    block: int = 16,
    epochs: int = 12,
    rate: float = 0.03,
    momentum: float = 0.9,
    patience: int = 0,
    samples: int | None = None,
    command: str = "nnp train mlp --arithmetic bfp-lazy",
    progress: Progress = silent,
) -> Model:
    """Train an MLP on images in 8-bit mantissas and 16-bit residuals, and write the model.

    Args:
        block:    Native dimension of the machine that is to run the model.
        epochs:   Most epochs of training, for this network and for the FP32 network it is compared with.
        rate:     Learning rate at the start.
        momentum: Momentum, which is kept in 16-bit mantissas.
        patience: See `train_network`.
        Others:   See `train.runs.mlp.train_mlp`.

    Raises:
        ValueError: the data are missing, or a parameter left the range of the machine's formats.
    """
    sets = data.image_sets(folder)
    train, test = sets.train.first(samples or len(sets.train)), sets.test
    reproducible(seed)
    images, x = floats(train.inputs), floats(test.inputs)
    plan = layers((images.shape[1], *hidden, len(train.classes)))
    values = initial_values(plan, seed)
    real = float_network(plan)
    real.load_state_dict({name: torch.from_numpy(value).float() for name, value in values.items()})
    optimiser = torch.optim.SGD(real.parameters(), lr=rate, momentum=momentum)
    labels = torch.from_numpy(train.labels.copy())
    fit(phase="FP32 training, to compare", net=real,
        loss=lambda index: cross_entropy(real(images[index]), labels[index]),
        optimiser=optimiser, count=len(labels), batch=BATCH, epochs=epochs, seed=seed, progress=progress)
    net = network(plan, UpdateRule.LAZY, Rates(learning_rate=rate, momentum=momentum), values=values)
    done = train_network(net, images, train.labels, epochs=epochs, rate=rate, seed=seed, progress=progress,
                         patience=patience)
    trained = {name: kept.kept.golden() for name, kept in net.parameters.items()}
    with torch.no_grad():
        fp32 = real(x)
    logits = torch.from_numpy(net.forward(inputs(x)).golden().values)
    return finish(
        out,
        model_layers(plan, trained, weights_format, input_format, block),
        test,
        data=sets.name,
        preprocessing=data.PIXELS.format(images.shape[1]),
        fp32=fp32,
        quantized=logits,
        lowered=None,
        seed=seed,
        command=command,
        method=f"block floating point from the start: 8-bit parameters with 16-bit residuals under the lazy update, "
               f"16-bit gradients and momentum, {done} epochs of SGD{' until the loss converged' * (done < epochs)}; "
               "no FP32 copy of the parameters",
    )


def model_layers(plan, trained: dict[str, Parameters], weights_format: Format, input_format: Format,
                 block: int) -> tuple[BlockDense, ...]:
    """The layers of the model, each with the relu that follows it."""
    names = [name for name, _ in tensor_network.named(plan)]
    titles = [f"hidden{index + 1}" for index in range(len(names) - 1)] + ["output"]
    return tuple(
        block_dense(title, trained[f"{name}.weight"], trained[f"{name}.bias"], weights_format, input_format, block,
                    Activation.NONE if title == "output" else Activation.RELU)
        for title, name in zip(titles, names, strict=True))
