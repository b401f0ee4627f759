"""The first chain, instruction and element in which two machines differ, found by running ever shorter programs."""

from dataclasses import dataclass

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.nnp.verify.session import Session
from concord.spec.disassembler import disassemble_word
from concord.spec.isa import Instruction, Op, decode, encode
from concord.spec.memories import MEMORY_NAMES, Mem

END = encode(Instruction(op=Op.END))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The first difference between two machines.

    Attributes:
        sample:      Index of the sample.
        chain:       Number of chains that were executed before the one that differs.
        step:        Time step, from 0; None outside the loop over time.
        first:       Address of the chain's first instruction.
        layer:       Name of the layer that the chain belongs to.
        address:     Address of the instruction whose result differs.
        instruction: Text of that instruction.
        memory:      Memory that holds the first element that differs.
        word, lane:  Place of that element: word and lane, or entry and mantissa of VectorRf, whose stored exponent
            comes after the last mantissa; in NetQ, words are counted from the first one of the result.
        golden:      Bits of the element in golden.
        other:       Bits of the element in the other machine.
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
    golden: int
    other: int

    def __str__(self) -> str:
        step = "" if self.step is None else f", time step {self.step}"
        layer = f" of layer {self.layer}" if self.layer else ""
        return (
            f"sample {self.sample}{step}: the first difference is in chain {self.chain}{layer}, which begins at "
            f"instruction {self.first}: `{self.instruction}` at {self.address} wrote {self._place()}"
        )

    def _place(self) -> str:
        if self.memory == MEMORY_NAMES[Mem.VECTOR_RF]:
            golden, other = (int(np.uint16(bits).view(np.int16)) for bits in (self.golden, self.other))
            return f"{self.memory} entry {self.word} element {self.lane}: golden {golden}, machine {other}"
        return (f"{self.memory} word {self.word} lane {self.lane}: golden {_value(self.golden)}, "
                f"machine {_value(self.other)}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A program that stops after some chains.

    Attributes:
        instruction_words: Instruction words of the program.
        first: Address of the last chain's first instruction in the whole program; -1 if there is no chain.
        end:   Address of that chain's `end_chain` in the whole program.
        step:  Time step of that chain, or None.
    """

    instruction_words: list[int]
    first: int
    end: int
    step: int | None


class Cutter:
    """Makes programs that execute only the first chains of a firmware.

    A program that is cut inside the loop over time has all complete passes in a loop, and then the rest of one pass.
    """

    def __init__(self, firmware: Firmware, steps: int):
        self._words = firmware.program(steps)
        self._steps = steps
        ops = [decode(word).op for word in self._words]
        self._ends = [address for address, op in enumerate(ops) if op == Op.END_CHAIN]
        self._sources = [address for address, op in enumerate(ops) if op in (Op.V_RD, Op.M_RD)]
        self._loop = firmware.loop
        self._close = ops.index(Op.END_LOOP) if self._loop is not None else None
        self._before = sum(1 for end in self._ends if self._loop is None or end < self._loop)
        self._inside = 0 if self._loop is None else sum(1 for end in self._ends if self._loop < end < self._close)

    @property
    def total(self) -> int:
        """Number of chains that one run executes."""
        return len(self._ends) + (self._steps - 1) * self._inside if self._loop is not None else len(self._ends)

    def cut(self, chains: int) -> Cut:
        """The program that executes the first `chains` chains."""
        done = chains - self._before - 1  # Index of the last chain, counted from the first one in the loop.
        if self._loop is None or done < 0:
            return self._behind([], 0, chains - 1, None)
        passes = done // self._inside
        if passes >= self._steps:
            index = self._before + self._inside + done - self._steps * self._inside
            return self._behind([], 0, index, None)
        head = self._words[: self._loop]
        if passes:
            head = head + [encode(Instruction(op=Op.LOOP, a=passes))] + self._words[self._loop + 1 : self._close + 1]
        return self._behind(head, self._loop + 1, self._before + done % self._inside, passes)

    def _behind(self, head: list[int], start: int, index: int, step: int | None) -> Cut:
        """The program `head`, followed by the instructions from `start` to the end of the chain with this index."""
        if index < 0:
            return Cut(instruction_words=[END], first=-1, end=-1, step=None)
        end = self._ends[index]
        words = [*head, *self._words[start : end + 1], END]
        return Cut(instruction_words=words, first=self._sources[index], end=end, step=step)


def first_difference(golden: Session, other: Session, sample: np.ndarray, index: int) -> Difference | None:
    """The first difference between two machines on one sample, or None if they agree.

    Args:
        golden: Session on the golden machine.
        other:  Session on the other machine.
        sample: Input patterns, uint16[inputs] or uint16[steps, inputs].
        index:  Index of the sample, for the report.

    Raises:
        ValueError: a shortened program does not fit the machine's instruction buffer.
    """
    firmware = golden.firmware
    cutter = Cutter(firmware, len(sample) if firmware.recurrent else 1)

    def states(chains: int):
        words = cutter.cut(chains).instruction_words
        if len(words) > firmware.config.instructions:
            raise ValueError(f"a program cut inside the loop has {len(words)} instructions, too many to run")
        return golden.probe(words, sample), other.probe(words, sample)

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
    address, (mem, word, lane, left, right) = min(
        (_writer(firmware, cut, parting[0]), parting) for parting in _partings(*states(differs))
    )
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
        golden=left,
        other=right,
    )


def _partings(left: dict[Mem, np.ndarray], right: dict[Mem, np.ndarray]) -> list[tuple[Mem, int, int, int, int]]:
    """For each memory that differs: memory, word and lane of the first different element, and both values."""
    found = []
    for mem, words in left.items():
        count = min(len(words), len(right[mem]))
        differing = np.argwhere(words[:count] != right[mem][:count])
        if len(differing):
            word, lane = differing[0].tolist()
            found.append((mem, word, lane, int(words[word, lane]), int(right[mem][word, lane])))
    return found


def _writer(firmware: Firmware, cut: Cut, mem: Mem) -> int:
    """Address of the chain's `v_wr` to `mem`; address of its end if the chain does not write `mem`."""
    for address in range(cut.first, cut.end):
        instruction = decode(int(firmware.instruction_words[address]))
        if instruction.op == Op.V_WR and instruction.mem == mem:
            return address
    return cut.end


def _value(bits: int) -> str:
    return f"0x{bits:04x} ({np.uint16(bits).view(np.float16)})"
