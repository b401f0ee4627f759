"""Parameters, inputs, outputs and gradients as words of server memory, and back."""

import numpy as np
from concord.compiler.training.graph import Product
from concord.compiler.training.memory_map import Records
from concord.compiler.training.program import TrainingProgram
from concord.compiler.training.regions import ImageRegion
from concord.golden.lazy.lazy_update import Parameters
from concord.golden.lazy.tensor import TrainingTensor
from concord.golden.lazy.tensor_layers import whole
from concord.golden.trainer.memory import joined, matrix_of, planes_of, words_of
from concord.spec.numbers.lazy import E_MIN, LazyFormat, Width
from concord.spec.trainer.config import LANES, PARAMETER_PARTS, PARAMETER_PLANES


def write_exponent(memory: np.ndarray, number: int, exponent: int):
    """Write E of an exponent; memory is uint8[words, 16]."""
    memory[number // LANES, number % LANES] = exponent - E_MIN


def read_exponent(memory: np.ndarray, number: int) -> int:
    """E of an exponent."""
    return int(memory[number // LANES, number % LANES]) + E_MIN


def write_parameters(
    memory: np.ndarray, made: TrainingProgram, parameters: dict[str, Parameters], momenta: dict[str, TrainingTensor]
):
    """Write all parameters and momenta to the region of the old ones, and clear the other region.

    Args:
        memory:     uint8[words, 16].
        made:       Any program of the network.
        parameters: By name, as golden has them.
        momenta:    By name; zeros for those that are missing.

    Raises:
        ValueError: parameters of other widths than the machine has.
    """
    memory_map = made.memory_map
    memory[memory_map.old : memory_map.new + memory_map.parameters] = 0
    for layer, part, name, start, words in _records(made):
        kept, momentum = parameters[name], momenta.get(name)
        if kept.fmt != LazyFormat():
            raise ValueError(f"parameter {name!r} has the widths {kept.fmt}, and a trainer has those of {LazyFormat()}")
        if momentum and momentum.bits != Width.GRADIENT:
            raise ValueError(f"the momentum of {name!r} has {momentum.bits} bits, and a trainer keeps {Width.GRADIENT}")
        found = kept.mantissas, kept.residuals, momentum.mantissas if momentum else np.zeros_like(kept.mantissas)
        record = _record(memory, memory_map.old + start, words)
        for planes, numbers in zip(PARAMETER_PARTS, found, strict=True):
            record[planes] = _rows(layer, part, numbers, planes.stop - planes.start)
        numbers = _numbers(memory_map.records[layer.name], part)
        write_exponent(memory, numbers.value, kept.exponent)
        write_exponent(memory, numbers.momentum, int(momentum.exponent.item()) if momentum else E_MIN)


def read_parameters(
    memory: np.ndarray, made: TrainingProgram, first: int
) -> tuple[dict[str, Parameters], dict[str, TrainingTensor]]:
    """Parameters and momenta by name, as golden has them.

    Args:
        memory: uint8[words, 16].
        made:   Any program of the network.
        first:  First word of the copy that stands.
    """
    parameters, momenta = {}, {}
    for layer, part, name, start, words in _records(made):
        planes = _record(memory, first + start, words)
        w, r, v = (_numbers_of(layer, part, joined(planes[each])) for each in PARAMETER_PARTS)
        numbers = _numbers(made.memory_map.records[layer.name], part)
        parameters[name] = Parameters(w, r, read_exponent(memory, numbers.value), LazyFormat())
        momenta[name] = whole(v, read_exponent(memory, numbers.momentum), Width.GRADIENT)
    return parameters, momenta


def _records(made: TrainingProgram):
    for layer in made.graph.products:
        records = made.memory_map.records[layer.name]
        yield layer, "weight", f"{layer.name}.weight", records.weight, records.words
        yield layer, "bias", f"{layer.name}.bias", records.bias, records.blocks


def _record(memory: np.ndarray, first: int, words: int) -> np.ndarray:
    """The planes of a parameter, a part of the memory: uint8[5, words, 16]."""
    return memory[first : first + PARAMETER_PLANES * words].reshape(PARAMETER_PLANES, words, LANES)


def _numbers(records: Records, part: str):
    return records.weights if part == "weight" else records.biases


def _rows(layer: Product, part: str, numbers: np.ndarray, planes: int) -> np.ndarray:
    """uint8[planes, words, 16] of a parameter: weights by taps, blocks of channels and outputs."""
    if part == "bias":
        return words_of(numbers[None], planes)[:, :, 0]
    rows = _by_taps(layer, numbers)
    padded = np.zeros((layer.taps, layer.padded, LANES * layer.x.blocks), np.int64)
    padded[:, : rows.shape[1], : rows.shape[2]] = rows
    blocks = padded.reshape(layer.taps, layer.padded, layer.x.blocks, LANES).swapaxes(1, 2)
    return planes_of(blocks.reshape(-1, LANES), planes)


def _by_taps(layer: Product, numbers: np.ndarray) -> np.ndarray:
    """Weights [outputs, channels, ...] or [outputs, inputs] as [taps, outputs, channels]."""
    if layer.patch:  # a tap is a lane of the patch
        return np.moveaxis(numbers, 1, -1).reshape(1, len(numbers), -1)
    return np.moveaxis(numbers.reshape(len(numbers), layer.x.channels, layer.taps), 2, 0)


def _numbers_of(layer: Product, part: str, words: np.ndarray) -> np.ndarray:
    """The inverse of `_rows`, from numbers int64[words, 16]."""
    if part == "bias":
        return words.reshape(-1)[: layer.outputs].copy()
    blocks = words.reshape(layer.taps, layer.x.blocks, layer.padded, LANES).swapaxes(1, 2)
    rows = blocks.reshape(layer.taps, layer.padded, -1)[:, : layer.outputs, : layer.x.channels]
    if layer.patch:
        size, channels = layer.patch.size, layer.patch.inputs
        return np.moveaxis(rows.reshape(layer.outputs, size, size, channels), -1, 1)
    found = np.moveaxis(rows, 0, 2)
    shape = (layer.outputs, -1) if layer.dense else (layer.outputs, layer.x.channels, layer.rows, layer.columns)
    return found.reshape(shape)


def _pixels(numbers: np.ndarray) -> np.ndarray:
    """[samples, channels, ...] as rows of channels: [samples * pixels, channels]."""
    samples, channels = numbers.shape[:2]
    return np.moveaxis(numbers.reshape(samples, channels, -1), 1, 2).reshape(-1, channels)


def _words(region: ImageRegion) -> slice:
    return slice(region.offset, region.offset + region.planes * region.plane)


def write_images(memory: np.ndarray, region: ImageRegion, numbers: np.ndarray):
    """Write numbers [samples, channels, ...] to a region of server memory."""
    memory[_words(region)] = words_of(_pixels(numbers), region.planes).reshape(-1, LANES)


def read_images(memory: np.ndarray, region: ImageRegion, channels: int) -> np.ndarray:
    """The numbers of a region: int64[samples, channels, rows, columns]."""
    parts = memory[_words(region)].reshape(region.planes, region.blocks, -1, LANES)
    rows = matrix_of(parts, channels).reshape(region.samples, region.height, region.width, channels)
    return np.moveaxis(rows, -1, 1)


def write_identity(memory: np.ndarray, made: TrainingProgram):
    """Write the identity, if the backward program needs it: 64, under an exponent by which it is worth 1."""
    if made.memory_map.identity:
        word, number = made.memory_map.identity
        memory[word : word + LANES] = np.eye(LANES, dtype=np.uint8) << 6
        write_exponent(memory, number, 1)


def write_inputs(memory: np.ndarray, made: TrainingProgram, numbers: np.ndarray):
    """Write a batch of inputs, int64[samples, inputs] or [samples, channels, rows, columns], 8 bits."""
    raster = made.memory_map.raster
    if not raster:
        write_images(memory, made.memory_map.values[made.graph.x], numbers)
        return
    samples, channels, height, width = numbers.shape
    rows = np.zeros((samples, height, raster.width * LANES), np.uint8)
    rows[..., : width * channels] = np.moveaxis(numbers, 1, -1).reshape(samples, height, -1).astype(np.uint8)
    memory[raster.offset : raster.offset + samples * raster.pixels] = rows.reshape(-1, LANES)
