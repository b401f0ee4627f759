"""Programs that execute only the first chains of a firmware, and the waveform of the last of these."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.sim.machines.kinds import MachineKind
from concord.spec.host.registers import Counter
from concord.spec.isa.instructions import Instruction, Op, decoded, encode

END = encode(Instruction(op=Op.END))
MARGIN = 200  #: Number of clock cycles by which a waveform begins before its chain.


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A program that stops after some chains.

    Attributes:
        instruction_words: Instruction words of the program.
        first: Address of the last chain's first instruction in the whole program; -1 if there is no chain.
        end:   Address of that chain's `end_chain` in the whole program.
        step:  Number of complete passes of the loop before that chain, which is the time step; None outside of loops.
    """

    instruction_words: list[int]
    first: int
    end: int
    step: int | None


@dataclass(kw_only=True, slots=True)
class _Block:
    """Instructions that run a number of times.

    Attributes:
        count:  Number of passes.
        parts:  Addresses of instructions, and loops among them.
        chains: Number of chains of one pass.
    """

    count: int = 1
    parts: "list[int | _Block]" = field(default_factory=list)
    chains: int = 0


class Cutter:
    """Makes programs that execute only the first chains of a firmware.

    A program that is cut inside a loop has all complete passes in a loop, and then the rest of one pass.
    """

    def __init__(self, firmware: Firmware, steps: int):
        self._words = firmware.program(steps)
        instructions = list(decoded(self._words))
        self._ops = [one.op for one in instructions]
        blocks = [_Block()]
        for address, op in enumerate(self._ops):
            if op == Op.LOOP:
                blocks.append(_Block(count=instructions[address].a))
            elif op == Op.END_LOOP:
                loop = blocks.pop()
                blocks[-1].parts.append(loop)
                blocks[-1].chains += loop.count * loop.chains
            else:
                blocks[-1].parts.append(address)
                blocks[-1].chains += op == Op.END_CHAIN
        self._whole = blocks[0]

    @property
    def total(self) -> int:
        """Number of chains that one run executes."""
        return self._whole.chains

    def cut(self, chains: int) -> Cut:
        """The program that executes the first `chains` chains."""
        if not chains:
            return Cut(instruction_words=[END], first=-1, end=-1, step=None)
        addresses, step = self._first(self._whole, chains)
        words = [self._words[one] if isinstance(one, int) else encode(one) for one in addresses]
        end = addresses[-1]
        assert isinstance(end, int)  # a chain ends in the program itself
        first = end
        while self._ops[first] not in (Op.V_RD, Op.M_RD):
            first -= 1
        return Cut(instruction_words=[*words, END], first=first, end=end, step=step)

    def _first(self, block: _Block, chains: int) -> tuple[list[int | Instruction], int | None]:
        """Instructions of one pass up to the end of its chain number `chains`, and the passes of the loop around it.

        An instruction of the program is its address; that of a shorter loop is given itself.
        """
        found: list[int | Instruction] = []
        for part in block.parts:
            if isinstance(part, int):
                found.append(part)
                chains -= self._ops[part] == Op.END_CHAIN
                if not chains:
                    return found, None
                continue
            if chains > part.count * part.chains:
                chains -= part.count * part.chains
                found += self._passes(part, part.count)
                continue
            passes, rest = divmod(chains - 1, part.chains)
            last, _ = self._first(part, rest + 1)
            return [*found, *self._passes(part, passes), *last], passes
        raise ValueError(f"the program has {self.total} chains only")

    def _passes(self, loop: _Block, count: int) -> list[int | Instruction]:
        """The instructions of some passes of a loop."""
        if not count:
            return []
        inside = [one for part in loop.parts for one in (
            [part] if isinstance(part, int) else self._passes(part, part.count))]
        return [Instruction(op=Op.LOOP, a=count), *inside, Instruction(op=Op.END_LOOP)]


def write_waveform(kind: MachineKind, firmware: Firmware, sample: np.ndarray, chain: int, path: Path):
    """Run the program up to the chain whose result differs, and write a VCD of that chain.

    A first run without waveforms tells at which cycle the chain begins. Under cocotb, a waveform cannot begin later
    than the simulation, so that the whole run is written.

    Args:
        kind:       Kind of the machine that differs from golden; golden itself has no waveform.
        firmware:   Firmware of the network.
        sample:     Input patterns, uint16[inputs], or uint16[steps, inputs] if the network is recurrent.
        chain:      Number of chains before the one that differs.
        path:       File to write.
    """
    cutter = Cutter(firmware, len(sample) if firmware.recurrent else 1)
    before, whole = (cutter.cut(chains).instruction_words for chains in (chain, chain + 1))
    start = _first_cycle(kind, firmware, sample, before, whole) if kind == MachineKind.LIBRARY else 0
    options = {"trace_from": start} if start else {}
    with machine(kind, firmware.config, trace=path, **options) as traced:
        Session(traced, firmware).execute(whole, sample)


def _first_cycle(kind: MachineKind, firmware: Firmware, sample: np.ndarray, before: list[int], whole: list[int]) -> int:
    """Clock cycle since power-up at which the waveform of the last chain of `whole` begins."""
    lasted = []
    for words in (before, whole):
        with machine(kind, firmware.config) as made:
            Session(made, firmware).execute(words, sample)
            end = made.cycles
            lasted.append(made.counter(Counter.CYCLES))
    return max(0, end - (lasted[1] - lasted[0]) - MARGIN)
