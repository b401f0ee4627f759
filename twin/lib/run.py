"""Runs a script without source text: each call is a call of a function of the vocabulary.

Stored tensors are the floats that products need, so that every sum of a product is exact.
"""

from collections.abc import Mapping
from types import ModuleType

import numpy as np
from concord.twin.lib.script import PRODUCTS, SELECTING, Argument, Call, Line, Routine, Script, SequenceLoop, Stored


def run(script: Script, inputs, functions: ModuleType, tensors: Mapping | None = None):
    """Compute the results of a script.

    Args:
        script:    The script.
        inputs:    What the main routine takes, [batch, ...], in the type of `functions`.
        functions: A module of `twin/vocabulary/`; numpy's needs `np.errstate(all="ignore")` around the call.
        tensors:   Stored tensors by name in the type of `functions`; those of the script if not given.

    Returns:
        What the main routine returns: one value, or a tuple of several.
    """
    return ScriptRun(script, functions, tensors).call(script.main, (inputs,))


class ScriptRun:
    """One run of a script.

    Args:
        script:    The script.
        functions: What calls name; None where a subclass computes something else.
        tensors:   Stored tensors by name; those of the script if not given.
    """

    def __init__(self, script: Script, functions: ModuleType | None, tensors: Mapping | None = None):
        self.functions = functions
        self._routines = {routine.name: routine for routine in script.routines}
        self._tensors = tensors if tensors is not None else {
            name: functions.stored(each) for name, each in arrays(script).items()}

    def call(self, routine: Routine, arguments: tuple):
        """The results of a routine."""
        values = dict(zip(routine.parameters, arguments, strict=True))
        self.lines(routine.body, values)
        results = tuple(values[name] for name in routine.results)
        return results[0] if len(results) == 1 else results

    def lines(self, lines: tuple[Line, ...], values: dict):
        for line in lines:
            if isinstance(line, SequenceLoop):
                self.loop(line, values)
            else:
                results = self._call(line, values)
                values.update(zip(line.results, results if len(line.results) > 1 else (results,), strict=True))

    def _call(self, call: Call, values: dict):
        arguments = tuple(self.value(argument, values) for argument in call.arguments)
        if call.function in self._routines:
            return self.call(self._routines[call.function], arguments)
        return getattr(self.functions, call.function)(*arguments, **call.settings)

    def loop(self, loop: SequenceLoop, values: dict):
        values.update([(name, self.value(first, values)) for name, first in loop.carried])
        sequences = {name: values[source] for name, source in loop.items}
        count = next(iter(sequences.values())).shape[1]
        kept = {name: [] for name, _ in loop.collected}
        for index in range(count):
            for name, sequence in sequences.items():
                values[name] = self.functions.step(sequence, count - 1 - index if name in loop.backward else index)
            self.lines(loop.body, values)
            for name, source in loop.collected:
                kept[name].append(values[source])
        for name, steps in kept.items():
            values[name] = self.functions.sequence(steps[::-1] if name in loop.reversed else steps)

    def value(self, argument: Argument, values: dict):
        return self._tensors[argument.name] if isinstance(argument, Stored) else values[argument]


#: Whole numbers up to this are exact in float32.
FLOAT32_EXACT = 1 << 24


def arrays(script: Script) -> dict[str, np.ndarray]:
    """The stored tensors by name: float16 and int32 as they are, others as float32 or float64.

    Weights and start values of a product are float32 where no sum can reach 2**24, which the ranges of its codes
    prove; otherwise they are float64. All numbers of a script without quantisers are float64.
    """
    if script.unquantized:
        return {name: each.values for name, each in script.tensors.items()}
    narrow = _Ranges(script).narrow
    return {name: each.values if each.values.dtype in (np.float16, np.int32)
            else each.values.astype(np.float32 if narrow.get(name) else np.float64)
            for name, each in script.tensors.items()}


def unsigned(script: Script) -> set[str]:
    """Names of the weights whose products read unsigned codes."""
    return _Ranges(script).unsigned


class _Ranges(ScriptRun):
    """A run whose values are the smallest and the largest code; None for numbers and for codes that are not whole.

    Attributes:
        narrow:   Whether float32 holds every sum of the products with a stored tensor, by its name.
        unsigned: Names of the weights whose products read unsigned codes.
    """

    def __init__(self, script: Script):
        super().__init__(script, None, {name: _range(each.values) for name, each in script.tensors.items()})
        self.narrow, self.unsigned = {}, set()
        self._script = script
        self.call(script.main, (None,) * len(script.main.parameters))

    def loop(self, loop: SequenceLoop, values: dict):
        values |= {name: values[source] for name, source in loop.items}
        # A carried value may be anything; codes are made and multiplied within a pass.
        values |= {name: None for name, _ in loop.carried}
        self.lines(loop.body, values)
        values |= {name: values[source] for name, source in loop.collected}

    def _call(self, call: Call, values: dict):
        ranges = tuple(self.value(argument, values) for argument in call.arguments)
        if call.function in self._routines:
            return self.call(self._routines[call.function], ranges)
        if call.function in ("integers", "floats") and not call.settings.get("fraction"):
            return call.settings["lowest"], call.settings["highest"]
        if call.function in PRODUCTS:
            self._product(call, ranges[0])
        if call.function in SELECTING:
            parts = ranges[call.function in ("take", "start"):]  # without the index, and what has the batch
            if None not in parts:
                low, high = zip(*parts, (call.settings.get("fill", 0),) * 2, strict=True)
                return min(low), max(high)
        return None

    def _product(self, call: Call, codes: tuple[int, int] | None):
        """Note whether float32 holds every sum of a product of codes in a range."""
        names = [each.name for each in call.arguments if isinstance(each, Stored)]
        stored = [self._script.tensors[name].values for name in names]
        largest = max(-codes[0], codes[1]) if codes else 0
        if codes and codes[0] >= 0 and isinstance(call.arguments[1], Stored):
            self.unsigned.add(call.arguments[1].name)
        fits = codes is not None and all(each.dtype.kind == "i" for each in stored) and isinstance(
            call.arguments[1], Stored)
        if fits:
            largest = max(largest, abs(call.settings.get("fill", 0)))
            weights, *starts = (each.astype(np.float64) for each in stored[isinstance(call.arguments[0], Stored):])
            sums = np.abs(weights).reshape(len(weights), -1).sum(1) * largest
            fits = bool(np.max(sums + sum(np.abs(each) for each in starts), initial=0) < FLOAT32_EXACT)
        for name in names:
            self.narrow[name] = self.narrow.get(name, True) and fits


def _range(values: np.ndarray) -> tuple[int, int] | None:
    """The smallest and the largest of stored codes, and 0."""
    whole = values.dtype != np.float16 and np.array_equal(values, np.rint(values))
    return (int(values.min(initial=0)), int(values.max(initial=0))) if whole else None
