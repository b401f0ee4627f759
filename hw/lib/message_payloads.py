"""Wire shapes of the items that travel in host messages."""

from amaranth.hdl import signed
from amaranth.lib import data
from concord.hw.lib.payloads import entry, softmax_mark, word
from concord.spec.isa.instructions import ADDRESS_BITS, REGISTER_BITS
from concord.spec.machine.config import Config

UNIT = 32  #: Bits of a narrow unit. Payloads are processed unit by unit, and an item is a whole number of units.

NUMBER = 32  #: Bits of an address and of a count in a message.

Program = data.StructLayout({"address": ADDRESS_BITS, "data": 64})


def number_bits(config: Config) -> int:
    """Bits of the addresses that a machine keeps of a message: all of them with Dram, else those of its chip."""
    return NUMBER if config.dram_words else ADDRESS_BITS


def header(config: Config) -> data.StructLayout:
    """A header without its digest; `wrong` says that some of its bits are illegal in every header."""
    return data.StructLayout({
        "kind": 4, "memory": 4, "integer": 1, "address": number_bits(config), "count": NUMBER, "wrong": 1})


def read(config: Config) -> data.StructLayout:
    """A READ to answer."""
    return data.StructLayout({"memory": 4, "address": number_bits(config), "count": NUMBER})


def wide_unit(config: Config) -> int:
    """Number of bits of a wide unit: a beat, or a word where several words share a beat."""
    return 8 * min(2 * config.mfu_lanes, config.message_bytes)


def unit_bits(config: Config, size: int) -> int:
    """Number of bits of the units of items of `size` bytes: wide units if these fill the items, else narrow ones."""
    return UNIT if 8 * size % wide_unit(config) else wide_unit(config)


def unit(config: Config) -> data.StructLayout:
    """One unit, a narrow one in the low bits; `end` marks a beat's last unit, `last` the last beat of a message."""
    return data.StructLayout({"data": wide_unit(config), "last": 1, "end": 1})


def beat(config: Config) -> data.StructLayout:
    """One beat of a host message."""
    return data.StructLayout({"data": 8 * config.message_bytes, "last": 1})


def write(config: Config) -> data.StructLayout:
    """One word for a random-access vector memory."""
    return data.StructLayout({"memory": 4, "address": ADDRESS_BITS, "word": word(config)})


def outside(config: Config) -> data.StructLayout:
    """One word for Dram at the address `first`; `left` words of its message are left, this one included."""
    return data.StructLayout({"first": NUMBER, "left": NUMBER, "word": word(config)})


def entry_write(config: Config) -> data.StructLayout:
    """One entry for VectorRf."""
    return data.StructLayout({"address": ADDRESS_BITS, "entry": entry(config)})


def entry_reply(config: Config) -> data.StructLayout:
    """One entry of the answer to a READ of VectorRf from `address`; `remaining` entries are left, this one included."""
    return data.StructLayout({"entry": entry(config), "address": ADDRESS_BITS, "remaining": 32})


def bias(config: Config) -> data.StructLayout:
    """One word of BiasRf."""
    return data.StructLayout({
        "address": ADDRESS_BITS, "data": data.ArrayLayout(signed(config.bias_bits), config.mfu_lanes)})


def packed(config: Config) -> data.StructLayout:
    """One lane group of one row of a tile; `last` marks the last one of the tile."""
    return data.StructLayout({
        "tile": ADDRESS_BITS, "integer": 1, "row": range(config.native_dim), "group": range(config.groups),
        "record": config.lanes * config.weights.code_bits + config.weights.exponent_bits, "last": 1})


def update(config: Config) -> data.StructLayout:
    """M parameters for the lazy update, in the four words of an UPDATE item; `remaining` counts the items left."""
    return data.StructLayout({"exponents": 16, "change": 4, "remaining": 32,
                              "words": data.ArrayLayout(word(config), 4)})


def updated(config: Config) -> data.StructLayout:
    """One word of an UPDATED with its two exponents; `remaining` words of the message are left, this one included."""
    return data.StructLayout({"word": word(config), "exponents": 16, "remaining": 32})


def items(config: Config) -> dict:
    """Shapes of the items of messages to a machine, by the name of the stream that carries them."""
    return {"net": word(config), "write": write(config), "entry_write": entry_write(config), "program": Program,
            "bias": bias(config), "packed": packed(config), "update": update(config),
            **({"outside": outside(config)} if config.dram_words else {})}


def output(config: Config) -> data.StructLayout:
    """One word on its way to the host; `remaining` words of its message are left, this one included."""
    return data.StructLayout({"word": word(config), "remaining": REGISTER_BITS})


def outgoing(config: Config) -> data.StructLayout:
    """One word of `output`, before the softmax unit if the machine has one.

    `softmax`: the message is to be replaced by its softmax. `tail`: number of lanes of its last word that hold
    elements, 0 for all.
    """
    tail = {"tail": range(config.mfu_lanes)} if config.softmax_words else {}
    return data.StructLayout({**output(config).members, **softmax_mark(config), **tail})


def reply(config: Config) -> data.StructLayout:
    """One word of the answer to a READ of `memory` from `address`; `remaining` words are left, this one included."""
    return data.StructLayout({
        "word": word(config), "memory": 4, "address": number_bits(config), "remaining": NUMBER})
