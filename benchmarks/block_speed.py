"""Time of quantising 1,024 x 1,024 numbers to blocks of 16 with 8-bit mantissas, in one interleaved run.

QPyTorch takes part where it is installed, by its own `block_quantize`, rounding to nearest.
"""

from collections.abc import Callable

import torch
from concord.benchmarks.interleaved import columns, rows
from concord.spec.formats import Format
from concord.train.qat.block_quantizer import quantize_block
from rich.console import Console

SIZE, BLOCK, ROUNDS = 1024, 16, 50
FORMAT = Format(bits=8, symmetric=True)
#: What a block lies along: the axis of neighbours in memory, or the other, as the channels of images do.
AXES = {"16 neighbours of a row": 1, "16 neighbours of a column": 0}


def ours(x: torch.Tensor, axis: int) -> dict[str, Callable[[], object]]:
    """Eager and compiled.

    Raises:
        RuntimeError: they differ.
    """
    compiled = torch.compile(quantize_block)
    sizes = x * 2.0 ** torch.randint(-30, 30, (SIZE, SIZE))  # subnormals and infinities of binary16 among them
    sizes[:9, :9] = torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1.0, 2.0**-26, 1e38, 1e-45])
    if not torch.equal(compiled(sizes, FORMAT, BLOCK, axis), quantize_block(sizes, FORMAT, BLOCK, axis)):
        raise RuntimeError("the compiled quantiser gives other bits than the eager one; report this defect")
    return {"this, eager": lambda: quantize_block(x, FORMAT, BLOCK, axis),
            "this, compiled": lambda: compiled(x, FORMAT, BLOCK, axis)}


def qpytorch(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    """QPyTorch on neighbours of a row, which suit it best."""
    try:
        from qtorch.quant import block_quantize
    except ImportError:
        return {}
    rows = x.view(-1, BLOCK)
    return {"QPyTorch, of a row": lambda: block_quantize(rows, wl=FORMAT.bits, dim=0, rounding="nearest")}


def report(console: Console):
    """Measure and print."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x = torch.randn(SIZE, SIZE)
    table = columns("blocks", "by", f"{SIZE} x {SIZE} numbers to 8-bit mantissas, one thread", "this, eager")
    with torch.no_grad():
        for name, axis in AXES.items():
            rows(table, name, ours(x, axis) | qpytorch(x), ROUNDS, "this, eager")
    console.print(table)
