"""The serial link: host messages and register accesses, framed for a line of bytes.

A frame is encoded by consistent overhead byte stuffing (COBS), so that it holds no zero byte, and ends with one. Its
first byte says what it is:

    1 MESSAGE   a host message, whole
    2 READ      address (2 bytes), CRC; answered by address (2), value (4), CRC
    3 WRITE     address (2), value (4), CRC; answered by the same frame

Everything is little-endian; the CRC is the CRC-32 (IEEE 802.3) of the bytes before it, the first included. A frame that
is none of these counts as a malformed message. Empty frames are skipped, so zero bytes may fill the line.

Source: S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, IEEE/ACM Transactions on Networking 7(2), 1999.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

RUN = 254  #: Largest number of bytes between two length bytes of an encoded frame.

_ADDRESS = struct.Struct("<BH")
_ACCESS = struct.Struct("<BHI")


class FrameKind(IntEnum):
    """First byte of a frame."""

    MESSAGE = 1
    READ = 2
    WRITE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame.

    Attributes:
        kind:    Kind of the frame.
        message: Bytes of the host message in a MESSAGE.
        address: Byte address of the register in a READ or WRITE.
        value:   Value of the register in a WRITE and in a READ from the machine; None in a READ to the machine.
    """

    kind: FrameKind
    message: bytes = b""
    address: int = 0
    value: int | None = None


def stuff(data: bytes) -> bytes:
    """Encode `data` without zero bytes.

    Each run of up to 254 nonzero bytes follows a byte that holds the length of the run plus one. In `data`, a zero byte
    follows every run except the last one and runs of 254 bytes.
    """
    encoded = bytearray()
    for part in data.split(b"\0"):
        while len(part) >= RUN:
            encoded += bytes([RUN + 1]) + part[:RUN]
            part = part[RUN:]
        encoded += bytes([len(part) + 1]) + part
    return bytes(encoded)


def unstuff(encoded: bytes) -> bytes:
    """Decode bytes that `stuff` encoded.

    Raises:
        ValueError: a byte is zero, or the last run is too short.
    """
    data, at, zero = bytearray(), 0, False
    while at < len(encoded):
        length = encoded[at]
        run = encoded[at + 1:at + length]
        if not length or len(run) != length - 1 or 0 in run:
            raise ValueError(f"the frame is damaged at byte {at}: it must be stuffed and whole; send it again")
        data += bytes(zero) + run
        at, zero = at + length, length <= RUN
    return bytes(data)


def pack(frame: Frame) -> bytes:
    """The bytes of a frame on the line, including the closing zero."""
    if frame.kind == FrameKind.MESSAGE:
        return stuff(bytes([frame.kind]) + frame.message) + b"\0"
    fields = (frame.kind, frame.address)
    body = _ADDRESS.pack(*fields) if frame.value is None else _ACCESS.pack(*fields, frame.value)
    return stuff(body + zlib.crc32(body).to_bytes(4, "little")) + b"\0"


def unpack(encoded: bytes) -> Frame:
    """Decode a frame; `encoded` does not include the closing zero.

    Raises:
        ValueError: the frame is damaged or of an unknown kind.
    """
    data = unstuff(encoded)
    if data[:1] == bytes([FrameKind.MESSAGE]):
        return Frame(kind=FrameKind.MESSAGE, message=data[1:])
    body, crc = data[:-4], data[-4:]
    if zlib.crc32(body).to_bytes(4, "little") != crc:
        raise ValueError("the frame is damaged: its CRC does not match; send it again")
    if len(body) == _ACCESS.size and body[0] in (FrameKind.READ, FrameKind.WRITE):
        kind, address, value = _ACCESS.unpack(body)
        return Frame(kind=FrameKind(kind), address=address, value=value)
    if len(body) == _ADDRESS.size and body[0] == FrameKind.READ:
        return Frame(kind=FrameKind.READ, address=_ADDRESS.unpack(body)[1])
    raise ValueError(f"the frame has an unknown kind {body[:1].hex()} or {len(body)} bytes, which no kind has")
