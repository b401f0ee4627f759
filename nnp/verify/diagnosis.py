"""The first chain, instruction and element in which two machines differ, found by running ever shorter programs."""

from dataclasses import dataclass

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.nnp.verify.session import Session
from concord.spec.assembler import disassemble_word
from concord.spec.isa import Instruction, Op, decode, encode
from concord.spec.memories import MEMORY_NAMES, Mem

END = encode(Instruction(op=Op.END))


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """Where two machines part.

    Attributes:
        sample:      Index of the input.
        chain:       How many chains were executed before this one.
        step:        Time step, from 0; None outside the loop over time.
        first:       Address of the chain's first instruction.
        layer:       Layer that the chain belongs to.
        address:     Address of the instruction whose result differs.
        instruction: Its text.
        memory:      Where the element was written.
        word, lane:  Which element; in NetQ, the word is that of the result.
        golden:      Its bits in golden.
        other:       Its bits in the other machine.
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
            f"instruction {self.first}: `{self.instruction}` at {self.address} wrote {self.memory} word {self.word} "
            f"lane {self.lane}: golden {_value(self.golden)}, machine {_value(self.other)}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A program that stops after some chains.

    Attributes:
        instruction_words: The program.
        first: Address, in the whole program, of the last chain's source; -1 without chains.
        end:   Address of that chain's `end_chain`.
        step:  Time step of that chain, or None.
    """

    instruction_words: list[int]
    first: int
    end: int
    step: int | None


class Cutter:
    """Programs that execute the first chains of a firmware.

    A program cut inside the loop over time has whole passes in a loop, and the rest of one more behind it.
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
        """Chains of one run."""
        return len(self._ends) + (self._steps - 1) * self._inside if self._loop is not None else len(self._ends)

    def cut(self, chains: int) -> Cut:
        """The program of the first `chains` chains."""
        done = chains - self._before - 1  # Of the last chain, counted from the first in the loop.
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
        """`head`, and the program from `start` to the end of the chain with this index."""
        if index < 0:
            return Cut(instruction_words=[END], first=-1, end=-1, step=None)
        end = self._ends[index]
        words = [*head, *self._words[start : end + 1], END]
        return Cut(instruction_words=words, first=self._sources[index], end=end, step=step)


def first_difference(golden: Session, other: Session, sample: np.ndarray, index: int) -> Difference | None:
    """Where the two machines part on one input; None where they do not.

    Args:
        sample: uint16[inputs], or uint16[steps, inputs].
        index:  Of the sample, for the report.

    Raises:
        ValueError: the machine's instruction buffer does not hold a program that was cut.
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
    # A chain may write several memories: the first to differ is the one it wrote first.
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
    """Memory, word, lane and both values of the first element that differs in each memory."""
    found = []
    for mem, words in left.items():
        count = min(len(words), len(right[mem]))
        differing = np.argwhere(words[:count] != right[mem][:count])
        if len(differing):
            word, lane = differing[0].tolist()
            found.append((mem, word, lane, int(words[word, lane]), int(right[mem][word, lane])))
    return found


def _writer(firmware: Firmware, cut: Cut, mem: Mem) -> int:
    """Address of the chain's `v_wr` to `mem`; of its end where another chain's write is late."""
    for address in range(cut.first, cut.end):
        instruction = decode(int(firmware.instruction_words[address]))
        if instruction.op == Op.V_WR and instruction.mem == mem:
            return address
    return cut.end


def _value(bits: int) -> str:
    return f"0x{bits:04x} ({np.uint16(bits).view(np.float16)})"
