"""Checkpoints of block floating point training: safetensors from which training resumes to the bit. Nothing is pickled.

A file holds what is kept of each parameter and nothing else: mantissas and residuals in their own widths, momentum in
its own, exponents in the JSON header; the FP32 master copy where the rule has one; the noise generators' state.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from concord.golden.lazy import lazy_update as golden
from concord.golden.lazy import tensor_network
from concord.golden.lazy.lazy_update import Counts
from concord.golden.lazy.tensor_training import Rates
from concord.lib import tensor_file
from concord.net.cells.cell import Cell
from concord.net.cells.registry import CELLS
from concord.spec.numbers.lazy import LazyFormat
from concord.train.bfp.options import CHECKPOINT, UpdateRule
from concord.train.bfp.parallel import Alone
from concord.train.bfp.parameters import Lazy, Master, Stochastic, restored
from concord.train.bfp.tensor import ExactTensor
from concord.train.bfp.tensor_network import TensorNetwork

LAYERS = {kind.__name__: kind for kind in (
    tensor_network.Conv, tensor_network.Dense, tensor_network.MaxPool, tensor_network.AveragePool, tensor_network.Relu,
    tensor_network.Residual, tensor_network.Recurrent)}
#: Fields of a checkpoint that its file has as they are.
PLAIN = ("seed", "epochs", "losses", "shape", "names", "data")
#: Further ones, which earlier files may lack; they are empty there.
NEWER = ("samples",)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """Settings and progress of a training.

    Attributes:
        layers: Layers of the network, as `golden.lazy.tensor_network` describes them.
        rule:   What training keeps of parameters.
        rates:  Learning rate and momentum.
        seed:   Seed of the order of samples.
        epochs: Most epochs of the training, along which its learning rate falls; 0 where it is constant.
        losses: Mean losses of the epochs that are done.
        shape:  Shape of one sample; empty where it is not known.
        names:  Names of layers with parameters in the model, by their names in training.
        data:   Name of the test set, see `datasets.read`; empty where there is none.
        samples: Digest of the training samples; empty where it is not known.
    """

    layers: tuple[tensor_network.Layer, ...]
    rule: UpdateRule
    rates: Rates
    seed: int
    epochs: int = 0
    losses: tuple[float, ...] = ()
    shape: tuple[int, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    data: str = ""
    samples: str = ""


def save(net: TensorNetwork, state: Checkpoint, path: Path):
    """Write a checkpoint; it appears whole or not at all."""
    records, arrays = {}, {}
    for name, kept in net.parameters.items():
        record, tensors = _pack_master(kept) if isinstance(kept, Master) else _pack_lazy(kept)
        records[name] = record
        arrays |= {f"{name}:{key}": tensor.cpu().numpy() for key, tensor in tensors.items()}
    header = {"layers": _pack_layers(state.layers), "arm": state.rule, "rates": asdict(state.rates),
              "parameters": records, "counts": asdict(net.counts),
              **{name: getattr(state, name) for name in (*PLAIN, *NEWER)}}
    tensor_file.write(CHECKPOINT, path, header, arrays)


def load(path: Path, group=Alone, device: str = "cpu") -> tuple[TensorNetwork, Checkpoint]:
    """Read a checkpoint.

    Raises:
        ValueError: the file is missing, truncated, of another kind, or does not fit itself.
    """
    header, arrays = tensor_file.read(CHECKPOINT, path)
    try:
        plain = {name: header[name] for name in PLAIN}
        plain |= {name: tuple(plain[name]) for name in ("losses", "shape")} | {
            name: header.get(name, "") for name in NEWER}
        state = Checkpoint(layers=_unpack_layers(header["layers"]), rule=UpdateRule(header["arm"]),
                           rates=Rates(**header["rates"]), **plain)
        tensor_network.check(state.layers)
        parameters = {name: _unpack(name, shape, header["parameters"], arrays, state, device)
                      for name, shape in tensor_network.shapes(state.layers).items()}
        counts = Counts(**header["counts"])
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"{path}: {reason}; {CHECKPOINT.remedy}") from error
    return TensorNetwork(state.layers, parameters, group, device=device, counts=counts), state


def _pack_lazy(kept: Lazy) -> tuple[dict, dict]:
    made, tensors = kept.kept, {}
    tensors["mantissas"] = made.mantissas.to(torch.int8)
    if made.residuals.any():
        tensors["residuals"] = made.residuals.to(torch.int16)
    record = {"format": asdict(made.fmt), "exponent": made.exponent}
    if kept.momentum is not None:
        tensors["momentum"] = kept.momentum.values << kept.momentum.left_shift
        record["momentum"] = {"lsb": kept.momentum.lsb, "bits": kept.momentum.bits}
    if isinstance(kept, Stochastic):
        tensors["noise"] = kept.noise.get_state()
    return record, tensors


def _pack_master(kept: Master) -> tuple[dict, dict]:
    return {}, {"master": kept.master} | ({} if kept.momentum is None else {"momentum": kept.momentum})


def _unpack(name: str, shape: tuple[int, ...], records: dict, arrays: dict[str, np.ndarray], state: Checkpoint,
            device: str):
    record = records[name]
    tensors = {key.removeprefix(f"{name}:"): a for key, a in arrays.items() if key.startswith(f"{name}:")}
    main = tensors["master" if state.rule is UpdateRule.MASTER else "mantissas"]
    for key, tensor in tensors.items():
        if key != "noise" and tensor.shape != tuple(shape):
            raise ValueError(f"{name}, {key}: {tensor.shape} where the layer has {tuple(shape)}")
    momentum = tensors.get("momentum")
    if state.rule is UpdateRule.MASTER:
        made = Master(main, state.rates, device)
        made.momentum = None if momentum is None else torch.from_numpy(momentum).to(device)
    else:
        residuals = tensors.get("residuals", np.zeros(shape)).astype(np.int64)
        begun = golden.Parameters(main.astype(np.int64), residuals, record["exponent"], LazyFormat(**record["format"]))
        made = restored(state.rule, begun, state.rates, device)
        if momentum is not None:
            made.momentum = ExactTensor(torch.from_numpy(momentum).to(device), **record["momentum"])
        if isinstance(made, Stochastic):
            made.noise.set_state(torch.from_numpy(tensors["noise"]))
    return made


def _pack_layers(layers) -> list[dict]:
    return [{"kind": type(layer).__name__} | {key: _pack(getattr(layer, key)) for key in layer.__slots__}
            for layer in layers]


def _pack(value):
    """A field of a layer as JSON has it: layers of a branch, a cell by its name, or a number or numbers."""
    if isinstance(value, Cell):
        return value.name
    return _pack_layers(value) if isinstance(value, tuple) and not all(isinstance(n, int) for n in value) else value


def _unpack_layers(records: list[dict]) -> tuple[tensor_network.Layer, ...]:
    made = []
    for record in records:
        values = {key: _unpack_field(value) if isinstance(value, list) else value for key, value in record.items()}
        if "cell" in values:
            values["cell"] = CELLS[values["cell"]]
        made.append(LAYERS[values.pop("kind")](**values))
    return tuple(made)


def _unpack_field(value: list) -> tuple:
    return _unpack_layers(value) if all(isinstance(part, dict) for part in value) else tuple(value)
