"""What the recovery computes with: nodes of elements, and loops over nodes."""

from dataclasses import dataclass, field

import numpy as np
from concord.twin.recovery.nodes.elements import Constants

PRODUCTS = ("product", "matmul")  #: Operations of nodes that are products.
#: Operations of which each result depends on more elements than that of its number.
REDUCTIONS = ("softmax", "largest", "total", "running")
WHOLE = ("max_pool", *REDUCTIONS)


@dataclass(kw_only=True, slots=True, eq=False)
class ProgramNode:
    """One operation on elements, as one step of the program computes it.

    Attributes:
        op:        Function of the vocabulary; `product` for `dense` and `convolution`, `matmul` for a product of two
            computed tensors; or the kind of a leaf: `input`, `item`, `state`, `final`, `collected`.
        positions: Their number: iterations, or time steps.
        width:     Elements of each position.
        reads:     References int64[positions, n] of each operand; of a pool [positions, n, pixels]; of `matmul` those
            to codes [positions, n], and to the numbers [width, zeros + n] that become rows of tiles, with zeros that
            begin a block.
        settings:  Settings of the function; of a quantiser, a `QuantizerCall`; of `matmul` that of its rows, or None.
        out:       References int64[positions * width]: an element of this node, or the constant that it always is.
        address:   Address of the instruction; -1 for leaves.
        across:    IterationsX of its chain.
        weights:   Of a product, int64[rows, n], index of each mantissa in all tiles, row by row; -1 for a weight of 0.
        start:     Of a product, int64[rows], places of the start values in BiasRf; None without.
    """

    op: str
    positions: int
    width: int
    reads: tuple[np.ndarray, ...] = ()
    settings: tuple = ()
    out: np.ndarray | None = None
    address: int = -1
    across: int = 1
    weights: np.ndarray | None = None
    start: np.ndarray | None = None


@dataclass(kw_only=True, slots=True, eq=False)
class Carried:
    """What a pass leaves for the next one.

    Attributes:
        leaf:    Node that stands for it in the body.
        initial: References int64[elements] before the first pass.
        next:    References int64[elements] to nodes of the body.
    """

    leaf: int
    initial: np.ndarray
    next: np.ndarray


@dataclass(kw_only=True, slots=True, eq=False)
class Body:
    """A loop over nodes.

    Attributes:
        nodes:     Nodes of the body, in order.
        items:     Node that stands for the item in the body, and references int64[passes, elements] from outside.
        carried:   What passes leave for the next one.
        finals:    Node after the loop, and the references to nodes of the body that it has from the last pass.
        collected: Node after the loop, and the references to nodes of the body that it has from all passes.
        timed:     Whether the host sets the number of passes.
    """

    nodes: list[int] = field(default_factory=list)
    items: list[tuple[int, np.ndarray]] = field(default_factory=list)
    carried: list[Carried] = field(default_factory=list)
    finals: list[tuple[int, np.ndarray]] = field(default_factory=list)
    collected: list[tuple[int, np.ndarray]] = field(default_factory=list)
    timed: bool = False


@dataclass(kw_only=True, slots=True, eq=False)
class ProgramNodes:
    """A program as nodes.

    Attributes:
        constants: The constants.
        nodes:     All nodes by index; None for the two nodes of constants.
        inputs:    Nodes of the inputs, one for each direction of the sequence.
        main:      Regions, which are indices of nodes outside of loops, and loops, in order.
        outputs:   References int64[outputs], or int64[passes, outputs] where the host gets a result of each time step.
    """

    constants: Constants
    nodes: list[ProgramNode | None]
    inputs: list[int]
    main: list[list[int] | Body]
    outputs: np.ndarray


def across_of(nodes: list[ProgramNode], positions: int) -> list[int]:
    """Candidates for the number of positions across, the likeliest first."""
    likely = [node.across for node in nodes]
    return list(dict.fromkeys([*likely, *(count for count in range(positions, 0, -1) if positions % count == 0)]))


def shape_of(nodes: list[ProgramNode], positions: int, width: int) -> tuple[int, ...]:
    """Shape of a result of so many positions."""
    if positions == 1:
        return (width,)
    across = next((node.across for node in nodes if positions % node.across == 0 and node.across > 1), positions)
    return positions // across, across, width
