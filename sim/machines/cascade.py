"""A pipeline of machines, golden or simulated: each sends its INPUT messages to the next one, without the host.

The host has the streams and the control port of every machine; all simulated machines have one clock.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from concord.golden.host.messages import routed
from concord.sim.machines import host
from concord.sim.machines.host import GoldenMachine, HardwareMachine, Machine, machine
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Status
from concord.spec.machine.config import Config


class Cascade:
    """A pipeline of machines; one machine is the shortest.

    Args:
        machines: The machines, in order.
    """

    def __init__(self, machines: Sequence[Machine]):
        self.machines = tuple(machines)
        self._files = ExitStack()
        for one in self.machines:
            self._files.callback(one.close)

    @property
    def cycles(self) -> int:
        """Clock cycles since power-up; 0 on golden, which has no clock."""
        return self.machines[0].cycles

    def close(self) -> None:
        """Release what the machines hold."""
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class LinkedGolden(GoldenMachine):
    """A golden machine that sends INPUT messages to the next machine, whenever it has run."""

    def __init__(self, config: Config, behind: Machine | None):
        super().__init__(config)
        self._behind, self._received = behind, []

    def run(self, timeout: int = 100_000_000) -> Status:
        status = super().run(timeout)
        self._forward()
        return status

    def status(self) -> Status:
        """State of the machine, which runs as far as it can before."""
        return self.run()

    def receive(self) -> list[bytes]:
        self._forward()
        received, self._received = self._received, []
        return received

    def _forward(self) -> None:
        messages = super().receive()
        if self._behind:
            messages, behind = routed(messages)
            self._behind.send(*behind)
        self._received += messages


def cascade(kind: str, configs: Sequence[Config], **options) -> Cascade:
    """Make a pipeline of machines of one kind, a name of `kinds.MachineKind`.

    Args:
        kind:    Kind of the machines.
        configs: Configuration of each machine; all have the same `message_bytes`.
        options: Options of `host.machine`; several machines write no waveform.

    Raises:
        ValueError: there is no such kind, or it has no pipelines.
    """
    if len(configs) == 1:
        return Cascade([machine(kind, configs[0], **options)])
    match kind:
        case "golden":
            machines = []
            for config in reversed(configs):
                machines.insert(0, LinkedGolden(config, machines[0] if machines else None))
            return Cascade(machines)
        case "library":
            from concord.sim.machines.library import linked
            return Cascade([HardwareMachine(link) for link in linked(configs, **options)])
        case "cocotb":
            from concord.sim.machines.cocotb_client import linked
            return Cascade([HardwareMachine(link) for link in linked(configs, **options)])
    raise ValueError(f"{MachineKind(kind)} is one machine, and the firmware is for {len(configs)}: compile it for one")


def build(kind: str, configs: Sequence[Config]) -> Path | None:
    """Build what a cascade of `kind` runs on; None for golden, which needs none."""
    if kind == "cocotb" and len(configs) > 1:
        from concord.sim.machines.cocotb_client import build_cascade
        return build_cascade(configs)
    return [host.build(kind, config) for config in dict.fromkeys(configs)][-1]
