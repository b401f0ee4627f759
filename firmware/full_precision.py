"""Full-precision firmware: the content of the memories before any rounding, for the same program."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from concord.spec.isa.memories import MEMORY_NAMES, Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RealEntries:
    """Numbers of a range of VectorRf.

    Attributes:
        address: First entry.
        values:  float64[entries, N].
        codes:   float64[entries, N], what their quantiser makes of them.
    """

    address: int
    values: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FullPrecision:
    """Real numbers at the addresses of the memories that a firmware fills.

    A tile of integers holds real multiples of the step of its codes, and a tile of blocks real numbers. Unsigned codes
    are not lowered by their zero point, neither in entries nor in `biases`.

    Attributes:
        vectors: float64[words, M] for each vector memory in use, from address 0 up.
        tiles:   float64[tiles, N, N], from tile 0 up.
        biases:  float64[words, M], from address 0 of BiasRf up.
        entries: Numbers of ranges of VectorRf.
        clips:   Smallest and largest value of an instruction that quantises, by its address, where the clips of the
            quantiser are an activation function of the network: the lower one a relu, the upper one that of a relu6.
    """

    vectors: Mapping[Mem, np.ndarray]
    tiles: np.ndarray
    biases: np.ndarray
    entries: tuple[RealEntries, ...] = ()
    clips: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def check(self, config: Config, firmware):
        """Refuse images that do not lie at the addresses of a `Firmware`.

        Raises:
            ValueError: a sentence that names the memory.
        """
        size = config.native_dim
        wanted = {
            "tiles": (self.tiles, (len(firmware.tiles.mantissas), size, size)),
            "biases": (self.biases, firmware.biases.shape)}
        wanted |= {MEMORY_NAMES[mem]: (words, getattr(firmware.vectors.get(mem), "shape", ()))
                   for mem, words in self.vectors.items()}
        if len(self.entries) != len(firmware.entries):
            raise ValueError("full precision: other ranges of VectorRf than the firmware has; compile again")
        for k, (own, part) in enumerate(zip(self.entries, firmware.entries, strict=True)):
            for name in ("values", "codes"):
                wanted[f"entries {k}, {name}"] = getattr(own, name), part.mantissas.shape
            if own.address != part.address:
                raise ValueError(f"full precision: entries {k} begin at {own.address}, those of the firmware at "
                                 f"{part.address}; compile again")
        for name, (array, shape) in wanted.items():
            if array.dtype != np.float64 or array.shape != shape:
                raise ValueError(f"full precision, {name}: float64{list(shape)} is needed, not "
                                 f"{array.dtype}{list(array.shape)}; compile again")
            if np.isnan(array).any():
                raise ValueError(f"full precision, {name}: it holds a NaN; compile again")


#: Prefix of the names of these arrays in files.
_PREFIX = "full_precision."


def arrays_of(images: FullPrecision) -> dict[str, np.ndarray]:
    """The arrays of a file, by name."""
    named = {f"vectors.{mem.name}": words for mem, words in images.vectors.items()}
    named |= {f"entries.{k}.{name}": getattr(part, name)
              for k, part in enumerate(images.entries) for name in ("values", "codes")}
    clips = np.array([(address, *ends) for address, ends in images.clips.items()]).reshape(-1, 3)
    named |= {"tiles": images.tiles, "biases": images.biases, "clips": clips}
    return {_PREFIX + name: array for name, array in named.items()}


def from_arrays(arrays: Mapping[str, np.ndarray], addresses: Sequence[int]) -> FullPrecision | None:
    """The images of a file with the entries of VectorRf at these addresses, or None where it has none."""
    found = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    if not found:
        return None
    if found["clips"].ndim != 2 or found["clips"].shape[1] != 3:
        raise ValueError(f"full precision, clips: float64[clips, 3] is needed, not {list(found['clips'].shape)}")
    prefix = "vectors."
    return FullPrecision(
        vectors={Mem[name.removeprefix(prefix)]: array for name, array in found.items() if name.startswith(prefix)},
        tiles=found["tiles"], biases=found["biases"],
        entries=tuple(RealEntries(address=address, values=found[f"entries.{k}.values"],
                                  codes=found[f"entries.{k}.codes"]) for k, address in enumerate(addresses)),
        clips={int(address): (float(low), float(high)) for address, low, high in found["clips"]})
