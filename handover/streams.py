"""Messages as one AXI4-Stream: bytes, the index of their ends, and hex for `$readmemh`."""

import json
from dataclasses import dataclass

from concord.spec.host.messages import HEADER, MessageKind
from concord.spec.isa.memories import MEMORY_NAMES, Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Stream:
    """Messages that follow each other on one AXI4-Stream; TLAST marks the last beat of each.

    Attributes:
        config:   Machine that sends or takes them.
        messages: The bytes of each message, in whole beats.
    """

    config: Config
    messages: tuple[bytes, ...]

    @property
    def beats(self) -> int:
        """Number of beats of all messages."""
        return len(self.bytes) // self.config.message_bytes

    @property
    def bytes(self) -> bytes:
        """The messages without anything between them."""
        return b"".join(self.messages)

    @property
    def hex(self) -> str:
        """One line for each beat: TLAST, TKEEP and TDATA as hexadecimal numbers, with underscores between them."""
        size = self.config.message_bytes
        keep = f"{(1 << size) - 1:x}"
        return "".join(
            f"{int(at + size == len(message))}_{keep}_{message[at:at + size][::-1].hex()}\n"
            for message in self.messages for at in range(0, len(message), size))

    @property
    def index(self) -> str:
        """JSON with the range of bytes of each message, and what its header says."""
        rows, first = [], 0
        for message in self.messages:
            rows.append({"first": first, "end": first + len(message), **_described(message)})
            first += len(message)
        lines = ",\n    ".join(json.dumps(row) for row in rows)
        between = f"\n    {lines}\n  " if rows else ""
        return f'{{\n  "beat_bytes": {self.config.message_bytes},\n  "messages": [{between}]\n}}\n'


def _described(message: bytes) -> dict:
    kind, memory, _, _, address, count, _ = HEADER.unpack_from(message)
    named = kind in (MessageKind.WRITE, MessageKind.READ)
    place = {"memory": MEMORY_NAMES[Mem(memory)]} if named else {}
    return {"kind": MessageKind(kind).name, **place, "address": address, "count": count}
