"""Dense layers, in which each row of weights is multiplied by the whole input once."""

from dataclasses import dataclass

from concord.net.layers import checks
from concord.net.layers.rows import BlockRows, IntegerRows


class OnePosition:
    """Geometry of a dense layer. Weights are [outputs, inputs]; a block is `block` neighbouring weights of a row."""

    __slots__ = ()

    groups = 1
    border = 0

    def bordered(self, x, value):
        return x

    def unbordered(self, x):
        return x

    def per_channel(self, values):
        return values

    def at_positions(self, x):
        return x[None]

    def flattened(self, y):
        return y

    def weights_shape(self, name: str) -> tuple[int, int]:
        return checks.matrix_shape(self, name)

    def exponents_shape(self, weights: tuple[int, int]) -> tuple[int, int]:
        return weights[0], checks.block_count(self, weights[1], self.places)

    @property
    def channels_in(self) -> int:
        return self.inputs


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Dense(OnePosition, IntegerRows):
    """Integer dense layer with weights int16[outputs, inputs], R and O uint16[inputs], as `IntegerRows` describes."""

    title = "dense, integer"

    @property
    def inputs(self) -> int:
        return self.weights.shape[1]

    @property
    def outputs(self) -> int:
        return self.weights.shape[0]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class BlockDense(OnePosition, BlockRows):
    """Block floating point dense layer: mantissas int16[outputs, inputs], exponents int8[outputs, blocks].

    A block is `block` neighbouring weights of a row (the last block may be shorter), and the same number of inputs;
    `places` says which of them are neighbours. `BlockRows` describes the rest.
    """

    title = "dense, block floating point"

    @property
    def inputs(self) -> int:
        return self.mantissas.shape[1]

    @property
    def outputs(self) -> int:
        return self.mantissas.shape[0]
