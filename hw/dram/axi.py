"""An AXI4 manager port: its channels as streams, with bursts of INCR beats as wide as the bus, and its wires."""

from amaranth.lib import data
from amaranth.lib.wiring import In, Member, Out
from concord.spec.machine.config import Config

EDGE = 4096  #: No burst crosses a multiple of this many bytes.
ADDRESS = 32  #: Bits of a byte address.
INCR = 1  #: Code of bursts whose beats follow each other.


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


def bus(config: Config) -> dict[str, Member]:
    """The wires of the port of a machine, by their names, with directions as the manager has them. IDs have 1 bit."""
    size = config.dram_bus
    burst_ = {"addr": ADDRESS, "id": 1, "len": 8, "size": 3, "burst": 2}
    to_memory = {"ar": burst_, "aw": burst_, "w": {"data": 8 * size, "strb": size, "last": 1}}
    from_memory = {"r": {"data": 8 * size, "id": 1, "resp": 2, "last": 1}, "b": {"id": 1, "resp": 2}}
    members = {}
    for channels, there, back in ((to_memory, Out, In), (from_memory, In, Out)):
        for channel, wires in channels.items():
            members |= {f"{channel}{wire}": there(width) for wire, width in (wires | {"valid": 1}).items()}
            members[f"{channel}ready"] = back(1)
    return {f"m_axi_{name}": member for name, member in members.items()}
