"""Pack and unpack single payloads of nested layouts; `sim.drivers.stream.pack` does it for whole arrays."""

from amaranth.hdl import Shape
from amaranth.lib import data


class Record:
    """A shape that is analysed once, so that packing a payload makes no Amaranth objects, which are slow.

    Args:
        shape: Scalar shape or layout of the payload.
    """

    def __init__(self, shape):
        cast = Shape.cast(shape)
        self.width, self.signed, self.parts = cast.width, cast.signed, None
        if isinstance(shape, (data.Layout, type)) and not isinstance(shape, range):
            self.parts = {key: (field.offset, Record(field.shape)) for key, field in data.Layout.cast(shape)}

    def join(self, value) -> int:
        """Pack a number, a list of values or a dictionary into an integer. Fields that a dictionary lacks are 0.

        Raises:
            ValueError: a number does not fit.
            KeyError:   a dictionary has a field that the layout lacks.
        """
        if self.parts is None:
            payload = int(value) & (1 << self.width) - 1
            if self.of(payload) != value:
                raise ValueError(f"{value} does not fit {self.width} bits")
            return payload
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return sum(self.parts[key][1].join(part) << self.parts[key][0] for key, part in items)

    def of(self, payload: int):
        """Unpack an integer into numbers, and dictionaries by field name or index."""
        if self.parts is None:
            return int(payload) - (int(payload) >> self.width - 1 << self.width if self.signed else 0)
        return {key: part.of(payload >> offset & (1 << part.width) - 1) for key, (offset, part) in self.parts.items()}
