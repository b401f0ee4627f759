"""What it costs to watch a training: `nox -s bench_dashboard`.

The same command runs without a page, and with `--run` in a folder of a dashboard from which two clients read all that a
page gets, in turns. CPU time is that of the training's process, from its start to its end.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from concord.campaigns.dashboard_kills import DashboardProcess
from concord.nnp.lib.errors import sentences
from concord.tests.own_digits import written
from httpx2 import HTTPStatusError
from rich.console import Console
from rich.table import Table

CLIENTS = 2
#: The training: a small perceptron, whose steps take least, so that what is shown weighs most.
OPTIONS = ("--weights-bits", "8", "--input-bits", "8", "--accumulator", "14", "--rate", "0.001", "--seed", "0")


class Client(threading.Thread):
    """Reads the stream of a run until it ends, without drawing anything.

    Attributes:
        read: Seconds and bytes of each piece that came.
    """

    def __init__(self, server: DashboardProcess, run: str):
        super().__init__(daemon=True)
        self.server, self.run_name, self.read = server, run, []

    def run(self):
        """Read."""
        while True:
            try:
                with self.server.client.stream("GET", f"/runs/{self.run_name}/stream") as answer:
                    for piece in answer.raise_for_status().iter_lines():
                        self.read.append((time.monotonic(), len(piece) + 1))
                        if '"condition": "finished"' in piece:
                            return
            except HTTPStatusError:  # the run has no folder yet
                time.sleep(0.1)

    def rate(self, first: float, last: float) -> float:
        """Bytes a second between two shares of the time."""
        begun, took = self.read[0][0], self.read[-1][0] - self.read[0][0]
        low, high = begun + first * took, begun + last * took
        return sum(size for when, size in self.read if low <= when < high) / (high - low)


def processor_time(words: list[str]) -> float:
    """Seconds of CPU time of a command of `nnp`, its children included."""
    process = subprocess.Popen([sys.executable, "-m", "concord.nnp.main", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise ValueError(f"`nnp {' '.join(words)}` ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_utime + used.ru_stime


@sentences
def main(
    pairs: Annotated[int, typer.Option(help="Number of trainings of each kind.", min=1)] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each, of two steps.", min=60)] = 5000,
) -> None:
    """Train in turns, and print what watching costs."""
    console, ratios = Console(), []
    table = Table("pair", "without, s of CPU", "watched, s of CPU", "ratio", "bytes a second, early", "late")
    with tempfile.TemporaryDirectory() as name, ExitStack() as at_the_end:
        folder = Path(name)
        network, data = written(folder)
        server = DashboardProcess(folder / "runs")
        at_the_end.callback(server.kill)
        command = ["train", network, "--data", data, *OPTIONS, "--epochs", f"{epochs},1"]
        for pair in range(1, pairs + 1):
            without = processor_time([*command, "--out", str(folder / "model.safetensors")])
            clients = [Client(server, f"run{pair}") for _ in range(CLIENTS)]
            for client in clients:
                client.start()
            watched = processor_time([*command, "--run", str(folder / "runs" / f"run{pair}")])
            for client in clients:
                client.join()
            ratios.append(watched / without)
            rates = (clients[0].rate(*part) for part in ((0.05, 0.15), (0.85, 0.95)))
            table.add_row(str(pair), f"{without:.1f}", f"{watched:.1f}", f"{ratios[-1]:.3f}", *(
                f"{rate:,.0f}" for rate in rates))
    console.print(table)
    console.print(f"{CLIENTS} clients: {statistics.median(ratios) - 1:+.1%} CPU time in the median of {pairs} pairs")


if __name__ == "__main__":
    typer.run(main)
