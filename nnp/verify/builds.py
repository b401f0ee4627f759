"""Build simulated machines in parallel, before they are used."""

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Self

from concord.golden.lib.processes import workers
from concord.nnp.lib.options import MachineKind
from concord.sim.machines.host import machine
from concord.spec.config import Config


class Builds:
    """Builds of several machines. All begin at once, and continue while other machines already run.

    Each build has a process of its own, even if there are fewer cores than builds: most of the time a build uses one
    core only.

    Args:
        kind:    Kind of machine, by its name in `sim.machines.host.machine`.
        configs: Configurations to build; equal ones are built once.
    """

    def __init__(self, kind: str, configs: Iterable[Config]):
        distinct = [] if kind == MachineKind.GOLDEN else list(dict.fromkeys(configs))
        self._pool = workers(max(1, len(distinct)))
        self._done: dict[Config, Future] = {config: self._pool.submit(build, kind, config) for config in distinct}

    def wait(self, config: Config):
        """Wait until the machine is built.

        Raises:
            RuntimeError: a tool failed.
            ValueError:   hardware is not generated for such a machine.
        """
        if config in self._done:  # golden is not built
            self._done[config].result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error, *_):
        # After a failure the remaining builds are not needed.
        self._pool.shutdown(wait=error is None, cancel_futures=True)


def build(kind: str, config: Config):
    """Build a machine by starting and closing it, as the start makes whatever is missing."""
    machine(kind, config).close()
