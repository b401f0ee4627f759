"""Run the same case on golden and on simulated hardware, and find the first difference."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from concord.golden.host.messages import contents_of, words_of
from concord.sim.machines.host import GoldenMachine, Machine
from concord.sim.stimulus.programs import Case
from concord.spec.host.messages import Message, unpack
from concord.spec.host.registers import Counter, Status
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import ADDRESSED, MEMORY_NAMES, Mem, depth
from concord.spec.machine.config import Config

#: Bits of STATUS that do not depend on time.
SHOWN = Status.DONE | Status.RUNNING | Status.INVALID_VECTOR | Status.INVALID_MATRIX


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineOutcome:
    """The state of a machine after a case.

    Attributes:
        status:   The register STATUS, without bits that depend on time.
        error:    Error with which the program stopped.
        address:  Address of the instruction that stopped it.
        outputs:  Messages that the program sent.
        memories: Contents of each memory that the host can read, as `contents_of` gives them.
        events:   Event counters.
    """

    status: Status
    error: Error
    address: int
    outputs: list[Message]
    memories: dict[Mem, np.ndarray]
    events: dict[Counter, int]


def play(case: Case, machine: Machine, *, late: bool = False) -> MachineOutcome:
    """Run `case` on a machine, which is reset first.

    Args:
        late: Whether the program's input is sent after its start instead of before.
    """
    machine.reset()
    machine.clear()
    machine.receive()
    machine.send(*case.setup)
    if late:
        machine.start()
        machine.send(*case.inputs)
    else:
        machine.send(*case.inputs)
        machine.start()
    status = machine.run()
    error, address = machine.error()
    outputs = [unpack(case.config, data, to_machine=False) for data in machine.receive()]
    events = machine.events()
    machine.send(*case.reads)
    replies = [unpack(case.config, data, to_machine=False) for data in machine.receive()]
    memories = {Mem(reply.memory): contents_of(case.config, reply) for reply in replies}
    return MachineOutcome(status=status & SHOWN, error=error, address=address, outputs=outputs, memories=memories,
                          events=events)


def difference(case: Case, golden: MachineOutcome, other: MachineOutcome) -> str | None:
    """A sentence about the first difference between two outcomes of `case`, or None if they are equal."""
    return (_state(golden, other) or _outputs(case, golden.outputs, other.outputs)
            or _memories(case.config, golden.memories, other.memories) or _events(golden.events, other.events))


def compare(case: Case, machine: Machine, *, late: bool = False) -> str | None:
    """Run `case` on golden and on `machine`: a sentence about the first difference, or None if there is none."""
    return difference(case, play(case, GoldenMachine(case.config), late=late), play(case, machine, late=late))


def _state(golden: MachineOutcome, other: MachineOutcome) -> str | None:
    for name in ("error", "address", "status"):
        left, right = getattr(golden, name), getattr(other, name)
        if left != right:
            return f"the program ends with {name} {left!r} on golden and {right!r} on hardware"
    return None


def _outputs(case: Case, golden: Sequence[Message], other: Sequence[Message]) -> str | None:
    for index, (left, right) in enumerate(zip_longest(golden, other)):
        if left is None or right is None:
            return f"golden sends {len(golden)} messages, hardware {len(other)}"
        if left.payload == right.payload and left.count == right.count:
            continue
        if left.count != right.count:
            return f"output message {index} has {left.count} words on golden and {right.count} on hardware"
        return _words(f"output message {index}", words_of(case.config, left), words_of(case.config, right))
    return None


def _memories(config: Config, golden: dict[Mem, np.ndarray], other: dict[Mem, np.ndarray]) -> str | None:
    for mem in (mem for mem in ADDRESSED if depth(config, mem)):
        if mem not in other:
            return f"hardware does not answer the READ of {MEMORY_NAMES[mem]}"
        if len(golden[mem]) != len(other[mem]):
            return f"{MEMORY_NAMES[mem]} answers {len(other[mem])} words instead of {len(golden[mem])}"
        if (golden[mem] != other[mem]).any():
            return _words(MEMORY_NAMES[mem], golden[mem], other[mem])
    return None


def _words(where: str, golden: np.ndarray, other: np.ndarray) -> str:
    wrong = np.argwhere(golden != other)
    word, lane = wrong[0]
    return (f"{where} differs in {len(wrong)} of {golden.size} elements, first in word {word}, lane {lane}: "
            f"{golden[word, lane]:#06x} on golden, {other[word, lane]:#06x} on hardware")


def _events(golden: dict[Counter, int], other: dict[Counter, int]) -> str | None:
    wrong = [f"{counter.name} is {count} on golden and {other[counter]} on hardware"
             for counter, count in golden.items() if count != other[counter]]
    return "; ".join(wrong) or None
