"""Drafts to a script: routines of layers, and names."""

from collections.abc import Iterable

import numpy as np
from concord.golden.host.firmware import Firmware
from concord.spec.config import preset_name
from concord.twin.lib.script import Argument, Call, Line, Loop, Routine, Script, Stored, Tensor
from concord.twin.recovery.drafts import Constant, Draft, LoopDraft, Value
from concord.twin.recovery.program import Program


def scripted(firmware: Firmware, program: Program) -> Script:
    """The script of a program."""
    return _Naming(firmware, program).script()


class _Naming:
    def __init__(self, firmware: Firmware, program: Program):
        self.firmware, self.program = firmware, program
        self.tensors: dict[str, Tensor] = {}
        self.count = 0

    def script(self) -> Script:
        firmware, program = self.firmware, self.program
        first = program.inputs
        lines: list[Line] = []
        first.name = "inputs"
        if firmware.image:
            first.name = "x"
            lines.append(Call(results=("x",), function="image", arguments=("inputs",),
                              settings={"shape": firmware.image}))
        lines += self._lines(program.lines, {program.result})
        main = Routine(name="network", title="", parameters=("inputs",), results=(program.result.name,),
                       body=tuple(lines))
        shape = firmware.image or (firmware.inputs,)
        if firmware.recurrent:
            shape = firmware.steps, firmware.inputs
        return Script(name=firmware.name, machine=preset_name(firmware.config) or "", inputs=shape,
                      outputs=firmware.outputs, classes=firmware.classes, main=main, routines=(), tensors=self.tensors)

    def _lines(self, drafts: Iterable[Draft | LoopDraft], wanted: set[Value]) -> list[Line]:
        kept = live(list(drafts), wanted)
        return [self._loop(each) if isinstance(each, LoopDraft) else self._call(each) for each in kept]

    def _new(self, value: Value) -> str:
        if not value.name:
            self.count += 1
            value.name = f"v{self.count}"
        return value.name

    def _call(self, draft: Draft) -> Call:
        arguments = tuple(self._argument(each) for each in draft.arguments)
        return Call(results=(self._new(draft.result),), function=draft.function, arguments=arguments,
                    settings=draft.settings)

    def _argument(self, argument) -> Argument:
        if isinstance(argument, Value):
            return self._new(argument)
        name = f"t{len(self.tensors)}.{argument.role}"
        self.tensors[name] = Tensor(values=argument.values, memory=argument.memory, places=argument.places,
                                    bits=argument.bits)
        return Stored(name=name)

    def _loop(self, loop: LoopDraft) -> Loop:
        carried = []
        for value, initial, after in loop.carried:
            carried.append((self._new(value), self._argument(initial)))
            after.name = value.name
        for outer, inner in loop.finals:
            outer.name = self._new(inner)
            if inner.name not in [name for name, _ in carried]:
                carried.append((inner.name, loop.carried[0][1].name))
        items = tuple((self._new(value), self._new(sequence)) for value, sequence, _ in loop.items)
        body = self._lines(loop.body, {after for _, _, after in loop.carried} | {inner for _, inner in loop.finals}
                           | {inner for _, inner in loop.collected})
        collected = tuple((self._new(outer), self._new(inner)) for outer, inner in loop.collected)
        return Loop(items=items, carried=tuple(carried), body=tuple(body), collected=collected,
                    backward=frozenset(value.name for value, _, back in loop.items if back))


def live(drafts: list[Draft | LoopDraft], wanted: set[Value]) -> list[Draft | LoopDraft]:
    """The drafts that others need, in an order in which each stands behind those that it reads."""
    makers = {}
    for draft in drafts:
        if isinstance(draft, LoopDraft):
            makers |= {outer: draft for outer, _ in [*draft.finals, *draft.collected]}
        else:
            makers[draft.result] = draft
    found, needed, order = set(), list(wanted), []
    while needed:
        draft = makers.get(needed.pop())
        if draft is not None and draft not in found:
            found.add(draft)
            needed += _reads(draft)
    left = [draft for draft in drafts if draft in found]
    done = set()
    while left:
        for draft in left:
            if all(value in done or value not in makers for value in _reads(draft)):
                break
        left.remove(draft)
        order.append(draft)
        done |= {outer for outer, _ in [*draft.finals, *draft.collected]} if isinstance(draft, LoopDraft) else {
            draft.result}
    return order


def _reads(draft: Draft | LoopDraft) -> list[Value]:
    if isinstance(draft, Draft):
        return draft.reads
    outside = [sequence for _, sequence, _ in draft.items]
    outside += [initial for _, initial, _ in draft.carried if isinstance(initial, Value)]
    made = {each.result for each in draft.body} | {value for value, _, _ in draft.items} | {
        value for value, _, _ in draft.carried}
    return outside + [value for each in draft.body for value in each.reads if value not in made]


__all__ = ["Constant", "live", "np", "scripted"]
