"""Bits of the results of products that are quantised by themselves. The command line reads this without numpy."""

from collections.abc import Mapping
from dataclasses import dataclass, field

#: What follows the name of a layer in that of its quantised result.
ENDING = "_result"


@dataclass(frozen=True, kw_only=True, slots=True)
class Results:
    """Bits to which the results of products are quantised.

    Attributes:
        bits:   Bits of every result; None for results in binary16.
        layers: Bits of the results of single layers, by their names; None for binary16.
    """

    bits: int | None = None
    layers: Mapping[str, int | None] = field(default_factory=dict)

    def of(self, name: str) -> int | None:
        """Bits of the result of a layer."""
        return self.layers.get(name, self.bits)

    @property
    def words(self) -> str:
        """The bits as the end of a list in a sentence."""
        whole = [] if self.bits is None else [f"results of products of {self.bits} bits"]
        single = [f"of {name} {'binary16' if bits is None else f'{bits} bits'}" for name, bits in self.layers.items()]
        return "".join(f", {text}" for text in (*whole, *single))

    def __bool__(self) -> bool:
        return self.bits is not None or any(bits is not None for bits in self.layers.values())


IN_BINARY16 = Results()  #: No result is quantised by itself.
