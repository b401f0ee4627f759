"""Training on golden's trainer or on the simulated one, beside golden: the first difference, and its waveform."""

from functools import partial
from pathlib import Path

import numpy as np
from concord.compiler.training.comparison import ComparedSession, TrainingDiffers
from concord.compiler.training.session import TrainingSession
from concord.sim.machines.trainers import trainer_machine
from concord.spec.trainer.config import TrainerConfig
from concord.workflows.machine_training import MachineTraining

CHUNK = 500  #: Cycles between two looks at the memory.
BEFORE = 3000  #: Cycles that a waveform shows before the first wrong word is written.
MOST = 100_000_000  #: Cycles after which a program is given up.
WAVES = Path("build/waves/training.vcd")  #: The waveform.
CONFIG = TrainerConfig()  #: The core where nobody names one.


def machine_training(
    kind: str, *, compare: bool = False, cores: int = 1, config: TrainerConfig = CONFIG
) -> MachineTraining:
    """What moves networks to a machine.

    Args:
        kind:    "golden" or "library" (Verilated).
        compare: Whether to compare the machine with golden after each program.
        cores:   Number of cores that share each batch.
        config:  A core.

    Raises:
        ValueError: there is no such kind, or the packages of its extra are not installed.
    """
    session, machine = WatchedSession if compare else TrainingSession, partial(trainer_machine, kind)
    return MachineTraining(session=partial(session, machine=machine, cores=cores), config=config)


class WatchedSession(ComparedSession):
    """A `ComparedSession` of Verilated trainers that writes a waveform of the first difference."""

    def _run(self, made, work):
        try:
            super()._run(made, work)
        except TrainingDiffers as found:
            cycle = waveform(found, WAVES)
            raise RuntimeError(
                f"{found}. {WAVES} is a waveform up to cycle {cycle:,} of this program, about where it begins to differ"
            ) from found


def waveform(found: TrainingDiffers, path: Path) -> int:
    """Write a waveform of a program up to the first wrong word, and return the cycle of its end.

    The program runs twice: first without a waveform, to find that cycle.
    """
    one = _begun(found)
    first, settled, before = one.cycles, np.zeros(len(found.memory), np.int64), one.server.copy()
    ended = False
    while not ended and one.cycles - first < MOST:
        ended = _went_on(one)
        settled[(before != one.server).any(1)] = one.cycles
        before = one.server.copy()
    last = one.cycles if not len(found.wrong) else int(settled[found.wrong].min()) or one.cycles
    one.close()
    path.parent.mkdir(parents=True, exist_ok=True)
    again = _begun(found, trace=path, trace_from=max(last - BEFORE, 0))
    while again.cycles < last:
        _went_on(again)
    again.close()
    return last - first


def _begun(found: TrainingDiffers, **options):
    """A machine that has begun the program."""
    session = found.session
    one = trainer_machine("library", session.config, found.memory.copy(), session.cores, **options)
    session.write_rates(one)
    one.load(*found.programs)
    one.start(*session.copies)
    return one


def _went_on(machine) -> bool:
    """Let some cycles pass; whether the program has ended or the machine broke a rule."""
    try:
        return machine.go_on(CHUNK)
    except AssertionError:
        return True
