"""The instruction set of a trainer: the one definition that assembler, golden machine, decoder and documents read.

An instruction has one word of 128 bits, `tensor` has two. Bits that an instruction does not use are zero.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum, unique

from concord.spec.isa.instructions import Field
from concord.spec.trainer.config import NONE, TrainerConfig

WORD = 128  #: Bits of an instruction word.


@unique
class TrainerOp(IntEnum):
    """Opcode. No instruction has opcode 0, so erased memory is an error."""

    TENSOR = 1  #: Writes a view.
    COPY = 2  #: Copies words, or zeros, between memories, exponents and accumulators; makes patches of images.
    PRODUCT = 4  #: Multiplies blocks, adds the products to accumulators, and brings sums to mantissas.
    POOL = 5  #: Takes the largest byte, or the mean, of windows.
    POOL_BACK = 6  #: Sends the gradient of windows back to what they saw.
    ADD = 7  #: Adds two tensors exactly and brings the sums to mantissas.
    UPDATE = 8  #: Makes new parameters and momenta of old ones and of exact gradients in the accumulators.
    MEASURE = 16  #: Makes the exponent of a tensor of what its writers have measured; sets the flag `again`.
    LOOP = 17  #: Repeats the instructions up to `end_loop`.
    END_LOOP = 18  #: Ends the body of the innermost loop.
    S_WR = 19  #: Writes a base register.
    REPEAT = 20  #: Goes back to `target` while the flag `again` is set.
    S_ADD = 21  #: Adds a number to a base register, modulo 2^32.
    SWAP = 22  #: Exchanges two base registers.
    BARRIER = 23  #: Waits for all own instructions, and then for the other cores of the mask.
    SUM = 24  #: Adds the accumulators of several cores, through server memory.
    END = 25  #: Waits for all instructions and ends the program.


@unique
class TrainerError(IntEnum):
    """Why a program stopped. The instruction has moved nothing; of several errors the smallest code counts."""

    NONE = 0  #: No error.
    ILLEGAL = 1  #: The opcode is unknown, has bits that it does not take, or names what the core does not have.
    SIZE = 2  #: A count is 0, numbers of rows, blocks or planes do not fit each other, or a window is too large.
    RANGE = 3  #: A view leaves its memory, lies in a memory, begins at a word or has limits that the instruction does
    #: not take, or meets what the instruction writes; rows of the accumulators that are not there.
    LOOP = 4  #: A loop is nested too deep or repeats zero times, loops do not pair, or `repeat` leaves its loop.
    END = 5  #: The program runs past the end of the instruction buffer.
    MISMATCH = 6  #: Writers of one exponent have different units, or updates of two tensors meet in one summary.
    AGAIN = 7  #: `repeat` has gone back eight times in a row: right exponents repeat nothing, so the core is faulty.
    UNDERFLOW = 8  #: An update lies so far below the range of exponents that golden would round it twice.
    MEMORY = 9  #: Server memory answered a burst with an error. The address is that of its instruction or a later one.
    PEER = 10  #: A core that others wait for has stopped or will not begin, or cores wait with masks that do not agree.


class Space(IntEnum):
    """Where the words of a view lie."""

    CHIP = 0  #: The on-chip memory.
    SERVER = 1  #: Server memory, in words of 16 bytes behind DRAM_BASE.
    EXPONENTS = 2  #: Word k is E + 126 of X16k to X16k+15, one byte each; a write sets `next`, too, and `change` to 0.
    ACCUMULATORS = 3  #: A row has 6 planes; block 0 is lanes 0 to 15, lane 0 of block 1 is the plain lane.


class MeasureKind(IntEnum):
    """What `measure` measures."""

    TENSOR = 0  #: A tensor of 8, 16 or 32 bits: `golden.lazy.tensor.measure`.
    GRADIENT = 1  #: Gradients of parameters: `golden.lazy.tensor_layers.parameter_gradient`.
    UPDATE = 2  #: Momenta, parameters and gradients of an update; e is the exponent of the momenta.


@dataclass(frozen=True, slots=True)
class TrainerField(Field):
    """Bits of an instruction, of which word 1 begins at bit 128.

    Attributes:
        kind: "number"; "signed"; "view", "base" or "exponent" for the number of one; "view?" and "base?" for those
              that may be NONE.
    """

    kind: str

    @property
    def default(self) -> int:
        """What a field is that nobody names."""
        return NONE if self.kind.endswith("?") else 0

    def value(self, word: int) -> int:
        """The number that the field of `word` stands for."""
        bits = self.get(word)
        return bits - (1 << self.width) if self.kind == "signed" and bits >> self.width - 1 else bits

    def bits(self, value: int) -> int:
        """`value` at the position of this field, with the errors of `put`."""
        if self.kind == "signed" and -(1 << self.width - 1) <= value < 1 << self.width - 1:
            return self.put(value % (1 << self.width))
        if self.kind == "signed":
            raise ValueError(f"{value} does not fit in {self.width} bits with its sign")
        return self.put(value)


#: Fields of each word after the opcode, low bits first: its name, number of bits, and kind where it is no number.
_WORDS: dict[TrainerOp, tuple[str, ...]] = {
    TrainerOp.TENSOR: (
        "v:5:view space:2 planes:3 base:5:base? offset:28 plane:20 n0:12 s0:20:signed block:20:signed",
        (
            "n1:12 pitch1:20:signed step1:4 origin1:8:signed limit1:12 "
            "n2:12 pitch2:20:signed step2:4 origin2:8:signed limit2:12 blocks:12"
        ),
    ),
    TrainerOp.COPY: ("to:5:view source:5:view? zeros:1 add:1 patches:1 size:4 channels:4",),
    TrainerOp.PRODUCT: (
        (
            "a:5:view b:5:view y:5:view? bias:5:view? mask:5:view? relu:1 mode:1 turned:1 keep:1 sum:1 acc:9 "
            "ea:6:exponent eb:6:exponent ebias:6:exponent ey:6:exponent outputs:12 n0:12 n1:6 n2:6 a_s0:20:signed"
        ),
    ),
    TrainerOp.POOL: (
        "y:5:view x:5:view chosen:5:view? size:4 mean:1 relu:1 reciprocal:16 shift:6 ex:6:exponent ey:6:exponent",
    ),
    TrainerOp.POOL_BACK: (
        (
            "y:5:view x:5:view chosen:5:view? mask:5:view? size:4 stride:4 mean:1 reciprocal:16 shift:6 "
            "ex:6:exponent ey:6:exponent"
        ),
    ),
    TrainerOp.ADD: ("y:5:view a:5:view b:5:view mask:5:view? relu:1 ea:6:exponent eb:6:exponent ey:6:exponent",),
    TrainerOp.UPDATE: ("old:5:view new:5:view acc:9 bias:1 ew:6:exponent ev:6:exponent eg:6:exponent",),
    TrainerOp.MEASURE: ("e:6:exponent kind:2 ew:6:exponent eg:6:exponent cores:8",),
    TrainerOp.LOOP: ("count:16",),
    TrainerOp.END_LOOP: ("",),
    TrainerOp.S_WR: ("r:5:base value:32:signed",),
    TrainerOp.REPEAT: ("target:12",),
    TrainerOp.S_ADD: ("r:5:base value:32:signed",),
    TrainerOp.SWAP: ("r:5:base q:5:base",),
    TrainerOp.BARRIER: ("cores:8",),
    TrainerOp.SUM: ("acc:9 x:5:view cores:8",),
    TrainerOp.END: ("",),
}

OPCODE = Field(0, 6)


def _fields(words: tuple[str, ...]) -> dict[str, TrainerField]:
    found = {}
    for number, text in enumerate(words):
        lo = number * WORD + (0 if number else OPCODE.width)
        for name, width, *kind in (part.split(":") for part in text.split()):
            found[name] = TrainerField(lo, int(width), kind[0] if kind else "number")
            lo += int(width)
    return found


#: Fields of each opcode by name.
FIELDS = {op: _fields(words) for op, words in _WORDS.items()}
#: Number of words of each opcode.
SIZES = {op: len(words) for op, words in _WORDS.items()}


@dataclass(frozen=True, slots=True)
class TrainerInstruction:
    """One decoded instruction; `instruction["acc"]` is the number in its field `acc`."""

    op: TrainerOp
    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def words(self) -> list[int]:
        """Its words of 128 bits.

        Raises:
            ValueError: a number does not fit its field.
        """
        bits = OPCODE.put(self.op)
        for name, field in FIELDS[self.op].items():
            try:
                bits |= field.bits(self[name])
            except ValueError as error:
                raise ValueError(f"{name} of {self.op.name.lower()}: {error}") from None
        return [bits >> WORD * k & (1 << WORD) - 1 for k in range(SIZES[self.op])]


def instruction(op: TrainerOp, **values: int) -> TrainerInstruction:
    """An instruction from numbers of its fields; the others are none where there may be none, and otherwise 0.

    Raises:
        ValueError: the opcode does not take a field.
    """
    if unknown := values.keys() - FIELDS[op].keys():
        raise ValueError(
            f"{op.name.lower()} does not take {min(unknown)}: it takes {', '.join(FIELDS[op]) or 'nothing'}"
        )
    return TrainerInstruction(op, {name: int(values.get(name, field.default)) for name, field in FIELDS[op].items()})


def decode(words: list[int], address: int = 0) -> TrainerInstruction | None:
    """The instruction at an address, or None where it is ILLEGAL on every core.

    Raises:
        IndexError: it ends beyond `words`.
    """
    first = words[address]
    if OPCODE.get(first) not in list(TrainerOp):
        return None
    op = TrainerOp(OPCODE.get(first))
    bits = sum(words[address + k] << WORD * k for k in range(SIZES[op]))
    found = TrainerInstruction(op, {name: field.value(bits) for name, field in FIELDS[op].items()})
    return found if sum(word << WORD * k for k, word in enumerate(found.words)) == bits else None


def broken_rule(found: TrainerInstruction, config: TrainerConfig) -> str:
    """What makes an instruction ILLEGAL on a core, as a sentence; empty if nothing does."""
    counts = {"view": config.views, "base": config.bases, "exponent": config.exponents}
    for name, field in FIELDS[found.op].items():
        kind, value = field.kind.removesuffix("?"), found[name]
        if kind in counts and value >= counts[kind] and not (field.kind.endswith("?") and value == NONE):
            return f"{name} = {value}: the core has {counts[kind]} of the kind {kind}"
    return next((text for wrong, text in RULES.get(found.op, lambda _: ())(found) if wrong), "")


def _copy_rules(i):
    yield i["zeros"] + (i["source"] != NONE) != 1, "a copy has either a source or `zeros`"
    yield i["add"] + i["zeros"] + i["patches"] > 1, "a copy does one of add, zeros and patches"
    sized = (i["size"] != 0) | (i["channels"] != 0)
    yield (i["patches"] == 0) & sized, "size and channels belong to patches"


def _product_rules(i):
    rest = (i["bias"] != NONE) | (i["mask"] != NONE) | (i["relu"] != 0)
    yield (i["y"] == NONE) & rest, "bias, mask and relu need a y"
    drained = (i["y"] != NONE) | (i["turned"] != 0)
    yield (i["mode"] != 0) & drained, "mode columns takes neither y nor turned"
    alike = i["ey"] == i["ebias"]
    yield (i["sum"] != 0) & alike, "sums and plain sums have different units: ey and ebias differ"
    of_columns = (i["sum"] != 0) | (i["outputs"] != 0)
    yield (i["mode"] == 0) & of_columns, "sum and outputs belong to mode columns"


def _pool_rules(i):
    yield (i["mean"] != 0) & (i["chosen"] != NONE), "a mean has no `chosen`"
    of_means = (i["reciprocal"] != 0) | (i["shift"] != 0)
    yield (i["mean"] == 0) & of_means, "reciprocal and shift belong to means"
    lacks = (i["mean"] == 0) & (i["chosen"] == NONE)
    yield lacks & (i.op == TrainerOp.POOL_BACK), "a maximum needs `chosen`"


def _update_rules(i):
    alike = (i["ew"] == i["ev"]) | (i["ew"] == i["eg"]) | (i["ev"] == i["eg"])
    yield alike, "ew, ev and eg differ"


def _measure_rules(i):
    yield i["kind"] > max(MeasureKind), "there is no such kind of measure"
    update = i["kind"] == MeasureKind.UPDATE
    alike = (i["e"] == i["ew"]) | (i["e"] == i["eg"]) | (i["ew"] == i["eg"])
    yield update & alike, "e, ew and eg of an update differ"
    yield (i["kind"] != MeasureKind.UPDATE) & ((i["ew"] != 0) | (i["eg"] != 0)), "ew and eg belong to the kind update"


#: What makes an instruction ILLEGAL on every core, by opcode: pairs (whether it does, why). The conditions are made of
#: operators alone, so that they take numbers and wires alike.
RULES = {
    TrainerOp.COPY: _copy_rules,
    TrainerOp.PRODUCT: _product_rules,
    TrainerOp.POOL: _pool_rules,
    TrainerOp.POOL_BACK: _pool_rules,
    TrainerOp.UPDATE: _update_rules,
    TrainerOp.MEASURE: _measure_rules,
}
