"""All nodes of a program to drafts of lines, region by region and loop by loop."""

from dataclasses import dataclass

import numpy as np
from concord.firmware.firmware import Firmware, ReadDirection
from concord.twin.recovery.nodes.elements import Unrecognised, is_constant, read_by
from concord.twin.recovery.nodes.groups import Signatures, liveness
from concord.twin.recovery.nodes.nodes import Body, Carried, ProgramNodes
from concord.twin.recovery.nodes.quantizers import QUANTISING
from concord.twin.recovery.tensors.drafts import Draft, DraftValue, LoopDraft
from concord.twin.recovery.tensors.statements import Statements
from concord.twin.recovery.tensors.states import behind, simplify


@dataclass(kw_only=True, slots=True, eq=False)
class DraftProgram:
    """A program as drafts.

    Attributes:
        inputs: Value of the input, by channels last.
        lines:  Drafts and loops, in order.
        result: Value of the results.
    """

    inputs: DraftValue
    lines: list[Draft | LoopDraft]
    result: DraftValue


def drafted(firmware: Firmware, lowered: ProgramNodes) -> DraftProgram:
    """The drafts of a program.

    Raises:
        Unrecognised: the program does something that has no form here.
    """
    return _Drafting(firmware, lowered).run()


class _Drafting:
    def __init__(self, firmware: Firmware, lowered: ProgramNodes):
        self.firmware, self.lowered = firmware, lowered
        shape = self._input_shape()
        signatures = Signatures(lowered.nodes, lowered.constants)
        groups = [signatures.groups(each.nodes, gates=True) if isinstance(each, Body) else signatures.groups(each)
                  for each in lowered.main]
        self.layers = list(zip(lowered.main, groups, strict=True))
        self.statements = Statements(firmware, lowered, liveness(lowered, groups))
        self.views = self.statements.views
        self.backward: set[DraftValue] = set()
        self.inputs = self.first = self.views.first = self._inputs(shape)

    def run(self) -> DraftProgram:
        lines = []
        for each, groups in self.layers:
            lines += self._loop(each, groups) if isinstance(each, Body) else self._region(groups)
        result = self.views.view(self.statements.mapped(self.lowered.outputs), len(self.firmware.instruction_words))
        lines += self._taken()
        return DraftProgram(inputs=self.inputs, lines=lines, result=result)

    def _input_shape(self) -> tuple[int, ...]:
        """Shape of an input, which its nodes get, too."""
        firmware, nodes = self.firmware, self.lowered.nodes
        shape = nodes[self.lowered.inputs[0]].width,
        if firmware.image:
            channels, rows, columns = firmware.image
            shape = rows, columns, channels
        elif firmware.recurrent:
            shape = self._passes(), *shape
        for node in self.lowered.inputs:
            nodes[node].positions, nodes[node].width = int(np.prod(shape[:-1], dtype=int)), shape[-1]
        return shape

    def _inputs(self, shape: tuple[int, ...]) -> DraftValue:
        """The value of the input; a sequence that is read from its end has one of its own."""
        first = DraftValue(shape=shape)
        for node, direction in zip(self.lowered.inputs, self.firmware.directions, strict=False):
            value = first
            if direction is ReadDirection.BACKWARD:
                value = DraftValue(shape=shape)
                self.backward.add(value)
            self.statements.bind(node, value)
        return first

    def _passes(self) -> int:
        bodies = [each for each in self.lowered.main if isinstance(each, Body) and each.timed]
        return self.firmware.steps or len(bodies[0].items[0][1])

    def _taken(self) -> list[Draft]:
        """The drafts that have been made since the last call."""
        drafts, self.views.drafts = self.views.drafts, []
        return drafts

    def _region(self, groups: list[list[int]]) -> list[Draft]:
        for group in groups:
            self.statements.emit(group)
        return self._taken()

    def _loop(self, body: Body, groups: list[list[int]]) -> list[Draft | LoopDraft]:
        """The lines of a loop: those in front of it, and the loop itself."""
        loop = LoopDraft(timed=body.timed)
        for leaf, table in body.items:
            live = self._live(leaf)
            if not live.any():
                continue
            table = self.statements.mapped(table[:, live])
            turned = not body.timed and self._turned(table)
            sequence = self.views.view(table[::-1] if turned else table, self.lowered.nodes[leaf].address)
            if body.timed and sequence.draft is not None:
                raise Unrecognised("a pass of the loop over time steps takes more than one vector of the input")
            value = DraftValue(shape=sequence.shape[1:], codes=sequence.codes, zero=sequence.zero, limit=sequence.limit)
            self._bind(leaf, live, value)
            loop.items.append((value, self.first if sequence in self.backward else sequence,
                               turned or sequence in self.backward))
        states = [carried for carried in body.carried if self._live(carried.leaf).any()]
        for carried in states:
            self._state(loop, carried)
        before = self._taken()
        drafts = self._region(groups)
        for number, ((value, initial, _), carried) in enumerate(zip(list(loop.carried), states, strict=True)):
            live = self._live(carried.leaf)
            after = self.views.view(self.statements.mapped(carried.next[live]).reshape(value.shape), 0)
            loop.carried[number] = value, initial, after
        for kind, leaves in ((loop.finals, body.finals), (loop.collected, body.collected)):
            for leaf, content in leaves:
                if self._live(leaf).any():
                    kind.append(self._left(loop, leaf, content, kind is loop.collected))
        loop.body = drafts + self._taken()
        simplify(loop)
        return [*before, *loop.before, loop, *behind(loop)]

    @staticmethod
    def _turned(table: np.ndarray) -> bool:
        """Whether a sequence [passes, elements] is read from its end."""
        return len(table) > 1 and bool((np.diff(table[:, 0]) < 0).all())

    def _live(self, leaf: int) -> np.ndarray:
        """bool[elements], elements of a leaf that are read and no constants."""
        return self.statements.live[leaf] & ~is_constant(self.lowered.nodes[leaf].out)

    def _bind(self, leaf: int, live: np.ndarray, value: DraftValue):
        """Let the live elements of a leaf be those of a value."""
        where = np.full(len(live), -1, np.int64)
        where[live] = self.views.all(value).reshape(-1)
        self.statements.refer(leaf, where)

    def _state(self, loop: LoopDraft, carried: Carried):
        nodes = self.lowered.nodes
        live = self._live(carried.leaf)
        value = DraftValue(shape=(int(live.sum()),))
        made = carried.next[live]
        maker = next((nodes[one] for one in read_by(made) if nodes[one].op in QUANTISING), None)
        if maker:
            _, value.codes, value.zero, value.limit, *_ = maker.settings
        self._bind(carried.leaf, live, value)
        table = self.statements.mapped(carried.initial[live])
        if is_constant(table).all():
            initial = self.views.started(table, self.first, nodes[carried.leaf].address, "initial", value)
        else:
            initial = self.views.view(table, nodes[carried.leaf].address)
        loop.carried.append((value, initial, value))

    def _left(self, loop: LoopDraft, leaf: int, content: np.ndarray, collected: bool) -> tuple[DraftValue, DraftValue]:
        """A value after a loop, and the value of the body that it comes from."""
        node = self.lowered.nodes[leaf]
        live = self._live(leaf).reshape(-1, len(content)).any(0)
        inner = self.views.view(self.statements.mapped(content[live]), 0)
        shape = (node.positions, *inner.shape) if collected else inner.shape
        value = DraftValue(shape=shape, codes=inner.codes, zero=inner.zero, limit=inner.limit)
        if not collected:
            self._bind(leaf, live, value)
            return value, inner
        where = np.full((node.positions, len(live)), -1, np.int64)
        where[:, live] = self.views.all(value).reshape(node.positions, -1)[::-1 if loop.turned else 1]
        self.statements.refer(leaf, where.reshape(-1))
        return value, inner
