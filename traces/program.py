"""The chains of a program in the order in which they run, and which of them each pipeline takes."""

from collections.abc import Sequence

import numpy as np
from concord.firmware.firmware import Firmware
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import SPECS, Op
from concord.spec.isa.memories import Mem

PIPES = ("fetch", "product", "mfu", "copy", "entries")  #: Those in which a chain has a ticket.


class ProgramChains:
    """The chains that firmware runs for one sample.

    Args:
        firmware: The firmware.
        words:    Instruction words of the program, see `Firmware.program`.

    Attributes:
        chains: The chains, in the order in which they run.
        of:     Numbers of the chains of each of PIPES, and of the gather unit.
        words:  For these and the same chains, the words that their unit takes.
    """

    def __init__(self, firmware: Firmware, words: Sequence[int]):
        self.firmware, self._texts = firmware, [int(word) for word in words]
        modes = firmware.tiles.modes(firmware.config)
        self.chains: list[Chain] = list(Sequencer(firmware.config, self._texts, modes).walk())
        self._ends = {chain.address: chain.end for chain in self.chains}
        uses = {chain: _uses(chain) for chain in dict.fromkeys(self.chains)}
        units = (*PIPES, "gather")
        self.of = {
            unit: np.array([k for k, chain in enumerate(self.chains) if unit in uses[chain]], np.int64)
            for unit in units
        }
        self.words = {unit: np.array([_words(unit, self.chains[k]) for k in self.of[unit]], np.int64) for unit in units}

    def layer(self, number: int) -> str:
        """Name of the layer of a chain; empty where it belongs to none."""
        return self.firmware.layer_at(self.chains[number].address)

    def text(self, address: int) -> str:
        """The instructions of the chain at an address, one in each line."""
        return "\n".join(disassemble_word(word) for word in self._texts[address:self._ends[address]])

    def loads(self) -> np.ndarray:
        """For each chain, the youngest one before it that loads tiles; -1 where there is none."""
        numbers = np.arange(len(self.chains))
        found = np.maximum.accumulate(np.where([chain.loads for chain in self.chains], numbers, -1))
        return np.concatenate(([-1], found[:-1]))

    def products(self) -> np.ndarray:
        """For each word that the multi-function units take from products, in order, the chain of the product."""
        made = [np.repeat(k, _words("mfu", self.chains[k])) for k in self.of["product"]]
        return np.concatenate(made) if made else np.zeros(0, np.int64)

    def pops(self, number: int) -> bool:
        """Whether the words of a chain of the multi-function units come from a product."""
        chain = self.chains[number]
        return chain.product is not None or chain.source.mem == Mem.MVM_Q


def _uses(chain: Chain) -> set[str]:
    """The units that a chain runs through."""
    used, from_dram = set(), chain.loads and chain.source.mem == Mem.DRAM
    if chain.moves or from_dram:
        return used
    entries = any(each.op == Op.V_WR and each.mem == Mem.VECTOR_RF for each in chain.instructions)
    if chain.product:
        used |= {"product"} | ({"fetch"} if not chain.from_entries else set())
        used |= {"mfu"} if chain.target.mem != Mem.MVM_Q else set()
    else:
        pointwise = any(SPECS[each.op].operation for each in chain.instructions)
        through = pointwise or chain.source.mem == Mem.MVM_Q or chain.gathers or entries
        used |= {"mfu"} if through else {"copy"}
    return used | ({"entries"} if entries else set()) | ({"gather"} if chain.gathers else set())


def _words(unit: str, chain: Chain) -> int:
    """Number of words that a unit takes of a chain."""
    each = chain.source_words if unit in ("fetch", "copy", "gather") else chain.result_words
    return each * chain.registers.iterations
