"""Wire shapes of accesses to Dram: ranges of its words, the words of chains, and accesses that failed."""

from amaranth.lib import data
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS

WORDS = 32  #: Bits of an address of a word of Dram, and of a number of words.

#: Words of Dram, one at least, for the instruction at the address `tag`; `last`: the last range of its chain.
Range = data.StructLayout({"first": WORDS, "count": WORDS, "tag": ADDRESS_BITS, "last": 1})

#: The words of a chain: `words` for each iteration, from `first` on. `inc`: iterations move. `tag`: of all ranges.
Walk = data.StructLayout({
    "first": WORDS, "inc": 1, "words": REGISTER_BITS + 1, "tag": ADDRESS_BITS,
    **dict.fromkeys(("iterations", "iterations_x"), REGISTER_BITS),
    **dict.fromkeys(("stride_x", "stride_y"), REGISTER_BITS + 1)})

#: An access that failed: `tag` is the address of its instruction.
Failure = data.StructLayout({"valid": 1, "tag": ADDRESS_BITS})
