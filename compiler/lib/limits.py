"""Limits of a machine's products: sentences with the reason why a layer exceeds them, and what to do."""

from collections.abc import Sequence

import numpy as np
from concord.compiler.lib import tiling
from concord.spec.config import Config
from concord.spec.formats import Format


def integer_operands(layer, config: Config, matrices: Sequence[np.ndarray]) -> list[str]:
    """Check formats for integer mode: inputs must have the machine's format, as it clips them; weights must fit."""
    found = []
    machine, model = config.activations, layer.input_format
    if (model.bits, model.symmetric) != (machine.bits, machine.symmetric):
        found.append(
            f"its input codes are {_width(model)}, the machine's operands {_width(machine)}: quantise the "
            "model for this machine with --preset, or choose another preset"
        )
    low, high = (int(f(m.min() if f is min else m.max() for m in matrices)) for f in (min, max))
    if low < config.weights.lowest or high > config.weights.highest:
        found.append(
            f"its weights lie in {low}..{high}, the machine's mantissas in {config.weights.lowest}.."
            f"{config.weights.highest}: quantise them to {config.weights.bits} bits, or choose a wider preset"
        )
    return found


def start_values(start: np.ndarray, config: Config) -> list[str]:
    """Check that start values fit BiasRf."""
    ends = int(start.min()), int(start.max())
    bits = max((value if value >= 0 else ~value).bit_length() + 1 for value in ends)
    if bits <= config.bias_bits:
        return []
    return [f"its start values need {bits} bits, BiasRf has {config.bias_bits}: use smaller weights or fewer inputs"]


def block_operands(layer, config: Config) -> list[str]:
    """Check block floating point: both formats and the block size must be those of the machine."""
    found = []
    for what, model, machine in (
        ("weights", layer.weights_format, config.weights),
        ("inputs", layer.input_format, config.activations),
    ):
        if model != machine:
            found.append(
                f"its {what} are {_block_format(model)}, the machine's {_block_format(machine)}: quantise the "
                "model for this machine with --preset, or choose another preset"
            )
    if layer.block != config.native_dim:
        found.append(
            f"its blocks have {layer.block} elements, native vectors {config.native_dim}: quantise the model "
            "for this machine with --preset"
        )
    return found


def adjacent_blocks(layer) -> list[str]:
    """Check that the blocks of a vector follow each other, as its words do."""
    if layer.places is None:
        return []
    reason = ("its blocks begin anew with each part of a concatenation or each pixel of an image, but parts lie in "
              "adjacent")
    return [f"{reason} words: give each part a multiple of {layer.block} elements"]


def columns(config: Config, count: int) -> list[str]:
    """Check the number of native vectors that one product takes."""
    if count <= config.operand_columns:
        return []
    reason = f"one product needs {count} native vectors, operand_columns is {config.operand_columns}"
    advice = f"use at most {config.operand_columns * config.native_dim} inputs"
    return [f"{reason}, and a sum cannot be cut without another rounding: {advice}"]


def product_rows(config: Config, rows: int) -> list[str]:
    """Check the rows of the products that a layer is cut into."""
    if found := vector_rows(rows):
        return found
    if rows <= config.accumulator_rows or config.accumulator_rows >= config.mfu_lanes:
        return []
    return [
        f"accumulator_rows = {config.accumulator_rows} is less than a word of {config.mfu_lanes}: choose another preset"
    ]


def vector_rows(rows: int) -> list[str]:
    """Check the number of elements of one chain."""
    if rows <= tiling.LARGEST:
        return []
    return [f"its {rows} outputs are more than the {tiling.LARGEST} that Rows can say: cut the layer"]


def _width(fmt: Format) -> str:
    return f"{'symmetric' if fmt.symmetric else 'full'} {fmt.bits}-bit"


def _block_format(fmt: Format) -> str:
    return f"{_width(fmt)} with exponents {fmt.e_min}..{fmt.e_max} by rule {fmt.rule}"
