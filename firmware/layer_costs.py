"""Clock cycles, work and waits of each layer of a program.

Counters cannot be read while a program runs. A program that is cut after a layer does the same until there, in the
same cycles, so the share of a layer is the difference between two such programs. Layers overlap: the cycles in which a
layer works beside the one before it are not in its share, so a share may have more products than its cycles allow.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.sim.machines.host import machine
from concord.spec.host.registers import TIMES, Counter
from concord.spec.isa.instructions import Instruction, Op, decoded, encode
from concord.spec.machine.config import Config

#: Counters of the cycles in which a pipeline waits.
WAITS = tuple(counter for counter in TIMES if counter is not Counter.CYCLES and not counter.name.endswith("BUSY"))
#: States of units, and for each unit the counter of its cycles in each state.
STATES = ("busy", "waits for operands", "waits for output")
UNITS = {
    "operand fetch": (Counter.FETCH_BUSY, Counter.FETCH_WAIT, None),
    "tile engines": (Counter.MVM_BUSY, Counter.MVM_WAIT_OPERAND, Counter.MVM_WAIT_OUTPUT),
    "MFUs": (Counter.MFU_BUSY, Counter.MFU_WAIT_OPERAND, Counter.MFU_WAIT_OUTPUT),
    "copies": (Counter.COPY_BUSY, Counter.COPY_WAIT, None),
    "gather unit": (Counter.GATHER_BUSY, Counter.GATHER_WAIT, None),
}
END = encode(Instruction(op=Op.END))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramPart:
    """Consecutive instructions of a program.

    Attributes:
        layers: Names of the layers to which they belong, in order: several where they share a loop, none for
            instructions between layers.
        first:  Address of the first instruction.
        stop:   Address after the last instruction.
    """

    layers: tuple[str, ...]
    first: int
    stop: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCost:
    """The share of some layers in the counters of a run.

    Attributes:
        layers:   Names of the layers: several where they share a loop, none for instructions between layers.
        counters: Increase of each counter, in all parts of the program that belong to these layers.
    """

    layers: tuple[str, ...]
    counters: dict[Counter, int]

    @property
    def title(self) -> str:
        """Name in tables."""
        return ", ".join(self.layers) or "input, output"

    @property
    def cycles(self) -> int:
        """Clock cycles; 0 on golden, which has no clock."""
        return self.counters[Counter.CYCLES]

    def products(self, config: Config) -> int:
        """Number of products that the tile engines computed, those with zeros among them."""
        return self.counters[Counter.BEATS] * config.native_dim * config.lanes

    def busy(self, config: Config) -> float:
        """Share of the tile engines' cycles in which they multiply; 0 where there are no cycles."""
        return self.counters[Counter.BEATS] / (self.cycles * config.tile_engines) if self.cycles else 0.0


def wait_title(counter: Counter) -> str:
    """Name of one of `WAITS` in tables."""
    return counter.name.lower().replace("_", " ")


def parts(firmware: Firmware, words: Sequence[int]) -> list[ProgramPart]:
    """The parts of a program, without its `end`.

    Args:
        firmware: Firmware of the program.
        words:    Instruction words of the program, see `Firmware.program`.
    """
    depths = _depths(words)
    names = [firmware.layer_at(address) for address in range(len(words) - 1)]
    found, first = [], 0
    for stop in range(1, len(words)):
        if depths[stop] == 0 and (stop == len(names) or names[stop] != names[stop - 1]):
            layers = tuple(dict.fromkeys(filter(None, names[first:stop])))
            found.append(ProgramPart(layers=layers, first=first, stop=stop))
            first = stop
    return found


def _depths(words: Sequence[int]) -> list[int]:
    """For each address, the number of loops that contain it."""
    steps = {Op.LOOP: 1, Op.END_LOOP: -1}
    changes = [steps.get(one.op, 0) for one in decoded(words)]
    return [0, *np.cumsum(changes).tolist()]


def layer_costs(session: Session, sample: np.ndarray) -> list[LayerCost]:
    """The cost of each layer for one sample, in the order in which they begin; the sum is the cost of the program.

    The first cost has the cycles in which the input arrives. An output message may still be under way when a program
    ends.

    Args:
        session: Session on the machine.
        sample:  Input patterns, as in `Session.infer`.
    """
    firmware = session.firmware
    words = firmware.program(len(sample) if firmware.recurrent else 1)
    before, found = dict.fromkeys(Counter, 0), {}
    for part in parts(firmware, words):
        counters = session.count([*words[:part.stop], END], sample)
        share = found.setdefault(part.layers, dict.fromkeys(Counter, 0))
        for counter, count in counters.items():
            share[counter] += count - before[counter]
        before = counters
    return [LayerCost(layers=layers, counters=share) for layers, share in found.items()]


def measured_costs(kind: str, firmware: Firmware, sample: np.ndarray) -> tuple[LayerCost, ...]:
    """`layer_costs` on a machine of its own, of this kind."""
    with machine(kind, firmware.config) as made:
        return tuple(layer_costs(Session(made, firmware), sample))


def alone(session: Session, layer: str) -> LayerCost:
    """The cost of a layer whose input lies in its memories already, with no other layer beside it.

    The whole program must have run before. The layer must neither read nor write NetQ.

    Args:
        session: Session on the machine.
        layer:   Name of the layer.

    Raises:
        ValueError: the layer shares a loop with others, or has no instructions of its own.
    """
    words = session.firmware.program()
    own = [part for part in parts(session.firmware, words) if part.layers == (layer,)]
    if not own:
        raise ValueError(f"layer {layer!r} has no part of the program to itself; give it no loop with other layers")
    before = words[:own[0].first]
    kept = [word for word, one in zip(before, decoded(before), strict=True) if one.op == Op.S_WR]
    program = [*kept, *(word for part in own for word in words[part.first:part.stop]), END]
    return LayerCost(layers=(layer,), counters=session.count(program, None))
