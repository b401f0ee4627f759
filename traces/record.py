"""Run firmware on machines that write waves, or take the waves of another run, and make a trace of them."""

import tempfile
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import numpy as np
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import CascadeSession
from concord.firmware.firmware import Firmware
from concord.sim.machines import cascade as rows
from concord.sim.machines.host import HardwareMachine, MachineTimeout
from concord.sim.machines.library import linked, nnp_verilog
from concord.sim.machines.timing_library import timing_text
from concord.sim.machines.waves import Waves, read_waves
from concord.spec.host.registers import Counter
from concord.spec.machine.config import preset_name
from concord.traces.program import ProgramChains
from concord.traces.run_view import RunView
from concord.traces.signals import SIGNALS, STREAM
from concord.traces.spans import COUNTERS, Level, MachineTrace, joined, of_cycles
from concord.traces.units import units

MOST = 1_000_000  #: Clock cycles of a program that a trace holds, if nobody asks for more.
#: Queues by their names, and the submodule with their ends.
_QUEUES = {
    "NetQ, words from the host": "core.net_in",
    "NetQ, words to the host": "core.net_out",
    "MvmQ, words of products": "core.mvm.queue",
}


class TracedMachine(StrEnum):
    """What a trace is recorded on; all have the same cycles."""

    TIMING = "timing"  #: The machine without its numbers.
    LIBRARY = "library"  #: The whole machine.


class _BoundedMachine(HardwareMachine):
    """A machine whose programs end within `most` cycles."""

    def __init__(self, link, most: int):
        super().__init__(link)
        self._most = most

    def run(self, timeout: int = 0):
        try:
            return super().run(self._most)
        except MachineTimeout as error:
            raise ValueError(
                f"the program takes more than {self._most:,} cycles, the most that a trace is to hold: take "
                "fewer time steps (--steps), or allow more cycles (--most)"
            ) from error


def record(firmware: Cascade, samples: int, steps: int, kind: TracedMachine, most: int = MOST) -> list[MachineTrace]:
    """Run firmware on machines of its own, and return what each of them did. All numbers of the samples are 0.

    Args:
        firmware: Firmware of a machine, or of several ones in a row.
        samples:  Number of samples, one after the other.
        steps:    Number of time steps of a sample, where the firmware does not fix it.
        kind:     What it runs on.
        most:     Largest number of clock cycles of a program.

    Raises:
        ValueError: hardware is not generated for a machine, or a program takes more cycles.
    """
    configs, first = [part.config for part in firmware.parts], firmware.first
    for config in configs:
        config.require_hardware()
    make = timing_text if kind is TracedMachine.TIMING else nnp_verilog
    links = linked(configs, texts=[make(config) for config in configs], thorough=True, watch=SIGNALS)
    sample = np.zeros((*[first.steps or steps] * first.recurrent, first.inputs), np.uint16)
    session = CascadeSession(rows.Cascade([_BoundedMachine(link, most) for link in links]), firmware.parts)
    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        files = [Path(folder, f"{k}.vcd") for k in range(len(links))]
        with session:
            for one in session.sessions:
                one.prepare(len(sample) if one.firmware.recurrent else 1)
            session.counters()
            for link, file in zip(links, files, strict=True):
                link.begin_waves(file)
            for _ in range(samples):
                session.infer(sample)
            counters = session.counters()
        words = firmware.program(len(sample) if first.recurrent else 1)
        made = [
            trace(part, program, read_waves(file, SIGNALS))
            for part, program, file in zip(firmware.parts, words, files, strict=True)
        ]
    for one, counted in zip(made, counters, strict=True):
        _compare(one, counted)
    return made


def of_waves(firmware: Cascade, steps: int, path: Path) -> MachineTrace:
    """What the machine of firmware did in a VCD file.

    Args:
        firmware: Firmware of one machine.
        steps:    Number of time steps of a sample, where the firmware does not fix it.
        path:     The file.

    Raises:
        ValueError: the firmware is for several machines, or the file holds no run of it.
    """
    if len(firmware.parts) > 1:
        raise ValueError(
            f"{firmware.name} is for {len(firmware.parts)} machines, and waves are those of one: leave out "
            "--waves, so that the machines run"
        )
    return trace(firmware.first, firmware.program(steps)[0], read_waves(path, SIGNALS))


def _compare(one: MachineTrace, counted: dict[Counter, int]) -> None:
    """Refuse spans that do not add up to the counters of the machine."""
    found = one.counters()
    wrong = [
        f"{counter.name} is {counted[counter]:,}, its spans have {found[counter]:,}"
        for counter in COUNTERS.values()
        if counted[counter] != found[counter]
    ]
    if wrong:
        raise AssertionError(f"the trace of {one.name} does not add up: {'; '.join(wrong)}")


def trace(firmware: Firmware, words: Sequence[int], waves: Waves) -> MachineTrace:
    """What a machine did in waves, which hold one or more whole runs of a program.

    Args:
        firmware: The firmware.
        words:    Instruction words of the program.
        waves:    The waves.

    Raises:
        ValueError: the waves hold no run of the program.
    """
    program, causes, spans = ProgramChains(firmware, words), {"": 0}, []
    runs = _runs(waves.between("core.decoder.counting", 0, waves.cycles))
    if not runs:
        raise ValueError(f"{firmware.name}: no program runs in the waves")
    for number, (begin, stop) in enumerate(runs):
        view = RunView(waves, program, begin, stop)
        if (emitted := int(view("core.decoder.chains").sum())) != len(program.chains):
            raise ValueError(
                f"{firmware.name}: a program runs in the waves with {emitted:,} chains, and that of the "
                f"firmware has {len(program.chains):,}: name the number of time steps (--steps)"
            )
        for unit in units(view, causes):
            columns, shift = unit.columns(), number * len(program.chains)
            for name in ("chain", "older"):
                columns[name] = np.where(columns[name] >= 0, columns[name] + shift, -1)
            spans.append(of_cycles(unit.track, begin, columns))
    layers = ["", *dict.fromkeys(filter(None, map(program.layer, range(len(program.chains)))))]
    addresses = [chain.address for chain in program.chains]
    machine = preset_name(firmware.config) or f"{firmware.config.digest:08x}"
    return MachineTrace(
        name=f"{firmware.name} on {machine}",
        spans=joined(spans),
        causes=tuple(causes),
        layers=tuple(layers),
        layer=np.tile([layers.index(program.layer(k)) for k in range(len(addresses))], len(runs)),
        address=np.tile(addresses, len(runs)),
        texts={at: program.text(at) for at in dict.fromkeys(addresses)},
        levels=tuple(_level(waves, name, queue) for name, queue in _QUEUES.items()),
    )


def _runs(counting: np.ndarray) -> list[tuple[int, int]]:
    """Ranges of cycles in which a program counts its cycles."""
    edges = np.diff(np.concatenate(([0], counting, [0])))
    return list(zip(np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist(), strict=True))


def _level(waves: Waves, name: str, queue: str) -> Level:
    """What a queue holds."""
    ends = {
        end: waves.between(f"{queue}.{end}", 0, waves.cycles)
        if f"{queue}.{end}" in waves
        else np.zeros(waves.cycles, np.int64)
        for end in STREAM
    }
    moved = (ends["i__valid"] & ends["i__ready"]) - (ends["o__valid"] & ends["o__ready"])
    at = np.flatnonzero(moved)
    return Level(name=name, first=np.append(0, at + 1), level=np.append(0, np.cumsum(moved[at])))
