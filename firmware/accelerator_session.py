"""Run a network on cores of an accelerator: each has all of the firmware, and takes samples of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.session import first_messages, stopped, used_memories
from concord.golden.host.messages import contents_of, read_message
from concord.sim.machines.accelerators import AcceleratorMachine, accelerator_machine, check_kind
from concord.sim.machines.host import MachineTimeout
from concord.spec.accelerator.accelerator import ALIGNED, LARGEST, MOST_CORES, Accelerator, dram_pages, pages
from concord.spec.accelerator.commands import BYTES, Command, CommandError, CommandKind
from concord.spec.accelerator.registers import AcceleratorRegister, AcceleratorStatus, window
from concord.spec.host.messages import MessageKind, item_bytes, unpack
from concord.spec.host.registers import Control, Counter, Register, Status
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config
from concord.spec.trainer.config import TrainerConfig

RING_SIZE = 10  #: Logarithm of the number of commands of the ring.
LEAST = 1 << 26  #: Bytes of the memory beside Dram of the cores, at least: firmware, inputs and outputs.
TRAINED = 1 << 30  #: The same where cores train, whose networks and batches it holds.
READ = 1 << 18  #: Words, or entries, of one READ.
BUS = 16  #: Bytes of the memory's bus for cores without Dram.


def accelerator_of(config: Config, cores: int, trainers: Sequence[TrainerConfig] = ()) -> Accelerator:
    """The accelerator of several cores of one machine, each with its own Dram, and room for what they read and write.

    Args:
        config:   The machine.
        cores:    Number of its cores.
        trainers: Cores that train, which come first.

    Raises:
        ValueError: there are too many cores, addresses do not reach all of their Dram, or they do not share a bus.
    """
    count = cores + len(trainers)
    if not 1 <= count <= MOST_CORES or cores < 0:
        beside = f" and --trainers {len(trainers)}: an accelerator has" if trainers else ": an accelerator has"
        raise ValueError(f"--cores {cores}{beside} 1 to {MOST_CORES} cores")
    wanted = cores * dram_pages(config) + (TRAINED if trainers else LEAST)
    if wanted > LARGEST:
        raise ValueError(f"--cores {cores}: {cores} cores with {dram_pages(config):,} bytes of Dram each, and "
                         f"{LEAST:,} bytes for firmware, inputs and outputs, are more than the {LARGEST:,} that "
                         "addresses reach: take fewer cores, or smaller dram_words")
    return Accelerator(cores=(*trainers, *[config] * cores), memory_bytes=1 << (wanted - 1).bit_length(),
                       bus=cores and config.dram_bus or BUS)


def check_cores(location: object, configs: Sequence[Config], kind: str, cores: int, given: Mapping[str, object]):
    """Refuse what several cores do not take.

    Args:
        location: File of the network or the firmware, for the sentence.
        configs:  Its machines.
        kind:     Kind of machine.
        cores:    Number of cores; 1 takes everything.
        given:    Values of options that are for one machine, by their names.

    Raises:
        ValueError: a sentence that names the option, the machine or the file.
    """
    if cores == 1:
        return
    if len(configs) > 1:
        raise ValueError(f"{location}: this is firmware of {len(configs)} machines, and each core runs a whole "
                         "network: leave out --cores")
    for option, value in given.items():
        if value:
            raise ValueError(f"{option} is for one machine: leave it out, or --cores {cores}")
    check_kind(kind)
    accelerator_of(configs[0], cores)


class AcceleratorSession:
    """Firmware in the memories of cores of an accelerator, ready for input.

    Args:
        machine:  An accelerator, which is reset; memories stay.
        firmware: Firmware for one core.
        cores:    Numbers of cores that are the machine of the firmware; all by default.
        base:     First byte of the memory that the session may use, a multiple of `PAGE`.

    Attributes:
        cycles: Clock cycles in which samples ran, without those that load firmware; 0 on golden.
    """

    def __init__(self, machine: AcceleratorMachine, firmware: Firmware, cores: Sequence[int] = (), base: int = 0):
        self.machine, self.firmware, self.cycles = machine, firmware, 0
        self.cores = tuple(cores) or range(len(machine.accelerator.cores))
        self.config = firmware.config
        self._dram = dram_pages(self.config)
        self._programs: dict[int, int] = {}  # Number of time steps of the program in each core.
        ring = base + len(self.cores) * self._dram
        self._free = pages(ring + (BYTES << RING_SIZE))
        machine.reset()
        machine.set_ring(ring, RING_SIZE)
        commands = [Command(kind=CommandKind.SET, core=core, first=Register.DRAM_BASE, value=base + index * self._dram)
                    for index, core in enumerate(self.cores) if self._dram]
        data = b"".join(first_messages(firmware))
        if self._free + len(data) > machine.accelerator.memory_bytes:
            raise ValueError(f"{firmware.name}: beside Dram of {len(self.cores)} cores, the memory has no room for the "
                             f"{len(data):,} bytes of the firmware: choose another number of --cores")
        machine.write_memory(self._free, data)
        self._execute([*commands, *(Command(kind=CommandKind.LOAD, core=core, first=self._free, count=len(data))
                                    for core in self.cores if data)])
        self.counters()

    def infer(self, sample: np.ndarray, *, keep_state: bool = False) -> np.ndarray:
        """Run one sample; arguments and errors are those of `Session.infer`.

        Raises:
            ValueError: states are to be kept: samples of one sequence would need one core.
        """
        if keep_state:
            raise ValueError("parts of a sequence run on one core, which keeps its state: leave out --cores")
        return self.infer_all([sample])[0]

    def infer_all(self, samples: Sequence[np.ndarray]) -> np.ndarray:
        """uint16[samples, outputs] of samples, which cores take in turns; errors are those of `Session.infer`."""
        size = self.firmware.batch
        parts = list(samples) if size == 1 else [
            np.stack(samples[first:first + size]) for first in range(0, len(samples), size)]
        results = []
        while len(results) < len(parts):
            results += self._round(parts[len(results):])
        if size == 1:
            return np.stack(results)
        return np.concatenate([result[:len(part)] for result, part in zip(results, parts, strict=True)])

    def memories(self) -> tuple[dict[Mem, np.ndarray], ...]:
        """The contents of the memories of each core, see `Session.memories`."""
        sizes = used_memories(self.firmware)
        return tuple({mem: self._contents(core, mem, size) for mem, size in sizes.items()} for core in self.cores)

    def _contents(self, core, mem, size) -> np.ndarray:
        """The first words, or entries, of a memory of a core."""
        parts = []
        for begin in range(0, size, READ):
            count = min(READ, size - begin)
            data = read_message(self.config, mem, count, begin)
            room = _lines(4 * ALIGNED + count * item_bytes(self.config, MessageKind.READ, mem))
            self.machine.write_memory(self._free, data)
            command = Command(kind=CommandKind.LOAD, core=core, first=self._free, count=len(data),
                              second=self._free + _lines(len(data)), room=room)
            self._execute([command])
            (answer,) = self.machine.answers(command)
            parts.append(contents_of(self.config, unpack(self.config, answer, to_machine=False)))
        return np.concatenate(parts)

    def counters(self) -> tuple[dict[Counter, int], ...]:
        """The increase of the counters of each core since the last call, or since the start of the session."""
        found = tuple({counter: self.machine.core_register(core, Register.COUNTERS + 4 * counter)
                       for counter in Counter} for core in self.cores)
        for core in self.cores:
            self.machine.write_register(window(core) + Register.CONTROL, Control.CLEAR)
        return found

    @property
    def invalid(self) -> list[str]:
        """Names in STATUS of the quantisers that have seen a NaN or an infinity since the start of the session."""
        seen = [Status(self.machine.core_register(core, Register.STATUS)) for core in self.cores]
        return [flag.name for flag in (Status.INVALID_VECTOR, Status.INVALID_MATRIX) if any(flag & one for one in seen)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.machine.close()

    def _round(self, parts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run as many parts as memory and ring have room for; the results of each."""
        address, commands, runs = self._free, [], []
        for number, part in enumerate(parts):
            core, steps = self.cores[number % len(self.cores)], len(part) if self.firmware.recurrent else 1
            messages = [] if self._programs.get(core) == steps else [self.firmware.program_message(steps)]
            messages += [self.firmware.input_message(part) if self.firmware.inputs else b""]
            size = sum(_lines(len(message)) for message in messages) + self._room
            if runs and (address + size > self.machine.accelerator.memory_bytes
                         or len(commands) + len(messages) > 1 << RING_SIZE):
                break
            for message in messages:
                self.machine.write_memory(address, message)
                commands.append(Command(kind=CommandKind.LOAD, core=core, first=address, count=len(message)))
                address += _lines(len(message))
            commands[-1] = replace(commands[-1], kind=CommandKind.RUN, second=address, room=self._room)
            runs.append(commands[-1])
            address += self._room
            self._programs[core] = steps
        before = self.machine.cycles
        self._execute(commands)
        self.cycles += self.machine.cycles - before
        return [self.firmware.output(self.machine.answers(run)) for run in runs]

    @property
    def _room(self) -> int:
        """Bytes that the outputs of a sample take at most: each word may have its own message."""
        return _lines(ALIGNED + self.firmware.output_words * (ALIGNED + 2 * self.config.mfu_lanes))

    def _execute(self, commands: Sequence[Command]):
        """Run commands to their end.

        Raises:
            Stopped:      the program of a core stopped with an error.
            RuntimeError: a command failed, or does not end.
        """
        try:
            status = self.machine.execute([command.pack() for command in commands])
        except MachineTimeout as error:
            raise RuntimeError(str(error)) from error
        if not status & AcceleratorStatus.FAILED:
            return
        error, name = self.machine.error(), self.firmware.name
        core, program_error, address = (self.machine.read_register(register) for register in (
            AcceleratorRegister.ERROR_ORIGIN, AcceleratorRegister.CORE_ERROR, AcceleratorRegister.ERROR_ADDRESS))
        if error == CommandError.PROGRAM:
            program = self.firmware.program(self._programs.get(core, 1))
            raise stopped(self.firmware, program, Error(program_error), address)
        why = _WHY.get(error, f"a command failed with {error.name}; docs/accelerator.md says what it means")
        raise RuntimeError(f"{name}, core {core}: {why}")


#: What errors of commands mean for firmware.
_WHY = {CommandError.STARVED: "the program waits for more words of NetQ than one input brings",
        CommandError.SURPLUS: "the program ends before it has read all words of an input",
        CommandError.ROOM: "the program sends more words than one result has",
        CommandError.MESSAGE: "the core refused a message, which is damaged, malformed, or for another machine"}


def accelerator_session(firmware: Firmware, kind: str, cores: int) -> AcceleratorSession:
    """A session on an accelerator of a kind, see `sim.machines.accelerators.accelerator_machine`."""
    return AcceleratorSession(accelerator_machine(kind, accelerator_of(firmware.config, cores)), firmware)


def _lines(count: int) -> int:
    return count + -count % ALIGNED
