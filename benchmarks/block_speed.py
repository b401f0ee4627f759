"""Time of quantising 1,024 x 1,024 numbers to blocks of 16 with 8-bit mantissas, in one interleaved run.

If QPyTorch is installed, its `block_quantize` with rounding to nearest is timed as well.
"""

from collections.abc import Callable

import torch
from concord.benchmarks.interleaved import columns, rows
from concord.spec.numbers.formats import Format
from concord.train.qat.block_quantizer import quantize_block
from rich.console import Console

SIZE, BLOCK, ROUNDS = 1024, 16, 50
FORMAT = Format(bits=8, symmetric=True)
#: Axes of a block: along neighbours in memory, or along the other axis, like the channels of images.
AXES = {"16 neighbours of a row": 1, "16 neighbours of a column": 0}


def ours(x: torch.Tensor, axis: int) -> dict[str, Callable[[], object]]:
    """Our quantiser, in eager mode and compiled.

    Raises:
        RuntimeError: their results differ.
    """
    compiled = torch.compile(quantize_block)
    sizes = x * 2.0 ** torch.randint(-30, 30, (SIZE, SIZE))  # some are subnormals or infinities of binary16
    sizes[:9, :9] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1.0, 2.0**-26, 1e38, 1e-45])
    if not torch.equal(compiled(sizes, FORMAT, BLOCK, axis), quantize_block(sizes, FORMAT, BLOCK, axis)):
        raise RuntimeError("the compiled quantiser gives other bits than the eager one; report this defect")
    return {"this, eager": lambda: quantize_block(x, FORMAT, BLOCK, axis),
            "this, compiled": lambda: compiled(x, FORMAT, BLOCK, axis)}


def qpytorch(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """QPyTorch on blocks along a row, which is its fastest case."""
    try:
        from qtorch.quant import block_quantize
    except ImportError:
        return {}
    rows = x.view(-1, BLOCK)
    return {"QPyTorch, of a row": lambda: block_quantize(rows, wl=FORMAT.bits, dim=0, rounding="nearest")}


def report(console: Console):
    """Measure and print tables."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(SIZE, SIZE)
    table = columns("blocks", "by", f"{SIZE} x {SIZE} numbers to 8-bit mantissas, one thread", "this, eager")
    with torch.no_grad():
        for name, axis in AXES.items():
            rows(table, name, ours(x, axis) | qpytorch(x), ROUNDS, "this, eager")
    console.print(table)
