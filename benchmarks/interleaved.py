"""Times of several calls, a few of each in turn: what disturbs one disturbs all, and caches hold a call's own."""

import time
from collections.abc import Callable

import numpy as np
from rich.table import Table

#: Rounds that warm up.
WARM = 2
#: Calls in a row, of which the first is not timed.
CALLS = 3


def columns(of: str, kind: str, title: str, base: str = "FP32") -> Table:
    """An empty table for `rows`."""
    return Table(of, kind, "ms, median", "ms, least", f"multiple of {base}", title=title)


def rows(table: Table, name: str, calls: dict[str, Callable[[], object]], rounds: int, base: str = "FP32"):
    """Measure, and add a row for each call, as multiples of the base, which is one of them."""
    times = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            call()
            began = time.perf_counter()
            for _ in range(CALLS - 1):
                call()
            times[key].append(1000 * (time.perf_counter() - began) / (CALLS - 1))
    whole = np.median(times[base][WARM:])
    for key, found in times.items():
        middle = np.median(found[WARM:])
        table.add_row(name, key, f"{middle:.2f}", f"{min(found):.2f}", f"{middle / whole:.2f}")
