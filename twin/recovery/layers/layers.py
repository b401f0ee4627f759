"""Drafts to a script: a routine for each layer, and the routine that calls them."""

from collections import Counter, defaultdict
from dataclasses import replace

from concord.firmware.firmware import Firmware
from concord.spec.isa.instructions import Op, decode
from concord.spec.machine.config import preset_name
from concord.twin.lib.script import ARRANGING, SUMS, Call, Line, Routine, Script, SequenceLoop, Stored
from concord.twin.recovery.layers.labels import cell_kind, free, labels, multiplies, routine_name
from concord.twin.recovery.layers.naming import Locals, Tensors, reserved, sources
from concord.twin.recovery.layers.routines import LayerCut, cuts, roles, sorted_drafts, title
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.tensors.drafts import Draft, DraftValue, LoopDraft, needed
from concord.twin.recovery.tensors.program import DraftProgram


def scripted(firmware: Firmware, program: DraftProgram, *, unquantized: bool = False) -> Script:
    """The script of a program, which is quantised or not."""
    return replace(_Layers(firmware, program).script(), unquantized=unquantized)


class _Layers:
    def __init__(self, firmware: Firmware, program: DraftProgram):
        self.firmware, self.program = firmware, program
        self.tensors, self.routines = Tensors(), []
        self.names: dict[DraftValue, str] = {}
        self.count: Counter = Counter()
        self.hints = _hints(firmware)
        self.loops = 0

    def script(self) -> Script:
        firmware, program = self.firmware, self.program
        first, lines = program.inputs, []
        self.names[first] = "inputs"
        if firmware.image:
            self.names[first] = "x"
            lines.append(Call(results=("x",), function="image", arguments=("inputs",),
                              settings={"shape": firmware.image}))
        drafts = needed(program.lines, {program.result})
        self.loops = sum(isinstance(each, LoopDraft) for each in drafts)
        lines += self._region(drafts, [program.result], None)
        main = Routine(name="network", title=f"The network {firmware.name}.", parameters=("inputs",),
                       results=(self.names[program.result],), body=tuple(lines))
        shape = firmware.image or (firmware.inputs,)
        if firmware.recurrent:
            shape = firmware.steps, firmware.inputs
        return Script(name=firmware.name, machine=preset_name(firmware.config) or "", inputs=shape,
                      outputs=firmware.outputs, classes=firmware.classes, main=main, routines=tuple(self.routines),
                      tensors=self.tensors.found)

    def _region(self, lines: list[Draft | LoopDraft], wanted: list[DraftValue], loop: LoopDraft | None) -> list[Line]:
        """The lines of a region: a call for each layer."""
        drafts = [line for line in lines if isinstance(line, Draft)]
        layers = labels(self.firmware, drafts, loop, self.count)
        loops = [line for line in lines if isinstance(line, LoopDraft)]
        starts, sequences = self._starts(loops), {sequence for one in loops for _, sequence, _ in one.items}
        sequences -= {value for draft in drafts for value in draft.reads}
        layers |= {draft: "" for draft in drafts if (draft.result in starts and draft.function == "start") or (
            draft.result in sequences and draft.function in ARRANGING)}
        old = {value: after for value, _, after in loop.carried} if loop else {}
        states = self._states(loop, layers) if loop else {}
        made = []
        for cut in cuts(lines, layers, wanted, old):
            if isinstance(cut.drafts[0], LoopDraft):
                made.append(self._loop(cut.drafts[0]))
            elif not cut.layer:
                made += [self._plain(draft, *starts.get(draft.result, ("", "steps", ""))) for draft in cut.drafts]
            else:
                made.append(self._routine(cut, states, old, loop is not None))
        return made

    def _starts(self, loops: list[LoopDraft]) -> dict[DraftValue, tuple[str, str, str]]:
        """Layer of each value that is a state before the first pass, its name, and its name in the layer."""
        found = {}
        for loop in loops:
            layers = labels(self.firmware, loop.body, loop, Counter(self.count))
            states = self._states(loop, layers)
            for value, first, after in loop.carried:
                layer = layers.get(after.draft, "start")
                name = self._state_name(loop, layers, layer, states[value])
                found.setdefault(first, (layer, name, states[value]))
        return found

    def _plain(self, draft: Draft, layer: str, result: str, state: str) -> Call:
        """The call that makes a state before the first pass, or arranges the items of a loop."""
        name = routine_name(layer, "layer", (), reserved)
        arguments = tuple(
            self.names[each] if isinstance(each, DraftValue) else
            Stored(name=self.tensors.name(name, f"initial_{state}" if state else each.role, each))
            for each in draft.arguments)
        self.names[draft.result] = self._new(result)
        return Call(results=(self.names[draft.result],), function=draft.function, arguments=arguments,
                    settings=draft.settings)

    def _state_name(self, loop: LoopDraft, layers, layer: str, state: str) -> str:
        """Name of a state outside of its routine: with its layer, where several layers have states."""
        several = len({layers.get(after.draft) for *_, after in loop.carried}) > 1
        name = f"{layer}_{state}" if several or self.loops > 1 else state
        return name if name.isidentifier() else state

    def _new(self, base: str) -> str:
        return free(base, set(self.names.values()))

    def _states(self, loop: LoopDraft, layers) -> dict[DraftValue, str]:
        """Names of states inside of their routines: h is what products read."""
        read = {value for draft in loop.body if draft.function in SUMS for value in sources(draft)}
        found, taken = {}, defaultdict(set)
        for value, _, after in loop.carried:
            base = "h" if value in read else "c"
            layer = layers.get(after.draft, "")
            name = free(base, taken[layer])
            taken[layer].add(name)
            found[value] = name
        for value, _, after in loop.carried:
            found.setdefault(after, found[value])
        return found

    def _routine(self, cut: LayerCut, states, old, step: bool) -> Call:
        """The routine of a layer; returns its call."""
        drafts, hints = sorted_drafts(cut.drafts), self.hints
        curves = Counter(draft.function for draft in drafts)
        kind = _kind(self.firmware, cut.layer) or cell_kind(curves) if step else next(
            ("attention" if multiplies(draft) else draft.function for draft in drafts if draft.function in SUMS),
            "layer")
        name = routine_name(cut.layer, kind, {each.name for each in self.routines}, reserved)
        takes = sorted(cut.takes, key=lambda value: value in old)
        results = sorted(cut.results, key=lambda value: (value not in states, states.get(value, "") != "h"))
        inside = Locals(name, self.tensors, hints, {value: text for value, text in states.items()
                                                    if value in takes or value in cut.results})
        parameters = inside.parameters(takes, roles(drafts, takes))
        body = inside.calls(drafts, results)
        self.routines.append(Routine(
            name=name, title=title(drafts, kind, step), parameters=parameters,
            results=tuple(inside.names[value] for value in results), body=body))
        arguments = tuple(self.names[value] for value in takes)
        for value in results:
            if value not in self.names:
                self.names[value] = self._new(name if len(results) == 1 else f"{name}_{inside.names[value]}")
        return Call(results=tuple(self.names[value] for value in results), function=name, arguments=arguments)

    def _loop(self, loop: LoopDraft) -> SequenceLoop:
        layers = labels(self.firmware, loop.body, loop, Counter(self.count))
        states, carried = self._states(loop, layers), []
        if not loop.items:
            raise Unrecognised("a loop takes nothing from outside, so that nothing says how often it runs")
        for value, initial, after in loop.carried:
            base = self._state_name(loop, layers, layers.get(after.draft, ""), states[value])
            taken = [name for name, _ in carried]
            self.names[value] = base if self.names[initial] == base and base not in taken else self._new(base)
            if after in self.names:
                raise Unrecognised("a state of a loop is another state of the pass before")
            self.names[after] = self.names[value]
            carried.append((self.names[value], self.names[initial]))
        items = []
        for number, (value, sequence, _) in enumerate(loop.items):
            self.names[value] = self._new("x" if not number else f"x{number + 1}")
            items.append((self.names[value], self.names[sequence]))
        inner = [value for _, value in [*loop.finals, *loop.collected]]
        body = self._region(loop.body, [*(after for *_, after in loop.carried), *inner], loop)
        for outer, value in loop.finals:
            self.names[outer] = self.names[value]
            if self.names[value] not in [name for name, _ in carried]:
                if not carried:
                    raise Unrecognised("a loop has results of its last pass and no state")
                carried.append((self.names[value], carried[0][1]))
        collected = []
        for outer, value in loop.collected:
            self.names[outer] = self._new(f"{self.names[value]}_all")
            collected.append((self.names[outer], self.names[value]))
        return SequenceLoop(items=tuple(items), carried=tuple(carried), body=tuple(body), collected=tuple(collected),
                            backward=frozenset(self.names[value] for value, _, back in loop.items if back),
                            reversed=frozenset(name for name, _ in collected) if loop.turned else frozenset())


def _kind(firmware: Firmware, layer: str) -> str:
    """Kind of a layer, as the firmware's sections have it; empty where they do not say it."""
    return next((section.kind for section in firmware.sections if section.layer == layer and section.kind), "")


def _hints(firmware: Firmware) -> dict[int, str]:
    """Names of what chains compute, by address of each of their instructions."""
    ops = [decode(word).op for word in firmware.instruction_words.tolist()]
    found = {}
    for section in firmware.sections:
        for first, name in section.names:
            last = next((address for address in range(first, len(ops)) if ops[address] == Op.END_CHAIN), len(ops))
            found |= dict.fromkeys(range(first, last), name if name.isidentifier() else "")
    return found
