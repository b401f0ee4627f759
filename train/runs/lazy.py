"""Networks trained in block floating point by the lazy update, from nothing to the model file.

The mantissas that training ends with are those of the model: no real number lies between them.

Source: S2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from concord.datasets.read import digest
from concord.frontends.torch.read import check_answer, graph_of
from concord.golden.lazy import tensor_network
from concord.golden.lazy.tensor_training import Rates
from concord.net.cells.registry import CELLS
from concord.net.model import Model
from concord.net.quantize.choices import BlockFormats
from concord.net.quantize.plan import plan
from concord.train.bfp import parallel, tensor_checkpoint, tensor_fit
from concord.train.bfp.float_graph import planned
from concord.train.bfp.options import BY_LAZY_UPDATE, LazyOptions, formats_of
from concord.train.bfp.parallel import Alone
from concord.train.bfp.tensor import ExactTensor
from concord.train.bfp.tensor_checkpoint import Checkpoint
from concord.train.bfp.tensor_network import TensorNetwork, float_network, initial_values, inputs, network
from concord.train.bfp.trained_blocks import layers_of
from concord.train.lib import data, networks
from concord.train.lib.export import finish, floats
from concord.train.lib.fit import Progress, reproducible, silent
from concord.train.recurrent.float_network import HEAD, FloatClassifier

BATCH, UTTERANCES = 50, 30  #: Numbers of images and of utterances in a batch.
#: Name of the checkpoint in its folder.
CHECKPOINT = "checkpoint.safetensors"
#: Name of the perceptron, whose sizes follow the data.
PERCEPTRON = "perceptron"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Trainee:
    """A network before training, and its data.

    Attributes:
        layers: Layers of training.
        names:  Names of layers in the model, by those in training.
        shape:  Shape of one sample.
        sets:   Training and test samples.
        batch:  Number of samples in a batch.
        preprocessing: Sentence on how raw data become inputs.
    """

    layers: tuple[tensor_network.Layer, ...]
    names: dict[str, str]
    shape: tuple[int, ...]
    sets: data.Sets
    batch: int
    preprocessing: str

    @property
    def sequence(self) -> bool:
        """Whether samples are sequences."""
        return isinstance(self.layers[0], tensor_network.Recurrent)

    def inputs(self, samples) -> np.ndarray:
        """float32[samples, *shape], or float32[samples, time, inputs]: the inputs of a set."""
        made = floats(samples.inputs).numpy()
        return made if self.sequence else made.reshape(-1, *self.shape)

    def tensors(self, samples) -> ExactTensor:
        """The inputs of a set as a training tensor."""
        return inputs(self.inputs(samples), lengths=samples.lengths)


def perceptron(sizes: Sequence[int]) -> tuple[tuple[tensor_network.Layer, ...], dict[str, str]]:
    """Dense layers with relu between them, and their names."""
    dense = [tensor_network.Dense(i, o) for i, o in zip(sizes, sizes[1:], strict=False)]
    layers = tuple(layer for one in dense[:-1] for layer in (one, tensor_network.Relu())) + (dense[-1],)
    titles = [f"hidden{index + 1}" for index in range(len(dense) - 1)] + ["output"]
    return layers, {name: title for (name, _), title in zip(tensor_network.named(layers), titles, strict=True)}


def of_images(name: str, folder: Path | None, hidden: Sequence[int], seed: int) -> Trainee:
    """A network on images: the perceptron, or one that `train.lib.networks.build` makes.

    Raises:
        Unsupported: a part of the network cannot be trained by lazy update.
        ValueError: the data are missing, or of another size or more classes than the network takes.
    """
    if name == PERCEPTRON:
        sets = data.image_sets(folder)
        shape = sets.train.inputs.shape[1:]
        layers, names = perceptron((*shape, *hidden, len(sets.train.classes)))
    else:
        net, shape = networks.build(name, seed), networks.SHAPE
        check_answer(net, shape, networks.CLASSES)
        layers, names = planned(plan(graph_of(net, shape)))
        sets = data.sized(data.image_sets(folder), shape, networks.CLASSES, folder)
    return Trainee(layers=layers, names=names, shape=tuple(shape), sets=sets, batch=BATCH,
                   preprocessing=data.PIXELS.format(int(np.prod(shape))))


def of_sequences(cell: str, folder: Path | None, hidden: Sequence[int]) -> Trainee:
    """Recurrent layers and a dense layer on the last hidden vector.

    Raises:
        ValueError: the data are missing, or have a class at each time step.
    """
    sets = data.vowel_sets(folder)
    if sets.train.steps > 1:
        raise ValueError(f"{folder}: a class at each time step, which training by lazy update does not have; leave "
                         "--arithmetic bfp-lazy out")
    features = sets.train.inputs.shape[2]
    layers = (tensor_network.Recurrent(CELLS[cell], features, tuple(hidden)),
              tensor_network.Dense(hidden[-1], len(sets.train.classes)))
    names = {f"0.{index}": f"{cell}{index + 1}" for index in range(len(hidden))} | {"1": HEAD}
    return Trainee(layers=layers, names=names, shape=(features,), sets=sets, batch=UTTERANCES,
                   preprocessing=f"one vector of {features} cepstra for each frame, each binary16(cepstrum)")


def train_lazy(
    out: Path,
    *,
    network: str = PERCEPTRON,
    seed: int = 0,
    folder: Path | None = None,
    hidden: Sequence[int] = (64, 32),
    formats: BlockFormats | None = None,
    epochs: int = 12,
    lazy: LazyOptions = BY_LAZY_UPDATE,
    samples: int | None = None,
    kept: Path | None = None,
    machine: Callable[..., TensorNetwork] | None = None,
    command: str = "nnp train mlp --arithmetic bfp-lazy",
    progress: Progress = silent,
) -> Model | None:
    """Train a network in 8-bit mantissas and 16-bit residuals, and write the model.

    Args:
        network:    PERCEPTRON, a name in `networks.NETWORKS`, module:callable, or the name of a cell.
        hidden:     Sizes of the hidden layers of the perceptron, or of the recurrent layers.
        formats:    Formats of the machine that is to run the model; None for those of `options.formats_of`.
        epochs:     Most epochs of training, for this network and for the FP32 network it is compared with.
        lazy:       How it is trained.
        kept:       Folder that is saved after each epoch, from which the same training goes on; or None.
        machine:    What moves the network to a machine that trains it, see `workflows.machine_training`; PyTorch trains
            it by default. All ways leave the same bits.
        Others:     See `train.runs.mlp.train_mlp`.

    Returns:
        The model; None in all processes of torchrun but the first one, which write nothing.

    Raises:
        Unsupported: a part of the network cannot be trained by lazy update.
        ValueError: the data are missing, a parameter left the range of the machine's formats, or the checkpoint is of
            another training.
    """
    reproducible(seed)
    group = parallel.joined()
    trainee = of_sequences(network, folder, hidden) if network in CELLS else of_images(network, folder, hidden, seed)
    trainee = replace(trainee, sets=replace(trainee.sets, train=trainee.sets.train.first(
        samples or len(trainee.sets.train))))
    begun = Checkpoint(
        layers=trainee.layers, rule=lazy.rule, rates=Rates(learning_rate=lazy.rate, momentum=lazy.momentum), seed=seed,
        epochs=epochs, shape=trainee.shape, names=trainee.names, data=trainee.sets.name,
        samples=digest(trainee.sets.train))
    net, state = trained(trainee, begun, lazy, kept, group, progress if group.rank == 0 else silent, machine)
    parallel.leave()
    if group.rank:
        return None
    net = TensorNetwork(state.layers, net.parameters)
    test = trainee.sets.test
    fp32 = trained_in_fp32(trainee, begun, progress)
    layers, sources = layers_of(net, state, formats or formats_of())
    logits = tensor_fit.outputs(net, trainee.tensors(test))
    done = len(state.losses)
    return finish(
        out, layers, test, sources=sources, data=trainee.sets.name, preprocessing=trainee.preprocessing,
        fp32=fp32, quantized=torch.from_numpy(logits), lowered=None, seed=seed, command=command,
        method=f"block floating point from the start, rule {lazy.rule}: 8-bit parameters, 16-bit gradients and "
               f"momentum, {done} epochs of SGD{' until the loss converged' * (done < epochs)}; "
               f"{WITHOUT.get(lazy.rule, 'no FP32 copy of the parameters')}")


#: What is said of rules that keep more than mantissas and residuals.
WITHOUT = {"master": "an FP32 master copy of the parameters"}


def trained(
    trainee: Trainee, begun: Checkpoint, lazy: LazyOptions, folder: Path | None, group=Alone,
    progress: Progress = silent, machine: Callable[..., TensorNetwork] | None = None,
) -> tuple[TensorNetwork, Checkpoint]:
    """Train a network in block floating point, from its checkpoint if there is one.

    Raises:
        ValueError: the checkpoint is of another training.
    """
    path = folder and folder / CHECKPOINT
    if path and path.is_file():
        net, state = tensor_checkpoint.load(path, group)
        known = replace(begun, samples=begun.samples if state.samples else "")
        if replace(state, losses=()) != known:
            raise ValueError(f"{folder}: the checkpoint is of another training, with other layers, data, seed, rule, "
                             "rates, epochs or training samples; name another folder, or repeat that command")
    else:
        net = network(begun.layers, begun.rule, begun.rates, seed=begun.seed, group=group)
        state = begun

    def save(losses):
        if path and group.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            tensor_checkpoint.save(net, replace(begun, losses=tuple(losses)), path)

    train = trainee.sets.train
    if machine:
        sizes = [len(part) for part in torch.arange(len(train)).split(trainee.batch)]
        net = machine(net, begun.layers, trainee.shape, begun.rates, sorted({*sizes}, reverse=True),
                      (begun.epochs - len(state.losses)) * len(sizes), progress)
    losses = tensor_fit.fit(
        net, trainee.tensors(train), train.labels, epochs=begun.epochs, batch_size=trainee.batch,
        seed=begun.seed, losses=state.losses, rate=lazy.rate, patience=lazy.patience, progress=progress,
        after_epoch=save)
    return net, replace(begun, losses=tuple(losses))


def trained_in_fp32(trainee: Trainee, begun: Checkpoint, progress: Progress) -> torch.Tensor:
    """Outputs for the test set, float32[samples, classes], of the same network trained in FP32, to compare."""
    train, test, values = trainee.sets.train, trainee.sets.test, initial_values(begun.layers, begun.seed)
    if trainee.sequence:
        real = float_classifier(begun.layers, values)
    else:
        real = float_network(begun.layers)
        real.load_state_dict({name: torch.from_numpy(value).float() for name, value in values.items()})
    tensor_fit.fit_float(
        real, torch.from_numpy(trainee.inputs(train)), train.labels, epochs=begun.epochs, batch_size=trainee.batch,
        seed=begun.seed, learning_rate=begun.rates.learning_rate, momentum=begun.rates.momentum, falls=True,
        lengths=train.lengths, progress=progress)
    return tensor_fit.float_outputs(real, torch.from_numpy(trainee.inputs(test)), test.lengths)


def float_classifier(layers: tuple[tensor_network.Layer, ...], values: dict[str, np.ndarray]) -> FloatClassifier:
    """Recurrent layers and a dense layer in FP32, with these numbers."""
    first, head = layers
    net = FloatClassifier(first.inputs, first.hidden, head.outputs, first.cell)
    state = {f"head.{part}": values[f"1.{part}"] for part in ("weight", "bias")}
    for index in range(len(first.hidden)):
        prefix = f"layers.{index}.parts.0"
        for name, part in (("input_weights", "input"), ("recurrent_weights", "recurrent"), ("bias", "bias")):
            state[f"{prefix}.{name}"] = np.stack([values[f"0.{index}.{gate.name}.{part}"] for gate in first.cell.gates])
        state |= {f"{prefix}.vectors.{name}": values[f"0.{index}.{name}"] for name in first.cell.vectors}
    net.load_state_dict(net.state_dict() | {name: torch.from_numpy(value).float() for name, value in state.items()})
    return net
