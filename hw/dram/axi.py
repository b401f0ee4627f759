"""An AXI4 manager port: its channels as streams, with bursts of INCR beats as wide as the bus, and its wires."""

from dataclasses import dataclass

from amaranth.lib import data
from amaranth.lib.wiring import In, Member, Out
from concord.spec.machine.config import Config

EDGE = 4096  #: No burst crosses a multiple of this many bytes.
ADDRESS = 32  #: Bits of a byte address.
INCR = 1  #: Code of bursts whose beats follow each other.


@dataclass(frozen=True, kw_only=True)
class BusWords:
    """What units that move words want of a `Config`: bytes of the bus, and numbers of 2 bytes in a word."""

    dram_bus: int
    mfu_lanes: int


def burst() -> data.StructLayout:
    """A burst on AR or AW: address of its first beat, and number of beats less one."""
    return data.StructLayout({"addr": ADDRESS, "len": 8})


def read_beat(width: int) -> data.StructLayout:
    """A beat of `width` bytes on R. `resp` is 0 or 1 where the beat is right."""
    return data.StructLayout({"data": 8 * width, "resp": 2, "last": 1})


def write_beat(width: int) -> data.StructLayout:
    """A beat of `width` bytes on W. Bit k of `strb` says that byte k is written."""
    return data.StructLayout({"data": 8 * width, "strb": width, "last": 1})


#: The answer to a burst, on B.
Answer = data.StructLayout({"resp": 2})


def failed(resp):
    """Whether a response is SLVERR or DECERR."""
    return resp[1]


def wires(size: int, ids: int) -> dict[str, Member]:
    """The wires of a port by their names, with directions as the manager has them.

    Args:
        size: Bytes of the bus.
        ids:  Bits of an ID.
    """
    burst_ = {"addr": ADDRESS, "id": ids, "len": 8, "size": 3, "burst": 2}
    to_memory = {"ar": burst_, "aw": burst_, "w": {"data": 8 * size, "strb": size, "last": 1}}
    from_memory = {"r": {"data": 8 * size, "id": ids, "resp": 2, "last": 1}, "b": {"id": ids, "resp": 2}}
    members = {}
    for channels, there, back in ((to_memory, Out, In), (from_memory, In, Out)):
        for channel, parts in channels.items():
            members |= {f"{channel}{part}": there(width) for part, width in (parts | {"valid": 1}).items()}
            members[f"{channel}ready"] = back(1)
    return members


def bus(config: Config) -> dict[str, Member]:
    """The wires of the port of a machine, as `wires` has them. IDs have 1 bit."""
    return {f"m_axi_{name}": member for name, member in wires(config.dram_bus, 1).items()}
