"""Run a program on golden's trainer and on another one, and find the first number that differs."""

from dataclasses import dataclass, replace

import numpy as np
from concord.golden.trainer.trainer import Trainer
from concord.sim.machines.trainer_library import TrainerLibrary
from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import DUMP, SERVER_WORDS, TrainerProgram, dump
from concord.spec.trainer.config import LANES
from concord.spec.trainer.instructions import SIZES, Space, TrainerError, TrainerOp, decode, instruction
from concord.spec.trainer.registers import TrainerCounter, TrainerRegister
from concord.spec.trainer.text import disassemble

_END = instruction(TrainerOp.END).words
#: Registers that do not depend on time, by name.
REGISTERS: dict[str, int] = {
    **{each.name: each for each in (TrainerRegister.DIGEST, TrainerRegister.LIMIT, TrainerRegister.RATE)},
    "DECAY": TrainerRegister.DECAY,
    **{f"counter {each.name}": TrainerRegister.COUNTERS + 4 * each for each in TrainerCounter},
    **{f"R{k}": TrainerRegister.BASES + 4 * k for k in range(SMALL.bases)},
    **{f"X{k}": TrainerRegister.EXPONENTS + 4 * k for k in range(SMALL.exponents)},
}
#: Cycles after which a program of these sizes has not ended.
TIMEOUT = 2_000_000


@dataclass(frozen=True, slots=True, eq=False)
class TrainerOutcome:
    """A trainer after a program.

    Attributes:
        end:       Error and address.
        registers: Values of registers by name.
        server:    Server memory, uint8[SERVER_WORDS, 16].
        inside:    The memories of the core as `dump` stores them, alike.
    """

    end: tuple[TrainerError, int]
    registers: dict[str, int]
    server: np.ndarray
    inside: np.ndarray


def empty_trainers(**options) -> tuple[Trainer, TrainerLibrary]:
    """Two trainers of the sizes of random programs; `options` are those of the library."""
    one, other = (np.zeros((SERVER_WORDS, LANES), np.uint8) for _ in range(2))
    return Trainer(SMALL, one), TrainerLibrary(SMALL, other, **options)


def play(made: TrainerProgram, machine: Trainer | TrainerLibrary) -> TrainerOutcome:
    """Run a program on a machine as it is, and store its memories."""
    machine.server[:] = made.server
    for register, value in made.rates.items():
        machine.write_register(register, value)
    machine.load(made.words)
    _run(machine)
    end = machine.error, machine.address if machine.error else 0
    registers = {name: machine.read_register(address) for name, address in REGISTERS.items()}
    server = machine.server.copy()
    machine.load(dump())
    if _run(machine):
        raise AssertionError(f"the program that stores the memories ends with {machine.error.name}")
    return TrainerOutcome(end, registers, server, machine.server.copy())


def _run(machine: Trainer | TrainerLibrary) -> TrainerError:
    return machine.run() if isinstance(machine, Trainer) else machine.run(timeout=TIMEOUT)


def difference(golden: TrainerOutcome, other: TrainerOutcome) -> str:
    """The first thing that differs, as a sentence; empty if nothing does."""
    if golden.end != other.end:
        ends = (f"{error.name} at {address}" if error else "no error" for error, address in (golden.end, other.end))
        return "golden ends with {}, the other one with {}".format(*ends)
    for space, words in DUMP.items():
        for word, lane in _differing(golden.inside[words], other.inside[words]):
            return _bytes(f"{space.name} as stored", word, lane, golden.inside[words], other.inside[words])
    for word, lane in _differing(golden.server, other.server):
        return _bytes(Space.SERVER.name, word, lane, golden.server, other.server)
    for name, value in golden.registers.items():
        if other.registers[name] != value:
            return f"register {name} is {value:#x} on golden and {other.registers[name]:#x} on the other one"
    return ""


def _differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.argwhere(one != other)


def _bytes(memory: str, word: int, lane: int, one: np.ndarray, other: np.ndarray) -> str:
    count = len(_differing(one, other))
    return (
        f"word {word}, lane {lane} of {memory} is {one[word, lane]} on golden and {other[word, lane]} on the other "
        f"one; {count} bytes differ there"
    )


def compared(made: TrainerProgram, golden: Trainer, other: TrainerLibrary) -> tuple[str, TrainerError]:
    """Run a program on two machines: the first difference, empty if there is none, and golden's error."""
    expected = play(made, golden)
    try:
        return difference(expected, play(made, other)), expected.end[0]
    except (AssertionError, RuntimeError) as error:
        return str(error), expected.end[0]


def explained(made: TrainerProgram, **options) -> str:
    """The shortest beginning of a program after which new machines differ, with its text; empty if none differs.

    Beginnings end behind any instruction that is not within a loop. `options` are those of the library.
    """
    address, depth = 0, 0
    while address < len(made.words):
        try:
            found = decode(made.words, address)
        except IndexError:
            found = None
        address += SIZES[found.op] if found else 1
        depth += 0 if found is None else (found.op == TrainerOp.LOOP) - (found.op == TrainerOp.END_LOOP)
        if depth > 0 or found is None or found.op == TrainerOp.TENSOR:
            continue
        one = replace(made, words=[*made.words[:address], *_END])
        golden, other = empty_trainers(**options)
        text, _ = compared(one, golden, other)
        other.close()
        if text:
            last = disassemble(made.words[address - SIZES[found.op] : address]).strip()
            return f"behind `{last}` at {address - SIZES[found.op]}, {text}\n{disassemble(one.words)}"
    return ""
