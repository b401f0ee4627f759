"""Host messages: the meaning of their bytes, on every link.

A message is a header of 16 bytes, a payload, zero bytes up to a whole beat, and one last beat whose low 32 bits are the
CRC-32 (IEEE 802.3, as zlib) of all bytes before it. Everything is little-endian. TLAST marks the last beat.

    byte 0 kind, 1 memory, 2 flags (bit 0: integer mode), 3 zero, 4..7 address, 8..11 count, 12..15 configuration digest

Only WRITE and READ name a memory; the other kinds carry 0. INPUT and OUTPUT carry address 0, and only PACKED has flags.
UPDATE is one pass of a training tensor of parameters through the lazy update: byte 1 is the change of its exponent plus
1, byte 4 is the exponent E - E_MIN of its mantissas, byte 5 is the exponent of the update, and bytes 6 and 7 are zero.
UPDATED has the same address. A message has at least one item. A machine accepts INPUT at any time, and the other kinds
only while no program runs.
"""

import struct
import zlib
from dataclasses import dataclass, replace
from enum import IntEnum

from concord.spec.isa.memories import Mem, addressed, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import E_MAX, E_MIN, LazyFormat

HEADER = struct.Struct("<BBBBIII")  #: kind, memory, flags, zero, address, count, digest


class MessageKind(IntEnum):
    """First byte of a message. The comments name the items that `count` counts."""

    WRITE = 1  #: Words for a random-access vector memory, or entries for VectorRf (`entry_bytes`).
    READ = 2  #: To the machine: a request for `count` words or entries, without payload. From the machine: the reply.
    PACKED = 3  #: Native tiles for MatrixRf. A tile has, row by row, one record for each lane group (`record_bytes`).
    BIAS = 4  #: Words for BiasRf. A word has M 32-bit integers, of which only the low `bias_bits` bits are used.
    PROGRAM = 5  #: 64-bit instructions for the instruction buffer.
    INPUT = 6  #: Words for NetQ.
    OUTPUT = 7  #: Words from NetQ; each `v_wr NetQ` of an iteration makes one message. With PEER set, it is an INPUT.
    UPDATE = 8  #: Items of M parameters: words of mantissas, of residuals, of low and of high halves of the update.
    UPDATED = 9  #: Words: mantissas and residuals in turn; the last word holds the unit's request and the change.


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message without its CRC.

    Attributes:
        kind:    Kind of the message.
        memory:  Memory in WRITE and READ; change of the exponent plus 1 in UPDATE; 0 in other kinds.
        integer: Whether the tiles of PACKED are in integer mode.
        address: Address of the first word, tile or instruction; exponents in UPDATE.
        count:   Number of items, as `MessageKind` names them.
        payload: Bytes of the items.
    """

    kind: MessageKind
    memory: int = 0
    integer: bool = False
    address: int = 0
    count: int = 0
    payload: bytes = b""


def record_bytes(config: Config) -> int:
    """Number of bytes of one record of a packed tile (one lane group of one row), in whole 32-bit units.

    The code of mantissa k of the group fills bits [k*b, (k+1)*b), where b is `code_bits` of the format; the stored
    exponent E - e_min of the row comes after the last mantissa.
    """
    bits = config.lanes * config.weights.code_bits + config.weights.exponent_bits
    return -(-bits // 32) * 4


def entry_bytes(config: Config) -> int:
    """Number of bytes of one entry of VectorRf, in whole 32-bit units.

    The code of mantissa k fills bits [k*b, (k+1)*b), where b is `code_bits` of the format; the stored exponent
    E - e_min comes after the last mantissa.
    """
    bits = config.native_dim * config.activations.code_bits + config.activations.exponent_bits
    return -(-bits // 32) * 4


def item_bytes(config: Config, kind: MessageKind, memory: int = 0) -> int:
    """Number of payload bytes of one item. Items follow each other; only the whole payload is padded to a beat."""
    if memory == Mem.VECTOR_RF and kind in (MessageKind.WRITE, MessageKind.READ):
        return entry_bytes(config)
    return {
        MessageKind.WRITE: 2 * config.mfu_lanes,
        MessageKind.READ: 2 * config.mfu_lanes,
        MessageKind.PACKED: config.native_dim * config.groups * record_bytes(config),
        MessageKind.BIAS: 4 * config.mfu_lanes,
        MessageKind.PROGRAM: 8,
        MessageKind.INPUT: 2 * config.mfu_lanes,
        MessageKind.OUTPUT: 2 * config.mfu_lanes,
        MessageKind.UPDATE: 8 * config.mfu_lanes,
        MessageKind.UPDATED: 2 * config.mfu_lanes,
    }[kind]


def pack(config: Config, message: Message, *, digest: int | None = None) -> bytes:
    """The bytes of a message with its CRC, in whole beats.

    Args:
        config:  Machine that takes the message, or sends it to the host.
        message: The message.
        digest:  Digest of the machine that takes the message, if another one than `config` sends it.
    """
    beat, digest = config.message_bytes, config.digest if digest is None else digest
    body = HEADER.pack(message.kind, message.memory, message.integer, 0, message.address, message.count, digest)
    body += message.payload
    body += bytes(-len(body) % beat)
    return body + zlib.crc32(body).to_bytes(beat, "little")


def limit(config: Config, message: Message) -> int | None:
    """Largest address + count of a message to the machine, or None for a queue.

    Raises:
        ValueError: the machine does not accept this kind, or the kind does not accept this memory.
    """
    if message.kind in (MessageKind.WRITE, MessageKind.READ):
        if message.memory not in addressed(config):
            raise ValueError(f"memory {message.memory} cannot be written or read by message: name one of "
                             f"{', '.join(f'{mem} ({mem.name})' for mem in addressed(config))}")
        return depth(config, Mem(message.memory))
    if message.memory and message.kind != MessageKind.UPDATE:
        raise ValueError(f"a message of kind {message.kind.name} names no memory, this one names {message.memory}")
    if message.kind in (MessageKind.OUTPUT, MessageKind.UPDATED):
        raise ValueError(f"a message of kind {message.kind.name} comes from a machine: it cannot be sent to one")
    return {MessageKind.PACKED: config.matrix_tiles, MessageKind.BIAS: config.bias_words,
            MessageKind.PROGRAM: config.instructions}.get(message.kind)


def exponents(address: int) -> tuple[int, int]:
    """Exponent E of the parameters and of the update, from the address of an UPDATE."""
    return (address & 0xFF) + E_MIN, (address >> 8 & 0xFF) + E_MIN


def _check_update(config: Config, message: Message) -> None:
    if not config.lazy_update:
        raise ValueError("this machine has no lazy-update unit: send UPDATE to one with lazy_update, such as trainer")
    if message.memory - 1 not in LazyFormat().changes:
        raise ValueError(f"an exponent cannot change by {message.memory - 1} in one pass")
    if message.address >> 16 or max(exponents(message.address)) > E_MAX:
        raise ValueError(f"address {message.address:#x} of an UPDATE is no pair of exponents in {E_MIN}..{E_MAX}")


def check(config: Config, message: Message) -> None:
    """Refuse a message that the machine would refuse.

    Raises:
        ValueError: memory, mode, address or count do not fit the kind of the message or this machine.
    """
    end = limit(config, message)
    if message.integer and message.kind != MessageKind.PACKED:
        raise ValueError(f"a message of kind {message.kind.name} has no integer mode: only PACKED has")
    if message.count < 1:
        raise ValueError("the message is empty: it must have at least one item")
    if message.kind == MessageKind.UPDATE:
        _check_update(config, message)
    elif end is None and message.address:
        raise ValueError(f"a message of kind {message.kind.name} has no address, this one has {message.address}")
    if end is not None and message.address + message.count > end:
        raise ValueError(f"the message ends at {message.address + message.count}, beyond the {end} items "
                         f"that its memory has on this machine")


def unpack(config: Config, data: bytes, *, to_machine: bool) -> Message:
    """The message in `data`, on its way to the machine or from it.

    Raises:
        ValueError: the message is truncated, too long, of an unknown kind, damaged, or made for another machine; or it
            goes to the machine and `check` refuses it.
    """
    beat = config.message_bytes
    if len(data) % beat or len(data) < HEADER.size + beat:
        raise ValueError(f"a message of {len(data)} bytes is truncated: it must be whole beats of {beat} bytes")
    if zlib.crc32(data[:-beat]).to_bytes(beat, "little") != data[-beat:]:
        raise ValueError("the message is damaged: its CRC does not match; send it again")
    message = announced(config, data, to_machine=to_machine)
    sent = message.kind == MessageKind.READ and to_machine
    size = 0 if sent else message.count * item_bytes(config, message.kind, message.memory)
    body = data[HEADER.size:-beat]
    payload = body[:size]
    if len(body) != size + -size % beat or any(body[size:]):
        raise ValueError(f"the message announces {size} payload bytes and brings {len(body)}, or other than zeros "
                         f"after them")
    return replace(message, payload=payload)


def announced(config: Config, data: bytes, *, to_machine: bool) -> Message:
    """The message that a header announces, without its payload.

    Args:
        config:     The machine.
        data:       At least the header.
        to_machine: Whether the message is on its way to the machine.

    Raises:
        ValueError: the header is of an unknown kind, or made for another machine, or `check` refuses it.
    """
    kind, memory, flags, zero, address, count, digest = HEADER.unpack_from(data)
    if digest != config.digest:
        raise ValueError(f"the message is for machine {digest:08x}, this one is {config.digest:08x}: compile for it")
    if kind not in list(MessageKind) or zero or flags > 1:
        raise ValueError(f"the message has an unknown kind {kind} or flags {flags}")
    message = Message(kind=MessageKind(kind), memory=memory, integer=bool(flags), address=address, count=count)
    if to_machine:
        check(config, message)
    return message
