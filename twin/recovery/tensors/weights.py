"""What products multiply with: weights, start values, and the proof that sums are exact and fit the accumulator."""

from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.machine.config import Config
from concord.twin.recovery.nodes.elements import Unrecognised, read_by
from concord.twin.recovery.nodes.nodes import ProgramNode
from concord.twin.recovery.tensors.drafts import Constant, DraftValue
from concord.twin.recovery.tensors.views import Views

_EXACT = 53  #: Bits of sums that float64 holds.


class TooWide(Exception):
    """Sums do not fit float64."""


@dataclass(kw_only=True, slots=True, eq=False)
class UnpaddedProduct:
    """A product without padding.

    Attributes:
        node:    Its first strip.
        weights: int64[rows, columns], index of each mantissa; -1 for a weight of 0.
        start:   float64[rows], start values.
        places:  Places of the start values in BiasRf, if they are biases as the firmware has them.
        like:    A value whose codes it reads.
    """

    node: ProgramNode
    weights: np.ndarray
    start: np.ndarray
    places: np.ndarray | None
    like: DraftValue


class FirmwareWeights:
    """The weights of a firmware.

    Args:
        firmware: The firmware.
        views:    All values.

    Attributes:
        mantissas: Mantissas of all tiles, and a 0 after them.
    """

    def __init__(self, firmware: Firmware, views: Views):
        self._firmware, self._config, self._views = firmware, firmware.config, views
        self.mantissas = np.append(firmware.tiles.mantissas.reshape(-1).astype(np.int64), 0)
        self._biases = firmware.biases.reshape(-1)

    def like(self, table: np.ndarray, codes: str) -> DraftValue:
        """A value whose codes a product reads, which must be of its own mode."""
        found = [self._views.values[number] for number in read_by(table)]
        if not found:
            raise Unrecognised("a product reads nothing but constants")
        if any((each.codes, each.zero) != (codes, found[0].zero) for each in found):
            raise Unrecognised("a product reads codes of different kinds")
        return found[0]

    def start(self, node: ProgramNode, live: np.ndarray, weights: np.ndarray,
              like: DraftValue) -> tuple[np.ndarray, np.ndarray | None]:
        """float64[rows], what is added to the sums of codes, and the places of the biases in BiasRf."""
        if not node.settings[0]:
            return np.zeros(len(weights)), None
        start, places = np.zeros(len(weights)), None
        if node.start is not None:
            places = node.start[np.flatnonzero(live)]
            start = np.append(self._biases, 0)[np.minimum(places, self._biases.size)].astype(np.float64)
        if like.zero:
            start, places = start - like.zero * self.mantissas[weights].sum(1, dtype=np.float64), None
        return start, places

    def known(self, table: np.ndarray, weights: np.ndarray, like: DraftValue, node: ProgramNode) -> np.ndarray:
        """float64[rows], the products of columns that are the same constants everywhere."""
        values = self._views.code_values(table, like)
        if (values != values[0]).any():
            raise Unrecognised("a product reads constants that differ from position to position")
        return self.reals(node, weights).astype(np.float64) @ values[0]

    def reals(self, node: ProgramNode, weights: np.ndarray) -> np.ndarray:
        """The weights: integers, or real numbers in block floating point."""
        mantissas = self.mantissas[weights]
        if node.settings[0]:
            return mantissas
        size, fmt = self._config.native_dim, self._config.weights
        exponents = np.append(self._firmware.tiles.exponents.reshape(-1), 0)[np.maximum(weights, 0) // size]
        return np.ldexp(mantissas.astype(np.float64), exponents.astype(np.int64) - fmt.bits + 1).astype(np.float32)

    def arguments(self, made: UnpaddedProduct, weights: np.ndarray) -> tuple[list[Constant], dict]:
        """Arguments after the operand, and settings.

        Raises:
            TooWide: float64 does not hold the sums.
        """
        reals, settings = self.reals(made.node, weights), {}
        arguments = self._stored(made, weights, reals)
        if made.node.settings[1]:
            settings["scale"] = made.node.settings[1]
        return arguments, settings | self._wrap(made, reals)

    def accumulated(self, made: UnpaddedProduct, weights: np.ndarray) -> tuple[list[Constant], dict]:
        """Arguments after the operand, and settings, of a product that is computed in whole numbers."""
        config, integer = self._config, made.node.settings[0]
        if not integer:  # Start values count in the accumulator's last bit.
            made.start = np.ldexp(made.start, config.acc_frac)
        units = (0, 0) if integer else tuple(fmt.e_min - fmt.bits + 1 for fmt in (config.activations, config.weights))
        settings = {"bits": config.sum_bits, "units": units, "shift": 0 if integer else config.alignment,
                    "scale": made.node.settings[1] if integer else config.acc_frac}
        return self._stored(made, weights, self.reals(made.node, weights)), settings

    def _stored(self, made, weights, reals) -> list[Constant]:
        """Weights, and start values where there are some."""
        arguments = [Constant(values=reals, role="weights", memory="matrix_rf", places=weights,
                              bits=self._config.weights.bits)]
        if made.start.any():
            arguments.append(Constant(values=made.start, role="start", memory="bias_rf" if made.places is not None
                                      else "", places=made.places))
        return arguments

    def _wrap(self, made, reals) -> dict:
        """The width of the accumulator, if a sum may not fit it."""
        integer, like = made.node.settings[0], made.like
        axes = tuple(range(1, reals.ndim))
        magnitudes = np.abs(reals.astype(np.float64))
        sums = magnitudes.sum(axes)
        signed = made.start + like.zero * reals.astype(np.float64).sum(axes) if integer else made.start
        bound, inner = sums * like.limit + np.abs(signed), sums * (like.limit + like.zero) + np.abs(made.start)
        return wrapping(self._config, float(bound.max(initial=0)), float(inner.max(initial=0)), integer=integer)


def wrapping(config: Config, bound: float, inner: float, *, integer: bool) -> dict:
    """The width of the accumulator as settings, if a sum may not fit it.

    Args:
        config:  The machine.
        bound:   Largest magnitude of a sum on the machine.
        inner:   Largest magnitude of a sum of the twin.
        integer: Whether the product is in integer mode.

    Raises:
        TooWide: float64 does not hold the sums.
    """
    # The last bits of the accumulator that all products leave at 0 need no room.
    unused = 0 if integer else config.alignment
    fraction, width = 0 if integer else config.acc_frac - unused, config.sum_bits - unused
    if inner * 2.0**fraction >= 2.0**_EXACT:
        raise TooWide
    if bound * 2.0**fraction < 2.0 ** (width - 1):
        return {}
    if width < 2:
        raise TooWide
    return {"wrap": width} | ({"fraction": fraction} if fraction else {})


class RealWeights(FirmwareWeights):
    """Weights in full precision; sums of real products need neither a proof nor a width."""

    def __init__(self, firmware: Firmware, views: Views):
        super().__init__(firmware, views)
        images = firmware.full_precision
        self.mantissas, self._biases = np.append(images.tiles.reshape(-1), 0.0), images.biases.reshape(-1)

    def like(self, table: np.ndarray, codes: str) -> DraftValue:
        """A value that the product reads; all of them hold numbers."""
        return super().like(table, "")

    def reals(self, node: ProgramNode, weights: np.ndarray) -> np.ndarray:
        """The weights, float64."""
        return self.mantissas[weights]

    def _wrap(self, made, reals) -> dict:
        return {}
