"""Build simulated machines in parallel, before they are used."""

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from typing import Self

from concord.lib.processes import workers
from concord.lib.progress import Show
from concord.sim.machines.cache import under_way
from concord.sim.machines.cascade import cascade
from concord.sim.machines.kinds import MachineKind
from concord.spec.machine.config import Config

SECONDS = 2  #: Seconds between two looks at the builds that are under way.


class Builds:
    """Builds of several pipelines of machines. All begin at once, and continue while other machines already run.

    Each build has a process of its own, even if there are fewer cores than builds: most of the time a build uses one
    core only.

    Args:
        kind:    Kind of machine, by its name in `sim.machines.host.machine`.
        rows:    Configurations of the machines of each pipeline; equal ones are built once.
    """

    def __init__(self, kind: str, rows: Iterable[Sequence[Config]]):
        distinct = [] if kind == MachineKind.GOLDEN else list(dict.fromkeys(map(tuple, rows)))
        self._pool = workers(max(1, len(distinct)))
        self._done: dict[tuple[Config, ...], Future] = {
            configs: self._pool.submit(build, kind, configs) for configs in distinct}

    def wait(self, configs: Sequence[Config], show: Show):
        """Wait until the machines are built, and show how far the builds are.

        Raises:
            RuntimeError: a tool failed.
            ValueError:   hardware is not generated for such a machine.
        """
        if tuple(configs) not in self._done:  # golden is not built
            return
        build = self._done[tuple(configs)]
        while not wait([build], SECONDS).done:
            for name, (compiled, sources) in under_way().items():
                if sources:
                    show(f"compile {name}", compiled, sources, "")
                else:
                    show(f"verilate {name}", 0, 1, "")
        build.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error, *_):
        # After a failure the remaining builds are not needed.
        self._pool.shutdown(wait=error is None, cancel_futures=True)


def build(kind: str, configs: Sequence[Config]):
    """Build machines by starting and closing them, as the start makes whatever is missing."""
    cascade(kind, configs).close()
