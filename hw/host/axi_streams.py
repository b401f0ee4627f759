"""Converts the streams of a unit to AXI4-Stream buses."""

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import Component, In, Out

_LAST = "last"  # name of the field that becomes tlast


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One value in tdata.

    Attributes:
        name:   Name in the payload, with array elements in brackets; "data" if the payload is one value.
        source: First bit in the payload.
        offset: First bit in tdata, a multiple of 8.
        width:  Number of bits.
        signed: Whether the sign fills the bits up to the next byte.
    """

    name: str
    source: int
    offset: int
    width: int
    signed: bool

    @property
    def bytes(self) -> int:
        """Number of bytes that the field takes."""
        return -(-self.width // 8)


def fields(shape) -> list[Field]:
    """The values of a payload, except `last`. Each takes whole bytes, and the first one takes the lowest."""
    found, offset = [], 0
    for name, source, part in _values(shape, "", 0):
        cast = Shape.cast(part)
        if cast.width and name != _LAST:
            found.append(Field(name=name or "data", source=source, offset=offset, width=cast.width, signed=cast.signed))
            offset += 8 * found[-1].bytes
    return found


def _values(shape, name: str, start: int):
    """Name, first bit and shape of each value of a layout."""
    if not isinstance(shape, data.Layout):
        yield name, start, shape
        return
    for key, field in shape:
        inner = f"{name}[{key}]" if isinstance(key, int) else f"{name}.{key}" if name else key
        yield from _values(field.shape, inner, start + field.offset)


class AxiStreams(Component):
    """Wraps `unit` so that each stream X is a bus of s_axis_X_tdata, _tvalid and _tready, and of _tlast if the payload
    has a field `last`. The buses of outputs are called m_axis_X.

    Args:
        unit:     Component to wrap. Its other ports are unchanged.
        prefixes: Names of the buses, of the streams that are to become buses; all streams if left out.
    """

    def __init__(self, unit: Component, prefixes: Mapping[str, str] | None = None):
        self._unit, self.streams = unit, streams(unit)
        if prefixes is not None:
            self.streams = {key: (prefix, *self.streams[key][1:]) for key, prefix in prefixes.items()}
        ports = {key: member for key, member in unit.signature.members.items() if key not in self.streams}
        for prefix, flow, shape in self.streams.values():
            there, back = (In, Out) if flow == In else (Out, In)
            ports[f"{prefix}_tdata"] = there(8 * sum(field.bytes for field in fields(shape)))
            ports |= {f"{prefix}_tlast": there(1)} if _has_last(shape) else {}
            ports |= {f"{prefix}_tvalid": there(1), f"{prefix}_tready": back(1)}
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = self._unit
        for key, member in self._unit.signature.members.items():
            if key in self.streams:
                self._bus(m, key)
            elif member.is_signature:
                wiring.connect(m, getattr(self._unit, key), wiring.flipped(getattr(self, key)))
            else:
                inner, outer = getattr(self._unit, key), getattr(self, key)
                m.d.comb += inner.eq(outer) if member.flow == In else outer.eq(inner)
        return m

    def _bus(self, m, key: str):
        """Connect one stream."""
        prefix, flow, shape = self.streams[key]
        inner = getattr(self._unit, key)
        payload = Value.cast(inner.payload)
        valid, ready = getattr(self, f"{prefix}_tvalid"), getattr(self, f"{prefix}_tready")
        pairs = [(inner.valid, valid), (ready, inner.ready)]
        tdata = getattr(self, f"{prefix}_tdata")
        for field in fields(shape):
            value = payload[field.source:field.source + field.width]
            bus = tdata[field.offset:field.offset + 8 * field.bytes]
            if flow == In:
                pairs.append((value, bus[:field.width]))
            else:
                sign = value[-1] & field.signed
                pairs.append((Cat(value, sign.replicate(8 * field.bytes - field.width)), bus))
        if _has_last(shape):
            pairs.append((inner.p[_LAST], getattr(self, f"{prefix}_tlast")))
        for left, right in pairs:
            m.d.comb += left.eq(right) if flow == In else right.eq(left)


def streams(unit: Component) -> dict[str, tuple]:
    """The streams of a component: the prefix of its bus, its flow and the shape of its payload."""
    return {key: (f"{'s' if member.flow == In else 'm'}_axis_{key}", member.flow,
                  member.signature.members["payload"].shape)
            for key, member in unit.signature.members.items()
            if member.is_signature and isinstance(member.signature, stream.Signature)}


def _has_last(shape) -> bool:
    """Whether a payload marks the last transfer of a packet."""
    return isinstance(shape, data.StructLayout) and _LAST in shape.members
