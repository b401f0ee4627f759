"""A worker of a cluster is killed in the middle of random programs: all results are there once, with the same bytes.

`nox -s cluster -- --programs 2000` begins a scheduler and two workers on this computer, runs random programs on them
and kills one worker (SIGKILL); then it runs the same programs without a cluster, and compares the files of results.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from concord.campaigns.random_regression import CHUNK
from concord.lib.extras import require
from concord.nnp.lib.errors import sentences
from rich.console import Console

#: Machine of the programs.
CONFIG = "tiny"
#: Seconds until the cluster has begun, at most, and between two looks at the file.
PATIENCE, LOOK = 60, 0.2


@contextmanager
def process(*words: str, output: Path) -> Iterator[subprocess.Popen]:
    """A module of Python in a process group of its own, which ends with the context."""
    with output.open("wb") as file:
        made = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield made
    finally:
        killed(made)


def killed(group: subprocess.Popen):
    """End a process and its children at once (SIGKILL)."""
    if group.poll() is None:
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[tuple[str, list[subprocess.Popen]]]:
    """A scheduler on this computer, and workers: its address and their processes.

    Raises:
        RuntimeError: they do not begin.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
    began, scheduler, worker = time.monotonic(), "distributed.cli.dask_scheduler", "distributed.cli.dask_worker"
    port = address.rpartition(":")[2]
    with process(scheduler, "--host", "127.0.0.1", "--port", port, "--no-dashboard", output=folder / "scheduler.log"):
        from distributed import Client

        words = worker, address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(folder)
        with ExitStack() as stack:
            made = [stack.enter_context(process(*words, output=folder / f"worker-{number}.log"))
                    for number in range(workers)]
            with Client(address, timeout=PATIENCE, set_as_default=False) as client:
                while len(client.nthreads()) < workers:
                    if time.monotonic() - began > PATIENCE:
                        raise RuntimeError(f"the cluster does not begin: see {folder}")
                    time.sleep(LOOK)
            yield address, made


def numbers(path: Path) -> list[int]:
    """The numbers of the batches that a file of results has."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line)[0] for line in text[: text.rfind("\n") + 1].splitlines()[1:]]


def campaign(programs: int, file: Path, *words: str) -> list[str]:
    """The words after `python -m` of a campaign of random programs."""
    return ["concord.campaigns.random_regression", "--config", CONFIG, "--programs", str(programs),
            "--results", str(file), *words]


@sentences
def main(programs: Annotated[int, typer.Option(help="Number of random programs.", min=200)] = 20_000) -> None:
    """Run random programs with and without a cluster; the exit code is 1 if the files differ."""
    require("cluster")
    console = Console(soft_wrap=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        folder = Path(name)
        one, other = folder / "cluster.jsonl", folder / "alone.jsonl"
        with cluster(folder) as (address, workers):
            began = time.monotonic()
            with process(*campaign(programs, one, "--scheduler", address), output=folder / "campaign.log") as running:
                batches = -(-programs // CHUNK)
                while running.poll() is None and len(numbers(one)) < batches // 2:
                    time.sleep(LOOK)
                before = len(numbers(one))
                killed(workers[0])
                if running.wait() or before >= batches:
                    raise RuntimeError(f"the cluster has failed: {(folder / 'campaign.log').read_text()}")
            console.print(
                f"cluster: one of two workers killed after {before} of {batches} batches; "
                f"{time.monotonic() - began:.0f} s"
            )
        began = time.monotonic()
        with process(*campaign(programs, other, "-n", "2"), output=folder / "alone.log") as running:
            if running.wait():
                raise RuntimeError(f"the campaign has failed: {(folder / 'alone.log').read_text()}")
        console.print(f"alone: {time.monotonic() - began:.0f} s")
        once, same = numbers(one) == list(range(batches)), one.read_bytes() == other.read_bytes()
        console.print(
            f"{programs:,} programs: {'all' if once else 'NOT all'} batches there once; files of "
            f"{one.stat().st_size:,} bytes {'equal' if same else 'DIFFER'}"
        )
    raise typer.Exit(not (once and same))


if __name__ == "__main__":
    typer.run(main)
