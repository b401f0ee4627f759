"""Post-training quantisation of tensors: integers, scales, saturations and offsets, by any method.

Source: S0.a and S0.b; S1, symmetric scales for each gate.
"""

import numpy as np
from concord.net.quantize import gates
from concord.net.quantize.recipe import ActivationMethod, Recipe, Start, WeightMethod
from concord.net.quantize.weights import Grid
from concord.spec.numbers.formats import Format


def weights(
    rows: np.ndarray, fmt: Format | Grid, method: WeightMethod = WeightMethod.MMSE, parts: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Integers q and scales a > 0, found by a method so that a q is close to the rows.

    Args:
        rows:   Real[rows, columns].
        fmt:    Format or grid of the integers.
        method: How they are found.
        parts:  int[rows]: rows with the same number share a scale. None gives each row its own scale; zeros give the
            whole tensor one.

    Returns:
        int32[rows, columns] and float64[rows]; zeros have scale 1, or 0 where 0 is no integer of the grid.
    """
    rows = np.asarray(rows, np.float64)
    grid = fmt if isinstance(fmt, Grid) else Grid.of(fmt)
    parts = np.arange(len(rows)) if parts is None else np.asarray(parts)
    codes, scales, quantizer = np.zeros(rows.shape, np.int32), np.ones(len(rows)), WeightMethod(method).load()
    for part in np.unique(parts):
        mine = parts == part
        found, scale = quantizer(rows[mine].ravel(), grid)
        codes[mine], scales[mine] = found.reshape(-1, rows.shape[1]), scale
    return codes, scales


def rows_of_recipe(
    rows: np.ndarray, grid: Grid, recipe: Recipe, fold: np.ndarray | float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Integers and scales of a layer from which a recipe starts; see `weights`.

    Args:
        rows:   Real[rows, columns], with batch normalisation folded in.
        grid:   The integers that weights may become.
        recipe: Whether the start is post-training quantisation, or FP32 weights with scale 1.
        fold:   Factor by which batch normalisation multiplied each row. A start from FP32 takes the rows without it.
    """
    rows = np.asarray(rows, np.float64)
    if recipe.start is Start.PTQ:
        return weights(rows, grid, recipe.methods.weights, np.arange(len(rows)) // (recipe.methods.rows or len(rows)))
    fold = np.broadcast_to(np.asarray(fold, np.float64), len(rows))
    scales = np.where(fold == 0, 1.0, fold) / (grid.highest + 2 - grid.step)
    return grid.nearest(np.clip(rows / scales[:, None], grid.lowest, grid.highest)), scales


def activations(
    samples: np.ndarray, levels: int, method: ActivationMethod = ActivationMethod.SEARCH, offset: float | None = None,
    *, padded: bool = False,
) -> tuple[float, float]:
    """Saturation b > 0 and offset m of Q(x) = round(clip(x - m, 0, b) * s) / s + m, s = levels / b.

    Args:
        samples: Real[samples, elements], the quantiser's inputs for a calibration set.
        levels:  Largest code of the quantiser.
        method:  How they are found.
        offset:  m where it is fixed, or None where the method finds it.
        padded:  Whether zeros are put around the inputs. The range from m to m + b then includes 0: otherwise the code
            of such a zero would mean another number.

    Raises:
        ValueError: the inputs are padded, and the given offset is above 0.
    """
    find = ActivationMethod(method).load()
    if not padded:
        return find(samples, levels, offset)
    if offset is not None and offset > 0:
        raise ValueError(f"the offset {offset:g} leaves no code for the zeros of the padding: give one of at most 0")
    saturation, found = find(samples, levels, offset)
    if found > 0:
        saturation, found = find(samples, levels, 0.0)
    return max(saturation, -found), found


def symmetric(values: np.ndarray, fmt: Format) -> tuple[np.ndarray, float]:
    """Integers of the symmetric range of `fmt.bits` bits, int16, and the real value of one step."""
    affine = gates.symmetric(values, fmt.bits)
    return gates.quantize(values, affine).astype(np.int16), affine.step


def decibels(values: np.ndarray, quantized: np.ndarray) -> float:
    """Ratio of signal to quantisation noise; it is infinite where the quantised values are equal to the values."""
    return ratio(*powers(values, quantized))


def powers(values: np.ndarray, quantized: np.ndarray) -> tuple[float, float]:
    """Sums of squares of values, and of what quantisation changed."""
    noise = np.asarray(values, np.float64) - quantized
    return float(np.square(values, dtype=np.float64).sum()), float(np.square(noise, out=noise).sum())


def ratio(whole: float, noise: float) -> float:
    """Ratio of signal to noise in decibels, from their sums of squares."""
    return float(10 * np.log10(whole / noise)) if noise else np.inf
