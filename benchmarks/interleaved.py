"""Times of several calls, measured in turn: a few calls of each at a time.

A disturbance then affects all of them, and within a few calls in a row the caches hold the data of that call.
"""

import time
from collections.abc import Callable

import numpy as np
from rich.table import Table

#: Number of warm-up rounds.
WARM = 2
#: Number of calls in a row; the first one is not timed.
CALLS = 3


def columns(of: str, kind: str, title: str, base: str = "FP32") -> Table:
    """An empty table for `rows`."""
    return Table(of, kind, "ms, median", "ms, least", f"multiple of {base}", title=title)


def rows(table: Table, name: str, calls: dict[str, Callable[[], object]], rounds: int, base: str = "FP32"):
    """Measure all calls, and add a row for each; times are multiples of that of the call named `base`."""
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
