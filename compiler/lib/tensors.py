"""Places of a layer's result: one memory, or several from which its consumers read."""

from dataclasses import dataclass

from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.program import read, write
from concord.spec.memories import Mem


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """The result of a layer, or the network's input.

    Attributes:
        name:     Name of the layer that made it.
        elements: Elements of the vector.
        places:   Places that hold it, by memory. The first one is read if any memory will do.
    """

    name: str
    elements: int
    places: dict[Mem, Place]

    @property
    def place(self) -> Place:
        """The place to read from if any memory will do."""
        return next(iter(self.places.values()))

    def lies_at(self, place: Place) -> bool:
        """Whether the vector already lies at the beginning of `place`."""
        return place.mem in self.places and self.places[place.mem].address == place.address

    def brought(self, build: Build, mem: Mem) -> Place:
        """The place of the vector in `mem`; a chain is emitted that copies it there, if it does not lie there yet."""
        if mem not in self.places:
            target = build.allocator.vector(mem, self.elements, f"{self.name}, copy")
            build.program.chain(read(self.place), write(target), rows=self.elements)
            self.places[mem] = target
        return self.places[mem]
