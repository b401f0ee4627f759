"""Runs a script without source text: each call is a call of a function of the vocabulary."""

from collections.abc import Mapping
from types import ModuleType

from concord.twin.lib.reals import arrays
from concord.twin.lib.script import Argument, Call, Line, Loop, Routine, Script, Stored


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
    return Run(script, functions, tensors).call(script.main, (inputs,))


class Run:
    """One run of a script.

    Args:
        script:    The script.
        functions: What calls name.
        tensors:   Stored tensors by name; those of the script if not given.
    """

    def __init__(self, script: Script, functions: ModuleType, tensors: Mapping | None = None):
        self.functions = functions
        self._routines = {routine.name: routine for routine in script.routines}
        self._tensors = tensors or {name: functions.stored(each) for name, each in arrays(script).items()}

    def call(self, routine: Routine, arguments: tuple):
        """The results of a routine."""
        values = dict(zip(routine.parameters, arguments, strict=True))
        self.lines(routine.body, values)
        results = tuple(values[name] for name in routine.results)
        return results[0] if len(results) == 1 else results

    def lines(self, lines: tuple[Line, ...], values: dict):
        for line in lines:
            if isinstance(line, Loop):
                self.loop(line, values)
            else:
                results = self._call(line, values)
                values.update(zip(line.results, results if len(line.results) > 1 else (results,), strict=True))

    def _call(self, call: Call, values: dict):
        arguments = tuple(self.value(argument, values) for argument in call.arguments)
        if call.function in self._routines:
            return self.call(self._routines[call.function], arguments)
        return getattr(self.functions, call.function)(*arguments, **call.settings)

    def loop(self, loop: Loop, values: dict):
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
