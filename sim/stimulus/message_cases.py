"""Messages for tests: well-formed ones of every kind, malformed ones, and the items that they consist of."""

import zlib
from dataclasses import replace

import numpy as np
from concord.spec.host.messages import HEADER, Message, MessageKind, check, item_bytes, limit, pack, record_bytes
from concord.spec.isa.memories import VRFS, Mem
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import LazyFormat

FROM_MACHINE = (MessageKind.OUTPUT, MessageKind.UPDATED)


def to_machine(config: Config) -> tuple[MessageKind, ...]:
    """Kinds of messages that a machine takes."""
    lacks = () if config.lazy_update else (MessageKind.UPDATE,)
    return tuple(kind for kind in MessageKind if kind not in FROM_MACHINE + lacks)


def readable(config: Config) -> tuple[Mem, ...]:
    """The memories that the host reads and writes; those with paths of their own several times."""
    return VRFS + (Mem.VECTOR_RF,) * (2 * bool(config.vector_rf)) + (Mem.DRAM,) * (3 * bool(config.dram_words))


def message(config: Config, rng: np.random.Generator, kind: MessageKind, most: int = 5,
            among: tuple[Mem, ...] = ()) -> Message:
    """A well-formed random message to the machine, of up to `most` items (one or two for tiles).

    WRITE and READ name a memory of `among`, or any if there is none in it.
    """
    memory = int(rng.choice(among or readable(config))) if kind in (MessageKind.WRITE, MessageKind.READ) else 0
    if kind == MessageKind.UPDATE:
        return update(config, rng, most)
    most = min(most, 2) if kind == MessageKind.PACKED else most
    end = limit(config, Message(kind=kind, memory=memory))
    address = 0 if end is None else int(rng.choice([0, end - 1, rng.integers(end)]))
    count = int(rng.integers(1, min(most, (end or 1 << 32) - address) + 1))
    size = 0 if kind == MessageKind.READ else count * item_bytes(config, kind, memory)
    return Message(kind=kind, memory=memory, integer=kind == MessageKind.PACKED and bool(rng.integers(2)),
                   address=address, count=count, payload=rng.bytes(size))


def update(config: Config, rng: np.random.Generator, most: int = 5, **fields) -> Message:
    """A random UPDATE message, which asks for a pass of the lazy update; `fields` replace random fields."""
    count = int(rng.integers(1, most + 1))
    change, exponents = int(rng.choice([0, 1, 1, 2, LazyFormat().changes[-1] + 1])), rng.integers(0, 255, 2)
    return replace(Message(kind=MessageKind.UPDATE, memory=change, address=int(exponents @ [1, 256]), count=count,
                           payload=rng.bytes(count * item_bytes(config, MessageKind.UPDATE))), **fields)


def malformed(config: Config, rng: np.random.Generator) -> dict[str, bytes]:
    """One message for each reason to refuse it, by the name of the reason; all but the last four have the right CRC."""
    beat = config.message_bytes
    write = message(config, rng, MessageKind.WRITE, among=tuple(mem for mem in readable(config) if mem.kind.on_chip))
    good = pack(config, write)
    cases = {name: _seal(config, good[:at] + bytes([value]) + good[at + 1:-beat]) for name, at, value in (
        ("kind 0", 0, 0), ("kind 7", 0, 7), ("kind 10", 0, 10), ("kind 0x16", 0, 0x16), ("memory 0", 1, 0),
        ("memory 6", 1, 6), ("memory 12" if config.dram_words else "memory 11", 1, 12 if config.dram_words else 11),
        ("memory 0x11", 1, 0x11),
        ("flags 1", 2, 1), ("flags 2", 2, 2), ("byte 3", 3, 1),
        ("address 3", 7, 1), ("address 2", 6, 1), ("count 3", 11, 0x80), ("count 2", 10, 2),
        ("digest", 12, good[12] ^ 1),
    )}
    words = write.payload
    size = limit(config, write)
    for name, address, count in (("no item", 0, 0), ("beyond the end", size, 1), ("one too many", size - 1, 2),
                                 ("wraps", 2**32 - 1, 1), ("all", 2**32 - 1, 2**32 - 1)):
        cases[name] = pack(config, Message(
            kind=MessageKind.WRITE, memory=write.memory, address=address, count=count, payload=words))
    for kind in (MessageKind.PACKED, MessageKind.BIAS, MessageKind.PROGRAM):
        other = message(config, rng, kind)
        end = limit(config, other)
        cases[f"{kind.name} beyond"] = pack(config, replace(other, address=end))
        cases[f"{kind.name} with a memory"] = pack(config, replace(other, memory=1))
    cases |= _malformed_outside(config, rng) if config.dram_words else {}
    cases["INPUT with an address"] = pack(config, replace(message(config, rng, MessageKind.INPUT), address=1))
    cases["INPUT beyond the end"] = pack(config, replace(message(config, rng, MessageKind.INPUT), count=2**32 - 1))
    cases["INPUT in integer mode"] = pack(config, replace(message(config, rng, MessageKind.INPUT), integer=True))
    for kind in FROM_MACHINE:
        cases[kind.name] = pack(config, replace(message(config, rng, MessageKind.INPUT), kind=kind))
    faults = {"change": {"memory": LazyFormat().changes[-1] + 2}, "exponent": {"address": 0x10FF},
              "exponent of the update": {"address": 0xFF10}, "address": {"address": 0x10000}}
    for name, fault in faults.items() if config.lazy_update else (("unit", {}),):
        cases[f"UPDATE without a {name}"] = pack(config, update(config, rng, **fault))
    read = message(config, rng, MessageKind.READ)
    cases["READ with a payload"] = pack(config, replace(read, payload=rng.bytes(beat)))
    cases["over-long"] = _seal(config, good[:-beat] + bytes(beat))
    cases["over-long by much"] = _seal(config, good[:-beat] + rng.bytes(5 * beat))
    cases["short"] = _seal(config, good[:-2 * beat])
    padding = -len(words) % beat
    if padding:
        cases["padding"] = _seal(config, good[:-beat - 1] + b"\1")
    if beat > 4:
        cases["byte after the CRC"] = good[:-1] + b"\1"
    cases["CRC"] = good[:-beat] + bytes([good[-beat] ^ 1]) + good[1 - beat:]
    cases["payload"] = good[:16] + bytes([good[16] ^ 0x10]) + good[17:]
    cases["one beat"] = good[:beat]
    cases["truncated"] = good[:beat * int(rng.integers(1, len(good) // beat))]
    return cases


def _malformed_outside(config: Config, rng: np.random.Generator) -> dict[str, bytes]:
    """Messages beyond the end of Dram, whose ends wrap around 32 bits or not; and addresses that only Dram has."""
    size, top, cases = config.dram_words, 1 << 32, {}
    for kind in (MessageKind.WRITE, MessageKind.READ):
        payload = rng.bytes(item_bytes(config, kind, Mem.DRAM)) if kind == MessageKind.WRITE else b""
        for address, count in ((0, 0), (size, 1), (size - 1, 2), (0, size + 1), (0, 1 << 31), (1 << 31, 1),
                               (top - 1, 1), (top - 1, 2), (1, top - 1), (top - 1, top - 1), (size, top - size)):
            sent = Message(kind=kind, memory=Mem.DRAM, address=address, count=count, payload=payload)
            cases[f"{kind.name} of {count:#x} words from {address:#x} of Dram"] = pack(config, sent)
    for kind in (MessageKind.INPUT, MessageKind.PACKED, MessageKind.BIAS, MessageKind.PROGRAM):
        for bit in (16, 31):
            sent = message(config, rng, kind)
            cases[f"{kind.name} with bit {bit} of the address"] = pack(config, replace(sent, address=1 << bit))
    return cases


def items(config: Config, data: bytes) -> dict[str, list[int]]:
    """The payloads of MessageInput's output streams for one message, well-formed or not.

    A header that is refused gives nothing. Other faults are noticed later, when complete items have already left.
    """
    outs = {name: [] for name in ("write", "entry_write", "read", "packed", "bias", "program", "net", "update",
                                  *["outside"] * bool(config.dram_words))}
    beat = config.message_bytes
    if len(data) < HEADER.size + beat:
        return outs
    kind, memory, flags, zero, address, count, digest = HEADER.unpack_from(data)
    if kind not in to_machine(config) or flags > 1 or zero or digest != config.digest:
        return outs
    try:
        check(config, Message(kind=MessageKind(kind), memory=memory, integer=flags, address=address, count=count))
    except ValueError:
        return outs
    if kind == MessageKind.READ:
        if len(data) == HEADER.size + beat and _seal(config, data[:-beat]) == data:
            outs["read"].append(memory | address << 4 | count << (36 if config.dram_words else 20))
        return outs
    item = item_bytes(config, MessageKind(kind), memory)
    size = record_bytes(config) if kind == MessageKind.PACKED else item
    payload = data[HEADER.size:-beat][:count * item]
    whole = [int.from_bytes(payload[k:k + size], "little") for k in range(0, len(payload) - size + 1, size)]
    for k, bits in enumerate(whole):
        match kind:
            case MessageKind.WRITE if memory == Mem.VECTOR_RF:
                outs["entry_write"].append(address + k | (bits & (1 << entry_bits(config)) - 1) << 16)
            case MessageKind.WRITE if memory == Mem.DRAM:
                outs["outside"].append(address + k | count - k << 32 | bits << 64)
            case MessageKind.WRITE:
                outs["write"].append(memory | address + k << 4 | bits << 20)
            case MessageKind.INPUT:
                outs["net"].append(bits)
            case MessageKind.PROGRAM:
                outs["program"].append(address + k | bits << 16)
            case MessageKind.BIAS:
                outs["bias"].append(address + k | _biases(config, bits) << 16)
            case MessageKind.UPDATE:
                outs["update"].append(address | memory << 16 | count - k << 20 | bits << 52)
            case MessageKind.PACKED:
                outs["packed"].append(_record(config, address, k, flags, bits))
    return outs


def entry_bits(config: Config) -> int:
    """Number of bits of an entry of VectorRf; its record has zeros after them."""
    return config.native_dim * config.activations.code_bits + config.activations.exponent_bits


def _biases(config, bits):
    values = [(bits >> 32 * k) & (1 << config.bias_bits) - 1 for k in range(config.mfu_lanes)]
    return sum(value << config.bias_bits * k for k, value in enumerate(values))


def _record(config, address, index, integer, bits):
    records, groups = config.native_dim * config.groups, config.groups
    tile, record = address + index // records, index % records
    fields = (
        (tile, 16), (integer, 1), (record // groups, (config.native_dim - 1).bit_length()),
        (record % groups, (groups - 1).bit_length()),
        (bits, config.lanes * config.weights.code_bits + config.weights.exponent_bits), (record == records - 1, 1))
    value, at = 0, 0
    for field, width in fields:
        value, at = value | (field & (1 << width) - 1) << at, at + width
    return value


def _seal(config, body):
    """`body` followed by its CRC."""
    return body + zlib.crc32(body).to_bytes(config.message_bytes, "little")
