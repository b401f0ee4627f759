"""Simulated machines, built side by side and ahead of their use."""

import multiprocessing
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Self

from concord.sim.machines.host import machine
from concord.spec.config import Config


class Builds:
    """Builds of some machines, which all begin at once and go on while others already run.

    Each has a process of its own, more of them than cores as the case may be: a build waits for one core most of the
    time.

    Args:
        kind:    Kind of machine, as `sim.machines.host.machine` calls it.
        configs: What to build; equal ones are built once.
    """

    def __init__(self, kind: str, configs: Iterable[Config]):
        distinct = list(dict.fromkeys(configs))
        self._pool = ProcessPoolExecutor(len(distinct), multiprocessing.get_context("spawn"))
        self._done: dict[Config, Future] = {config: self._pool.submit(build, kind, config) for config in distinct}

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
