"""Firmware of a pipeline of machines, or of one: the results of each machine are the input of the next one."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from concord.firmware.firmware import Firmware
from concord.spec.isa.chain import Chain
from concord.spec.isa.check import Sequencer
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import Config


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Cascade:
    """The firmware of machines of which each sends its results to the next one; often there is just one machine.

    Attributes:
        name:  Name of the network.
        parts: Firmware of each machine, in order. The first one takes the input of the network, and the last one gives
            its result.
        cuts:  Name of the layer after which the network is cut, for each pair of neighbours.

    Raises:
        ValueError: there is no machine, or the results of a machine are no input of the next one.
    """

    name: str
    parts: tuple[Firmware, ...]
    cuts: tuple[str, ...]

    def __post_init__(self):
        if not self.parts or len(self.cuts) != len(self.parts) - 1:
            raise ValueError(f"{self.name}: {len(self.parts)} parts and {len(self.cuts)} cuts are no network over "
                             "machines; compile again")
        for cut, (one, other) in zip(self.cuts, pairwise(self.parts), strict=True):
            _check_link(self.name, cut, one, other)

    @classmethod
    def of(cls, firmware: Firmware) -> Self:
        """The firmware of one machine."""
        return cls(name=firmware.name, parts=(firmware,), cuts=())

    @property
    def first(self) -> Firmware:
        """Firmware of the machine that takes the input."""
        return self.parts[0]

    @property
    def last(self) -> Firmware:
        """Firmware of the machine that gives the result."""
        return self.parts[-1]

    def program(self, steps: int = 1, *, keep_state: bool = False) -> list[list[int]]:
        """The instruction words of each machine; arguments and errors are those of `Firmware.program`."""
        self.first.program(steps, keep_state=keep_state)
        return [part.program(steps if part.loop is not None else 1, keep_state=keep_state and part.recurrent)
                for part in self.parts]

    # What readers of inputs and printers of results ask of a `Firmware`.
    data = property(lambda self: self.first.data)
    description = property(lambda self: self.first.description)
    axes = property(lambda self: self.first.axes)
    table = property(lambda self: self.first.table)
    inputs = property(lambda self: self.first.inputs)
    recurrent = property(lambda self: self.first.recurrent)
    steps = property(lambda self: self.first.steps)
    image = property(lambda self: self.first.image)
    classes = property(lambda self: self.last.classes)
    outputs = property(lambda self: self.last.outputs)
    results = property(lambda self: self.last.results)


def check_neighbours(name: str, one: Config, other: Config):
    """Refuse machines of which the second one cannot read the messages of the first one.

    Raises:
        ValueError: their words or their beats have different widths.
    """
    for attribute, what in (("mfu_lanes", "lanes of a word"), ("message_bytes", "bytes of a beat")):
        left, right = getattr(one, attribute), getattr(other, attribute)
        if left != right:
            raise ValueError(f"{name}: a machine has {left} {what} ({attribute}) and the next one {right}, so "
                             "that it cannot read its messages: choose machines that agree in both")


def net_words(firmware: Firmware) -> tuple[int, int]:
    """Words that firmware takes from NetQ and sends there, in one time step where it has such a loop."""
    words = firmware.instruction_words.tolist()
    return moved_words(Sequencer(firmware.config, words, firmware.tiles.modes(firmware.config)).walk())


def moved_words(chains: Iterable[Chain]) -> tuple[int, int]:
    """Words that chains take from NetQ and send there."""
    taken = sent = 0
    for chain in chains:
        for instruction in chain.instructions:
            if instruction.mem == Mem.NET_Q and instruction.op in (Op.V_RD, Op.M_RD):
                taken += chain.source_words * chain.registers.iterations
            elif instruction.mem == Mem.NET_Q and instruction.op == Op.V_WR:
                sent += chain.result_words * chain.registers.iterations
    return taken, sent


def _check_link(name: str, cut: str, one: Firmware, other: Firmware):
    """Refuse two neighbours of which one sends words that the other one does not take."""
    where = f"{name}, cut after {cut!r}"
    check_neighbours(name, one.config, other.config)
    if one.outputs != other.inputs:
        raise ValueError(f"{where}: {one.outputs} results are sent and {other.inputs} inputs taken; compile again")
    if one.output_layout and other.input_layout and one.output_layout != other.input_layout:
        raise ValueError(f"{where}: images are sent in another order than they are taken; compile again")
    (_, sent), (taken, _) = (net_words(firmware) for firmware in (one, other))
    if sent != taken or len(other.directions) > 1:
        raise ValueError(f"{where}: the second machine takes other words than the first one sends; compile again")
    if other.recurrent and not one.recurrent:
        raise ValueError(f"{where}: the second machine takes a sequence, and the first one sends a vector; compile "
                         "again")
