"""What the commands print as tables."""

from rich.table import Table

from compiler.network import Compiled


def usage_table(compiled: Compiled) -> Table:
    """What the network uses of each memory."""
    table = Table("memory", "used", "of", "", title="memories", box=None, title_justify="left")
    for name, (used, available) in compiled.usage.items():
        table.add_row(name, str(used), str(available), f"{used / available:.0%}")
    return table


def bound_table(compiled: Compiled) -> Table:
    """Whether sums may wrap."""
    table = Table("product", "largest sum", "accumulator", "", title="sums", box=None, title_justify="left")
    for bound in compiled.bounds:
        verdict = "cannot wrap" if bound.proven else "may wrap"
        if bound.clamped:
            verdict += f"; {bound.clamped:.1%} of the weight blocks at an end of the exponent range"
        table.add_row(bound.product, f"{bound.bits} bits", f"{bound.has} bits", verdict)
    return table
