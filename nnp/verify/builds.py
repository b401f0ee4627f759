"""Simulated machines, built side by side and ahead of their use."""

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Self

from concord.sim.machines.host import machine
from concord.spec.config import Config


class Builds:
    """Builds of some machines, which begin at once and go on while others already run.

    Args:
        kind:    Of machine, as `sim.machines.host.machine` calls it.
        configs: What to build; equal ones are built once.
        jobs:    Most builds at a time.
    """

    def __init__(self, kind: str, configs: Iterable[Config], jobs: int):
        self._pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
        self._done: dict[Config, Future] = {c: self._pool.submit(build, kind, c) for c in dict.fromkeys(configs)}

    def wait(self, config: Config):
        """Return when the machine is built.

        Raises:
            RuntimeError: a tool failed.
            ValueError:   hardware is not generated for such a machine.
        """
        self._done[config].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error, *_):
        # Nobody waits for builds where something has failed.
        self._pool.shutdown(wait=error is None, cancel_futures=True)


def build(kind: str, config: Config):
    """Make what a machine needs, and let the machine go."""
    machine(kind, config).close()
