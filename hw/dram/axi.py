"""The channels of an AXI4 manager port, as streams: one burst of INCR beats as wide as the bus, one ID."""

from amaranth.lib import data

EDGE = 4096  #: No burst crosses a multiple of this many bytes.
ADDRESS = 32  #: Bits of a byte address.


def burst() -> data.StructLayout:
    """A burst on AR or AW: address of its first beat, and number of beats less one."""
    return data.StructLayout({"addr": ADDRESS, "len": 8})


def read_beat(width: int) -> data.StructLayout:
    """A beat of `width` bytes on R. `resp` is 0 or 1 where the beat is right."""
    return data.StructLayout({"data": 8 * width, "resp": 2, "last": 1})


def failed(resp):
    """Whether a response is SLVERR or DECERR."""
    return resp[1]
