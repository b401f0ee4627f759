"""The serial link: host messages and register accesses over a line that may lose, double or damage bytes.

A frame is encoded by consistent overhead byte stuffing (COBS), so that it holds no zero byte, and ends with one. Before
that it is

    number (1 byte), body (0 to BODY bytes, DATA 1 or more), kind (1), CRC-32 (IEEE 802.3) of the bytes before it (4)

with everything little-endian. A frame that is not as described here is dropped. Messages travel in both directions in
DATA frames, whose numbers count up modulo 256 from 0; `LAST` in the kind of a frame says that a message ends with it.
The receiver takes the next number only. Each side holds up to `WINDOW` frames that the other one has not taken, and
sends them once more when asked to.

The host asks. Its other frames are requests, whose body is `REQUEST`: how many DATA frames it has taken, an address and
a value. The machine answers each with an ANSWER, whose number is that of the request and whose body is `ANSWER`. It
executes a request whose number it has just executed only once, but for OPEN, and answers it again. It also sends an
ANSWER when a DATA frame has come. `AGAIN` in the kind of a request asks for the DATA frames that were not taken.

Source: S. Cheshire and M. Baker, Consistent Overhead Byte Stuffing, IEEE/ACM Transactions on Networking 7(2), 1999.
"""

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum, IntFlag

BODY = 240  #: Largest number of bytes of a body: encoded frames then fit a single run.
RUN = 254  #: Largest number of bytes of a frame before it is encoded.
WINDOW = 7  #: DATA frames that may be under way in each direction; the machine has a slot more for frames that come.
LAST = AGAIN = 0x80  #: Bit of the kind of a DATA frame: a message ends with it; of a request: send DATA frames again.
RESIDUE = 0x2144DF1C  #: CRC-32 of bytes that end with their own CRC-32.
REQUEST = struct.Struct("<BHI")  #: Body of a request: DATA frames taken, address, value.
ANSWER = struct.Struct("<BBBBI")  #: Body of an ANSWER: flags, DATA frames taken, passed on and made, value read.


class FrameKind(IntEnum):
    """What a frame is. A machine sends DATA and ANSWER."""

    DATA = 1  #: A part of a message.
    ANSWER = 2  #: How the link stands, and the value that was read.
    READ = 3  #: Read the register at the address.
    WRITE = 4  #: Write the value to the register at the address.
    POLL = 5  #: Answer.
    OPEN = 6  #: Forget all messages of the link; both directions begin with number 0.


class Flag(IntFlag):
    """Flags of an ANSWER."""

    QUIET = 1  #: Nothing has moved between link and machine for 256 cycles, nor has DATA come.
    MISSED = 2  #: A frame was dropped since the last ANSWER.
    CLOSED = 4  #: No host has opened the link since power-up, or the last press of the reset button.


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame.

    Attributes:
        number: Number of the frame, 0 to 255.
        kind:   Kind of the frame.
        last:   Whether a message ends with this DATA, or a request asks for DATA again.
        body:   What the frame carries.
    """

    number: int
    kind: FrameKind
    last: bool = False
    body: bytes = b""


def stuff(data: bytes) -> bytes:
    """Encode up to 254 bytes without zero bytes: each run of others follows a byte with its length plus one."""
    return b"".join(bytes([len(run) + 1]) + run for run in data.split(b"\0"))


def unstuff(encoded: bytes) -> bytes:
    """Decode bytes that `stuff` encoded.

    Raises:
        ValueError: a byte is zero, or the last run is too short.
    """
    runs, at = [], 0
    while at < len(encoded):
        length = encoded[at]
        run = encoded[at + 1:at + length]
        if not length or len(run) != length - 1 or 0 in run:
            raise ValueError(f"the frame is damaged at byte {at}: it must be stuffed and whole; send it again")
        runs.append(run)
        at += length
    return b"\0".join(runs)


def pack(frame: Frame) -> bytes:
    """The bytes of a frame on the line, including the closing zero.

    Raises:
        ValueError: the body is too long.
    """
    if len(frame.body) > BODY:
        raise ValueError(f"a body of {len(frame.body)} bytes is too long for a frame: it may have {BODY}")
    data = bytes([frame.number, *frame.body, frame.kind | LAST * frame.last])
    return stuff(data + zlib.crc32(data).to_bytes(4, "little")) + b"\0"


def unpack(encoded: bytes) -> Frame:
    """Decode a frame; `encoded` does not include the closing zero.

    Raises:
        ValueError: the frame is damaged, or of an unknown kind.
    """
    data = unstuff(encoded)
    if not 6 <= len(data) < RUN or zlib.crc32(data) != RESIDUE:
        raise ValueError("the frame is damaged: its CRC does not match; send it again")
    number, *body, kind = data[:-4]
    if kind & ~LAST not in list(FrameKind):
        raise ValueError(f"the frame has the unknown kind {kind}")
    return Frame(number=number, kind=FrameKind(kind & ~LAST), last=bool(kind & LAST), body=bytes(body))


def parts(message: bytes, number: int) -> list[Frame]:
    """The DATA frames of a message, of which the first has `number`."""
    starts = range(0, len(message), BODY)
    return [Frame(number=(number + k) % 256, kind=FrameKind.DATA, last=at + BODY >= len(message),
                  body=message[at:at + BODY]) for k, at in enumerate(starts)]
