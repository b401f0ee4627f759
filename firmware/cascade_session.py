"""Run a network on a pipeline of machines, or on one. The host loads and starts them, sends inputs and takes results.

Results go from machine to machine without the host.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import numpy as np
from concord.firmware.cascade import Cascade
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.sim.machines import cascade as rows
from concord.sim.machines.host import MachineTimeout
from concord.spec.host.registers import Control, Counter, Register, Status
from concord.spec.isa.memories import Mem

if TYPE_CHECKING:
    from concord.firmware.accelerator_session import AcceleratorSession

#: Clock cycles between two looks of the host at the machines.
LOOK = 16
#: Clock cycles without an end of any program after which a stream of samples is given up.
PATIENCE = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Streamed:
    """The results of samples that follow each other, so that all machines work at the same time.

    Attributes:
        outputs: Results, uint16[samples, outputs].
        ends:    Clock cycle, from the first start, at which the last machine ended each sample.
    """

    outputs: np.ndarray
    ends: tuple[int, ...]

    @property
    def latency(self) -> int:
        """Clock cycles from the first start to the first result."""
        return self.ends[0]

    @property
    def interval(self) -> float:
        """Clock cycles from one result to the next, once all machines are at work."""
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1) if len(self.ends) > 1 else float(self.ends[0])


class CascadeSession:
    """Firmware in the memories of machines, ready for input.

    Args:
        machines: The machines.
        firmware: The firmware of each.

    Raises:
        ValueError: a machine has another configuration than its firmware.
    """

    def __init__(self, machines: rows.Cascade, firmware: Sequence[Firmware]):
        self._machines = machines
        self.sessions = tuple(Session(*pair) for pair in zip(machines.machines, firmware, strict=True))
        for one, other in pairwise(self.sessions):
            one.machine.write_register(Register.PEER, other.machine.config.digest)

    def infer(self, sample: np.ndarray, *, keep_state: bool = False) -> np.ndarray:
        """Run one sample, and return the outputs of the network, uint16[outputs].

        Arguments and errors are those of `Session.infer`.
        """
        if len(self.sessions) == 1 and self.sessions[0].firmware.batch > 1:
            return self.sessions[0].infer(sample, keep_state=keep_state)
        self._load(sample, keep_state)
        first, last = self.sessions[0], self.sessions[-1]
        if first.firmware.inputs:
            first.machine.send(first.firmware.input_message(sample))
        try:
            for session in reversed(self.sessions):
                session.machine.start()
            for session in self.sessions:
                status = session.machine.run()
                session.check(status)
        except MachineTimeout as error:
            raise RuntimeError(str(error)) from error
        return last.firmware.output(last.machine.receive())

    def infer_all(self, samples: Sequence[np.ndarray]) -> np.ndarray:
        """Run samples one after the other, or as many at once as the firmware of one machine takes."""
        if len(self.sessions) == 1 and self.sessions[0].firmware.batch > 1:
            return self.sessions[0].infer_all(samples)
        return np.stack([self.infer(sample) for sample in samples])

    def stream(self, samples: Sequence[np.ndarray]) -> Streamed:
        """Run samples of one length in a row: a machine begins the next sample while others work on this one.

        Args:
            samples: Input patterns as in `infer`; all with as many time steps.

        Raises:
            ValueError:   the samples have different numbers of time steps.
            RuntimeError: a machine stopped, or nothing ends.
        """
        if len({len(sample) if self.sessions[0].firmware.recurrent else 1 for sample in samples}) > 1:
            raise ValueError("samples of different lengths need other programs, which wait until all machines are done")
        self._load(samples[0], False)
        machines = [session.machine for session in self.sessions]
        first, last = self.sessions[0], self.sessions[-1]
        for one in machines:
            one.settle()
        machines[0].send(*(first.firmware.input_message(sample) for sample in samples))
        ends = self._start_all(len(samples))
        machines[-1].settle()
        return Streamed(outputs=_results(last.firmware, last.machine.receive(), len(samples)), ends=tuple(ends))

    def _start_all(self, count: int) -> list[int]:
        """Start each machine for one sample after the other; the clock cycles at which the last one ended them."""
        begun, started, ended, ends = self._machines.cycles, [0] * len(self.sessions), [0] * len(self.sessions), []
        looks = 0  # since a program began or ended
        while ended[-1] < count:
            looks += 1
            for k, session in reversed(list(enumerate(self.sessions))):
                if started[k] > ended[k] and not (status := session.machine.status()) & Status.RUNNING:
                    session.check(status)
                    ended[k], looks = ended[k] + 1, 0
                    ends += [self._machines.cycles - begun] * (session is self.sessions[-1])
                if started[k] == ended[k] < count:
                    session.machine.command(Control.START)
                    started[k], looks = started[k] + 1, 0
            if looks:
                self.sessions[0].machine.pause(LOOK)
            if looks * LOOK > PATIENCE:
                raise RuntimeError(f"no machine has begun or ended a program for {PATIENCE:,} cycles")
        return ends

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self._machines.close()

    @property
    def invalid(self) -> list[str]:
        """Names of the quantisers that have seen a NaN or an infinity since the start of the session."""
        return sorted({name for session in self.sessions for name in session.invalid})

    def memories(self) -> tuple[dict[Mem, np.ndarray], ...]:
        """The contents of the memories of each machine, see `Session.memories`."""
        return tuple(session.memories() for session in self.sessions)

    def counters(self) -> tuple[dict[Counter, int], ...]:
        """The increase of the counters of each machine, see `Session.counters`."""
        return tuple(session.counters() for session in self.sessions)

    def _load(self, sample: np.ndarray, keep_state: bool):
        """Load the program of each machine for a sample. All machines are idle."""
        for session in self.sessions:
            recurrent = session.firmware.recurrent
            keeps = keep_state and (recurrent or session is self.sessions[0])  # the first one must have states to keep
            session.prepare(len(sample) if recurrent else 1, keep_state=keeps)


def _results(firmware: Firmware, received: Sequence[bytes], count: int) -> np.ndarray:
    """uint16[samples, outputs] from the messages of `count` samples; each sample has as many messages."""
    each = len(received) // count
    return np.stack([firmware.output(received[k * each:(k + 1) * each]) for k in range(count)])


def session_of(firmware: Cascade, kind: str, cores: int = 1, **options) -> "CascadeSession | AcceleratorSession":
    """A session on machines of a kind, which are made with these options of `sim.machines.host.machine`.

    Several `cores` share a memory, and take samples in turns; they have no options.
    """
    if cores > 1:
        from concord.firmware.accelerator_session import accelerator_session

        return accelerator_session(firmware.first, kind, cores)
    return cascade_session(firmware, kind, **options)


def cascade_session(firmware: Cascade, kind: str, **options) -> CascadeSession:
    """As `session_of`, without cores that share a memory."""
    return CascadeSession(rows.cascade(kind, [part.config for part in firmware.parts], **options), firmware.parts)
