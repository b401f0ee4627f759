"""Reconstruction of a layer: range, integers and biases that bring its outputs closest to those of the float layer.

Each layer is found after those before it, from what these make of the calibration set in quantised form, so that it
makes up for their errors, too.

Source: S0, post-training quantisation that trains the quantised values (paragraph [0118]); the integers are rounded one
column after the other as in GPTQ (Frantar et al., 2023), and then improved by coordinate descent.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from concord.net.ops.operator import Operator
from concord.net.quantize import tensors
from concord.net.quantize.codes import InputCodes
from concord.net.quantize.plan import Part
from concord.net.quantize.recipe import Recipe
from concord.net.quantize.weights import Grid
from concord.spec.numbers.activation import Activation

#: Number of samples that enter a Gram matrix at once, on which a layer tries ranges, and on which the network does.
TOGETHER, RANGED, WHOLE = 16, 24, 100
#: Largest and smallest share of the largest and of the smallest input that ranges reach, and how many are tried.
SHARES = np.arange(4, 21) / 20
#: Shares of the smallest input that the range of a network's input reaches, and turns in which its ends are found.
LOW_SHARES, TURNS = np.arange(1, 21) / 20, 2
#: How much of the mean square of the inputs holds the weights where they are, and holds integers near them.
KEPT, DAMPED = 0.3, 0.01
#: Number of times that the results below a relu are guessed.
GUESSES = 3
#: Most columns of a layer that is reconstructed: inner products of all of them take 300 MB, several times.
COLUMNS = 6144
#: Most rounds of coordinate descent.
ROUNDS = 4
#: A number that no sum of squares of a calibration set comes near.
TINY = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Moments:
    """Sums over the positions of the calibration set, for each group of rows that read the same columns.

    Attributes:
        gram:    float64[groups, columns, columns], inner products of the columns, less their means.
        product: float64[groups, rows, columns], inner products of wanted results and columns, less their means.
        power:   float64[groups, rows], squares of wanted results, less their means.
        columns: float64[groups, columns], means of the columns.
        results: float64[groups, rows], means of wanted results.
        signal:  Sum of the squares of all wanted results.
    """

    gram: np.ndarray
    product: np.ndarray
    power: np.ndarray
    columns: np.ndarray
    results: np.ndarray
    signal: float

    def constant(self, weights: np.ndarray) -> np.ndarray:
        """float64[groups, rows], the constants with which float64[groups, rows, columns] weights give the means."""
        return self.results - (weights @ self.columns[:, :, None])[:, :, 0]


def moments(part: Part, entering: np.ndarray, made: np.ndarray, guess: tuple[np.ndarray, np.ndarray] | None = None
            ) -> Moments:
    """The moments of a layer.

    Args:
        part:     A convolution or dense layer.
        entering: Real[samples, ...], what the codes of its inputs stand for.
        made:     float32[samples, outputs, ...], the results of the float layer.
        guess:    float64[groups, rows, columns] weights and float64[groups, rows] constants of a layer whose relu
            follows. Where a result is negative, any negative one will do, so the negative one of the guess is wanted.
    """
    groups, sums, count = getattr(part.op, "groups", 1), None, 0
    for at in range(0, len(entering), TOGETHER):
        x, y = entering[at:at + TOGETHER].astype(np.float64), made[at:at + TOGETHER].astype(np.float64)
        seen = x[None] if part.window is None else part.window.patches(part.window.bordered(x, 0.0), groups)
        wanted = np.moveaxis(y, 1, 0).reshape(groups, y.shape[1] // groups, -1)
        if guess is not None:
            guessed = guess[0] @ seen.swapaxes(1, 2) + guess[1][:, :, None]
            wanted = np.where(wanted < 0, np.minimum(guessed, 0), wanted)
        count += seen.shape[1]
        found = (seen.swapaxes(1, 2) @ seen, wanted @ seen, np.square(wanted).sum(2), seen.sum(1), wanted.sum(2))
        sums = found if sums is None else tuple(old + new for old, new in zip(sums, found, strict=True))
    gram, product, power, columns, results = sums
    signal, columns, results = float(power.sum()), columns / count, results / count
    return Moments(
        gram=gram - count * columns[:, :, None] * columns[:, None],
        product=product - count * results[:, :, None] * columns[:, None],
        power=power - count * np.square(results), columns=columns, results=results, signal=signal)


def rows(part: Part, op: Operator, entering: np.ndarray, made: np.ndarray, grid: Grid, recipe: Recipe
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """The rows of a layer that bring gain * (weights @ x) + constant closest to its float results.

    Args:
        part:     The layer.
        op:       Its operator, with its float weights.
        entering: Real[samples, ...], what the codes of its inputs stand for.
        made:     float32[samples, outputs, ...], the results of the float layer.
        grid:     The integers that weights may be.
        recipe:   How the layer is quantised.

    Returns:
        int32[outputs, columns] weights, float64[outputs] gain, float64[outputs] constant, and the signal to noise of
        the results in decibels.
    """
    found = moments(part, entering, made)
    real = op.weight.reshape(len(found.gram), -1, found.gram.shape[1]).astype(np.float64)
    eye = np.eye(real.shape[2])
    squares = np.trace(found.gram, axis1=1, axis2=2)[:, None, None] / real.shape[2] * eye + TINY * eye
    # The float weights that answer best to inputs with errors; the squares keep what the samples do not tell.
    kept = KEPT * squares
    wanted = _answering(found, kept, real)
    for _ in range(GUESSES if part.activation is Activation.RELU else 0):
        found = moments(part, entering, made, (wanted, found.constant(wanted)))
        wanted = _answering(found, kept, real)
    _, scales = tensors.rows_of_recipe(wanted.reshape(-1, real.shape[2]), grid, recipe, part.fold)
    scales = scales.reshape(real.shape[:2])
    codes = np.zeros(real.shape)
    for group, gram in enumerate(found.gram + DAMPED * squares):
        codes[group] = rounded(wanted[group], gram, scales[group], grid)
        descend(codes[group], wanted[group], gram, scales[group], grid, scaled=recipe.methods.rows == 1)
    weights = scales[:, :, None] * codes
    constant = found.constant(weights)
    noise = (found.power - 2 * (weights * found.product).sum(2) + (weights @ found.gram * weights).sum(2)).sum()
    return (codes.reshape(-1, real.shape[2]).astype(np.int32), scales.ravel(), constant.ravel(),
            tensors.ratio(found.signal, max(float(noise), 0.0)))


def _answering(found: Moments, kept: np.ndarray, real: np.ndarray) -> np.ndarray:
    """float64[groups, rows, columns], weights of least squared error that stay near the real ones."""
    above = found.product.swapaxes(1, 2) + kept @ real.swapaxes(1, 2)
    return np.linalg.solve(found.gram + kept, above).swapaxes(1, 2)


def rounded(real: np.ndarray, gram: np.ndarray, scales: np.ndarray, grid: Grid) -> np.ndarray:
    """float64[rows, columns]: integers, one column after the other, whose errors the columns after it make up for.

    Args:
        real:   float64[rows, columns], the weights.
        gram:   float64[columns, columns], inner products of what they multiply, positive definite.
        scales: float64[rows], the value of one step of the integers.
        grid:   The integers.
    """
    order = np.argsort(-np.diag(gram), kind="stable")  # what matters most is rounded while all others are free
    back = np.linalg.cholesky(np.linalg.inv(gram[np.ix_(order, order)])).T
    left, codes = real[:, order], np.zeros(real.shape)
    for column in range(real.shape[1]):
        code = grid.nearest(_divided(left[:, column], scales))
        error = (left[:, column] - scales * code) / back[column, column]
        left[:, column + 1:] -= error[:, None] * back[column, column + 1:]
        codes[:, order[column]] = code
    return codes


def descend(codes: np.ndarray, real: np.ndarray, gram: np.ndarray, scales: np.ndarray, grid: Grid, *, scaled: bool):
    """Change integers, in place, one after the other while that lessens (a q - w) gram (a q - w) of their rows.

    Arguments are those of `rounded`; `scaled` says whether each row has a scale of its own, which then follows.
    """
    squares = np.diag(gram)
    for _ in range(ROUNDS):
        slope, changed = (scales[:, None] * codes - real) @ gram, False
        for column in range(codes.shape[1]):
            step = _divided(slope[:, column], scales * squares[column])
            change = grid.nearest(codes[:, column] - step) - codes[:, column]
            at = np.flatnonzero(change)
            slope[at] += (scales[at] * change[at])[:, None] * gram[column]
            codes[at, column] += change[at]
            changed |= len(at) > 0
        if scaled:
            seen = codes @ gram
            square, product = (seen * codes).sum(1), (seen * real).sum(1)
            scales[:] = np.where((square > 0) & (product > 0), _divided(product, square), scales)
        if not changed:
            break


def ranged(part: Part, codes: InputCodes, entering: np.ndarray, made: np.ndarray) -> InputCodes:
    """Codes whose range brings the results of a layer closest to the float ones, up to a scale and offset of each row.

    Args:
        part:     The layer.
        codes:    Unsigned codes that another method has found.
        entering: Real[samples, ...], its inputs in quantised form, before its own quantiser.
        made:     float32[samples, outputs, ...], the results of the float layer.
    """
    step = max(1, len(entering) // RANGED)
    x, wanted = entering[::step], _shown(part, made[::step])
    low, high = min(float(entering.min()), 0.0), float(entering.max())
    lows = [codes.offset] if low == 0 else low * SHARES
    tried = [codes.reaching(offset, high * share)
             for offset in lows for share in SHARES if high > 0 and offset < high * share]

    def error(candidate: InputCodes) -> float:
        made = _shown(part, part.op.real(candidate.quantized(x).astype(np.float32), lengths=None))
        share = _divided((made * wanted).sum(1), np.square(made).sum(1))
        return float(np.square(share[:, None] * made - wanted).sum())

    return min((codes, *tried), key=error)


def ranged_by_outputs(codes: InputCodes, x: np.ndarray, outputs: Callable[[np.ndarray], np.ndarray]) -> InputCodes:
    """Codes of a network's input whose range brings the outputs of the float network closest to those without codes.

    A coefficient that is large and says little can make up most of what the first layer computes, so that its results
    do not tell which range is best. The upper end of the range and the lower one are found in turns.

    Args:
        codes:   Unsigned codes that another method has found.
        x:       Real[samples, ...], the inputs of the network.
        outputs: Computes float32[samples, outputs] of the float network.
    """
    x = x[::max(1, len(x) // WHOLE)]
    low, high, wanted = min(float(x.min()), 0.0), float(x.max()), outputs(x.astype(np.float32)).astype(np.float64)

    def error(candidate: InputCodes) -> float:
        return float(np.square(outputs(candidate.quantized(x).astype(np.float32)) - wanted).sum())

    for _ in range(TURNS):
        tried = [codes.reaching(codes.offset, high * share) for share in SHARES if codes.offset < high * share]
        codes = min((codes, *tried), key=error)
        if low < 0:
            end = codes.offset + codes.levels * codes.step
            codes = min((codes, *(codes.reaching(low * share, end) for share in LOW_SHARES)), key=error)
    return codes


def _shown(part: Part, made: np.ndarray) -> np.ndarray:
    """float64[outputs, positions]: results after their activation function, if it is a relu, less their means."""
    shown = np.moveaxis(made, 1, 0).reshape(made.shape[1], -1).astype(np.float64)
    shown = np.maximum(shown, 0) if part.activation is Activation.RELU else shown
    return shown - shown.mean(1, keepdims=True)


def _divided(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The quotient, and 0 where the divisor is 0."""
    return np.divide(above, below, out=np.zeros_like(above, dtype=np.float64), where=below != 0)
