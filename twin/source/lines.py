"""Routines of a script as lines of Python."""

import json
import math
from collections.abc import Iterator, Mapping
from keyword import kwlist
from textwrap import wrap

import numpy as np
from concord.twin.lib.script import PRODUCTS, Argument, Call, Line, Routine, SequenceLoop, Stored
from concord.twin.source.folding import Nested, after_pass, fold, live
from concord.twin.source.frameworks import CURVES
from concord.twin.source.vocabulary import Vocabulary

#: Most characters of a line.
WIDTH = 100
#: Most calls within each other.
DEPTH = 5
#: Names that values do not have.
RESERVED = frozenset([*kwlist, "self", "t", "np", "torch", "tf", "range"])
#: How strongly an operator binds its operands.
STRENGTH = {"+": 1, "-": 1, "*": 2}


def attribute(name: str) -> str:
    """Name of the attribute that holds a stored tensor, and of the tensor in the file of a twin."""
    return name.replace(".", "_")


def literal(value) -> str:
    """A setting as Python's source has it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    value = value.item() if isinstance(value, np.generic) else value
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def wrapped(head: str, parts: list[str], tail: str) -> list[str]:
    """Parts with commas between them on as many lines as they need, each below the first one."""
    hidden = [part.replace(" ", "\0") for part in parts]  # `wrap` breaks lines at spaces
    rows = wrap(", ".join(hidden) + tail, WIDTH, initial_indent=head.replace(" ", "\0"), break_on_hyphens=False,
                subsequent_indent=" " * len(head), break_long_words=False)
    return [row.replace("\0", " ") for row in rows]


def repeated(loop: SequenceLoop) -> bool:
    """Whether a loop can be a function of one time step, which leaves nothing but states."""
    states = {name for name, _ in loop.carried}
    return bool(states) and states <= live(loop.body, set()) and len(loop.items) == 1 and not loop.collected


class Lines:
    """Writes the bodies of routines.

    Args:
        vocabulary: The functions.
        routines:   Names of the routines, which are methods.
        operators:  Signs of functions that Python has an operator for, such as {"add": "+"}.
        curves:     Functions that are methods, because they need a table of the file.
        repeats:    Whether a loop is a function of one time step, where `repeated` allows that.
    """

    def __init__(self, vocabulary: Vocabulary, routines: frozenset[str], operators: Mapping[str, str],
                 curves: tuple[str, ...] = CURVES, *, repeats: bool = False):
        self._vocabulary = vocabulary
        self._repeats = repeats
        self._methods = routines | set(curves)
        self._operators = operators

    def parameters(self, routine: Routine) -> tuple[str, ...]:
        """Names of what a routine takes."""
        return tuple(map(self._value, routine.parameters))

    def body(self, routine: Routine, indent: int) -> list[str]:
        """The lines of a routine, with `return`."""
        return self._block(routine.body, set(routine.results), indent, routine.results)

    def _block(self, lines: tuple[Line, ...], after: set[str], indent: int, returned: tuple = ()) -> list[str]:
        """Text of lines after which the values `after` are still needed, and of the results that are returned."""
        def fits(line: Nested) -> bool:
            products = all(not isinstance(each.arguments[0], Nested) for each in _calls(line)
                           if each.call.function in PRODUCTS)
            head = self._head(line, routine_end=line.call.results == returned)
            return products and _depth(line) <= DEPTH and indent + len(head + self._expression(line)) <= WIDTH

        folded, text = fold(lines, after, fits), []
        for index, line in enumerate(folded):
            if isinstance(line, SequenceLoop):
                text += self._loop(line, live(folded[index + 1:], after), indent)
                continue
            if line.call.note:
                text += [" " * indent + each for each in wrap(line.call.note, WIDTH - indent, initial_indent="# ",
                                                              subsequent_indent="# ")]
            last = index == len(folded) - 1 and line.call.results == returned
            text += self._wrapped(line, self._head(line, routine_end=last), indent)
            returned = () if last else returned
        return text + [f"{' ' * indent}return {', '.join(map(self._value, returned))}"] * bool(returned)

    def _loop(self, loop: SequenceLoop, after: set[str], indent: int) -> list[str]:
        margin, value = " " * indent, self._value
        first = [(name, self._argument(before)) for name, before in loop.carried if name != before]
        text = [f"{margin}{', '.join(value(name) for name, _ in first)} = {', '.join(before for _, before in first)}"
                ] * bool(first)
        if self._repeats and repeated(loop):
            return text + self._repeat(loop, indent)
        takes = tuple(Call(results=(name,), function="step", arguments=(source,),
                           settings={"index": "-1 - t" if name in loop.backward else "t"})
                      for name, source in loop.items)
        text += [f"{margin}{name}_steps = []" for name, _ in loop.collected]
        text.append(f"{margin}for t in range({value(loop.items[0][1])}.shape[1]):")
        text += self._block(takes + loop.body, after_pass(loop, after), indent + 4)
        text += [f"{margin}    {name}_steps.append({value(source)})" for name, source in loop.collected]
        return text + [f"{margin}{value(name)} = sequence({name}_steps{'[::-1]' * (name in loop.reversed)})"
                       for name, _ in loop.collected]

    def _repeat(self, loop: SequenceLoop, indent: int) -> list[str]:
        """A function of one time step, and its repetition; a routine may be that function."""
        margin, carried, ((item, source),) = " " * indent, tuple(name for name, _ in loop.carried), loop.items
        states = ", ".join(map(self._value, carried))
        sequence = self._value(source) + ".flip(1)" * (item in loop.backward)
        last, comma = loop.body[-1], "," * (len(carried) == 1)
        if len(loop.body) == 1 < len(carried) and last.arguments == (item, *carried) and last.results == carried:
            return [f"{margin}{states} = repeat({self._name(last.function)}, {sequence}, {states})"]
        return ["", f"{margin}def time_step({self._value(item)}, {states}):",
                *self._block(loop.body, set(carried), indent + 4), f"{margin}    return {states}{comma}", "",
                f"{margin}{states}{comma} = repeat(time_step, {sequence}, {states})"]

    def _wrapped(self, line: Nested, head: str, indent: int) -> list[str]:
        """A line that begins with `head`, or several where its arguments are too many for one."""
        text = " " * indent + head + self._expression(line)
        if len(text) <= WIDTH:
            return [text]
        if sign := self._operators.get(line.call.function):
            left, right = self._operands(line, sign)
            return [f"{' ' * indent}{head}({left}", f"{' ' * (indent + len(head))} {sign} {right})"]
        return wrapped(" " * indent + head + self._name(line.call.function) + "(", self._parts(line), ")")

    def _head(self, line: Nested, *, routine_end: bool) -> str:
        return "return " if routine_end else f"{', '.join(map(self._value, line.call.results))} = "

    def _expression(self, line: Nested) -> str:
        sign = self._operators.get(line.call.function)
        if line.call.function == "step":
            return f"{self._value(line.arguments[0])}[:, {line.call.settings['index']}]"
        if line.call.function == "part" and not isinstance(line.arguments[0], Nested):
            return f"{self._argument(line.arguments[0])}[..., {'{first}:{last}'.format(**line.call.settings)}]"
        if sign:
            return f" {sign} ".join(self._operands(line, sign))
        return f"{self._name(line.call.function)}({', '.join(self._parts(line))})"

    def _operands(self, line: Nested, sign: str) -> tuple[str, str]:
        left, right = line.arguments
        # Each operation rounds, so that only the left operand of equal strength needs no parentheses.
        return self._operand(left, STRENGTH[sign]), self._operand(right, STRENGTH[sign] + 1)

    def _operand(self, argument, strength: int) -> str:
        text = self._argument(argument)
        sign = isinstance(argument, Nested) and self._operators.get(argument.call.function)
        return f"({text})" if sign and STRENGTH[sign] < strength else text

    def _parts(self, line: Nested) -> list[str]:
        """Arguments and settings of a call; settings that have their default value are left out."""
        call = line.call
        defaults = self._vocabulary.defaults(call.function) if call.function in self._vocabulary.names else {}
        return [self._argument(each) for each in line.arguments] + [
            f"{name}={literal(value)}" for name, value in call.settings.items() if defaults.get(name, ...) != value]

    def _argument(self, argument: "Argument | Nested") -> str:
        if isinstance(argument, Nested):
            return self._expression(argument)
        return f"self.{attribute(argument.name)}" if isinstance(argument, Stored) else self._value(argument)

    def _value(self, name: str) -> str:
        """Name of a value, which is not that of a function."""
        return f"{name}_" if name in self._vocabulary.names or name in RESERVED else name

    def _name(self, function: str) -> str:
        return f"self.{function}" if function in self._methods else function


def _calls(line: Nested) -> Iterator[Nested]:
    yield line
    for each in line.arguments:
        if isinstance(each, Nested):
            yield from _calls(each)


def _depth(line) -> int:
    return 1 + max((_depth(each) for each in line.arguments), default=0) if isinstance(line, Nested) else 0
