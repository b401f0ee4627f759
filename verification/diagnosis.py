"""The first machine, chain, instruction and element that differs, found by running ever shorter programs.

Each machine of a pipeline runs alone, on what the machine before it sends if it is right.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
from concord.firmware.cascade import Cascade, net_words
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import Op, decoded
from concord.spec.isa.memories import MEMORY_NAMES, Mem
from concord.verification.cutter import Cut, Cutter

if TYPE_CHECKING:
    from concord.verification.twins import TwinSession


class Probed(Protocol):
    """Something that runs programs: a `Session` on a machine, or a `TwinSession`."""

    firmware: Firmware

    def probe(self, program: list[int], sample: np.ndarray) -> dict[Mem, np.ndarray]:
        """What a program leaves in memories, as `Session.probe` returns it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first difference between two machines.

    Attributes:
        sample:      Index of the sample.
        chain:       Number of chains that were executed before the one that differs.
        step:        Time step, from 0, of the loop that runs; None outside of loops over time.
        first:       Address of the chain's first instruction.
        layer:       Name of the layer that the chain belongs to.
        address:     Address of the instruction whose result differs.
        instruction: Text of that instruction.
        memory:      Memory that holds the first element that differs.
        word, lane:  Position of that element: word and lane, or entry and mantissa of VectorRf, whose stored exponent
            comes after the last mantissa; in NetQ, words are counted from the first one of the result.
        values:      Bits of the element by the name of each machine.
        machine:     Number of the machine in a pipeline, from 1; None where there is one machine.
    """

    sample: int
    chain: int
    step: int | None
    first: int
    layer: str
    address: int
    instruction: str
    memory: str
    word: int
    lane: int
    values: Mapping[str, int]
    machine: int | None = None

    def __str__(self) -> str:
        step = "" if self.step is None else f", time step {self.step}"
        layer = f" of layer {self.layer}" if self.layer else ""
        where = f"machine {self.machine}, " * (self.machine is not None) + f"sample {self.sample}{step}"
        return (
            f"{where}: the first difference is in chain {self.chain}{layer}, which begins at "
            f"instruction {self.first}: `{self.instruction}` at {self.address} wrote {self._written()}"
        )

    def _written(self) -> str:
        entry = self.memory == MEMORY_NAMES[Mem.VECTOR_RF]
        element = f"entry {self.word} element {self.lane}" if entry else f"word {self.word} lane {self.lane}"
        show = _integer if entry else _number
        return f"{self.memory} {element}: {', '.join(f'{name} {show(bits)}' for name, bits in self.values.items())}"


def first_difference(sessions: Mapping[str, Probed], sample: np.ndarray, index: int) -> Difference | None:
    """The first difference between two machines on one sample, or None if they agree.

    Args:
        sessions: Machines by their names for the reader. The first two are compared; the values of all are told.
        sample:   Input patterns, uint16[inputs] or uint16[steps, inputs].
        index:    Index of the sample, for the report.

    Raises:
        ValueError: a shortened program does not fit the machine's instruction buffer.
    """
    left, right, *others = sessions.values()
    firmware = left.firmware
    cutter = Cutter(firmware, len(sample) if firmware.recurrent else 1)

    def states(chains: int):
        words = cutter.cut(chains).instruction_words
        if len(words) > firmware.config.instructions:
            raise ValueError(f"a program cut inside the loop has {len(words)} instructions, too many to run")
        return left.probe(words, sample), right.probe(words, sample)

    equal, differs = 0, cutter.total
    if not _partings(*states(differs)):
        return None
    while differs - equal > 1:
        middle = (equal + differs) // 2
        if _partings(*states(middle)):
            differs = middle
        else:
            equal = middle
    cut = cutter.cut(differs)
    # A chain may write several memories: the one that it wrote first is reported.
    last = states(differs)
    address, (mem, word, lane) = min((_writer(firmware, cut, parting[0]), parting) for parting in _partings(*last))
    last += tuple(session.probe(cut.instruction_words, sample) for session in others)
    return Difference(
        sample=index,
        chain=differs - 1,
        step=cut.step,
        first=cut.first,
        layer=firmware.layer_at(cut.first),
        address=address,
        instruction=disassemble_word(int(firmware.instruction_words[address])),
        memory=MEMORY_NAMES[mem],
        word=word,
        lane=lane,
        values={name: int(state[mem][word, lane]) for name, state in zip(sessions, last, strict=True)},
    )


def first_difference_of(right: Cascade, other: Cascade, kind: str, sample: np.ndarray, index: int, *,
                        reference: str = "golden") -> Difference | None:
    """The first difference between machines and right ones on one sample; None if each machine alone is right.

    Args:
        right:     Firmware that is known to be right, of the same programs.
        other:     Firmware of the machines.
        kind:      Kind of the machines, a name of `sim.machines.kinds.MachineKind`.
        sample:    Input patterns as in `Firmware.words_of`.
        index:     Index of the sample, for the report.
        reference: What the machines are compared with: "golden", or "twin" for the software twins.
    """
    firmware = alone(right)
    send = [_twin(one).sent if reference == "twin" else partial(_sent, one) for one in firmware]
    for number, (one, wrong, entering) in enumerate(
            zip(firmware, alone(other), entered(firmware, sample, send), strict=True), 1):
        with ExitStack() as files:
            sessions = _sessions(one, wrong, kind, reference, files)
            if found := first_difference(sessions, entering, index):
                return replace(found, machine=number) if len(firmware) > 1 else found
    return None


def alone(cascade: Cascade) -> list[Firmware]:
    """The firmware of each machine, which takes the words of the machine before it as numbers, in their order."""
    found = [cascade.first]
    for part in cascade.parts[1:]:
        words, _ = net_words(part)
        found.append(replace(part, inputs=words * part.config.mfu_lanes, input_words=words, input_layout=None))
    return found


def entered(
    firmware: Sequence[Firmware], sample: np.ndarray, send: Sequence[Callable[[np.ndarray], np.ndarray]],
) -> Iterator[np.ndarray]:
    """What enters each machine for one sample: the sample, and then what the machine before sends.

    Args:
        firmware: The firmware of each machine, see `alone`.
        send:     For each machine, the words uint16[words, M] that it sends for what enters.
    """
    yield sample
    for sends, behind in zip(send, firmware[1:], strict=False):
        sample = sends(sample).reshape(-1, behind.inputs)
        sample = sample if behind.recurrent else sample[0]
        yield sample


def _partings(left: dict[Mem, np.ndarray], right: dict[Mem, np.ndarray]) -> list[tuple[Mem, int, int]]:
    """For each memory that differs: memory, word and lane of the first different element."""
    found = []
    for mem, words in left.items():
        count = min(len(words), len(right[mem]))
        differing = np.argwhere(words[:count] != right[mem][:count])
        if len(differing):
            found.append((mem, *differing[0].tolist()))
    return found


def _writer(firmware: Firmware, cut: Cut, mem: Mem) -> int:
    """Address of the chain's `v_wr` to `mem`; address of its end if the chain does not write `mem`."""
    for address, instruction in enumerate(decoded(firmware.instruction_words[cut.first:cut.end].tolist()), cut.first):
        if instruction.op == Op.V_WR and instruction.mem == mem:
            return address
    return cut.end


def _number(bits: int) -> str:
    return f"0x{bits:04x} ({np.uint16(bits).view(np.float16)})"


def _integer(bits: int) -> str:
    return str(np.uint16(bits).view(np.int16))


def _twin(firmware: Firmware) -> "TwinSession":
    """The software twin of firmware. Only a difference needs it, and only then it is imported."""
    from concord.verification.twins import TwinSession

    return TwinSession(firmware)


def _sent(firmware: Firmware, sample: np.ndarray) -> np.ndarray:
    """The words uint16[words, M] that a golden machine sends for a sample."""
    with machine("golden", firmware.config) as golden:
        program = firmware.program(len(sample) if firmware.recurrent else 1)
        return Session(golden, firmware).probe(program, sample)[Mem.NET_Q]


def _sessions(right: Firmware, other: Firmware, kind: str, reference: str, files: ExitStack) -> dict[str, Probed]:
    """What is compared for one machine: the right one, the machine, and the third one to tell which is at fault."""
    def run(name: str, firmware: Firmware) -> Session:
        return Session(files.enter_context(machine(name, firmware.config)), firmware)

    name = "golden" if kind == "golden" else "RTL"
    if reference == "twin":
        found = {"twin": _twin(right), name: run(kind, other)}
        return found if kind == "golden" else found | {"golden": run("golden", other)}
    return {"golden": run("golden", right), "machine" if kind == "golden" else name: run(kind, other),
            "twin": _twin(right)}
