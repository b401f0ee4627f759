"""Lines of a script with short calls put into the calls that use them: `y = add(x, b)`, `y = relu(y)` are one line."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from concord.twin.lib.script import Call, Line, SequenceLoop, Stored

#: Most lines between a call and the one that takes it in.
FAR = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Nested:
    """A call whose arguments may be calls.

    Attributes:
        call:      The call; an argument of it that a nested call makes is the name of its result.
        arguments: Its arguments: names, stored tensors and nested calls.
    """

    call: Call
    arguments: tuple

    @property
    def names(self) -> Iterator[str]:
        """Names of all values that it reads."""
        for each in self.arguments:
            if isinstance(each, Nested):
                yield from each.names
            elif isinstance(each, str):
                yield each


def fold(lines: tuple[Line, ...], after: set[str], fits: Callable[[Nested], bool]) -> list[Nested | SequenceLoop]:
    """Put calls into those that use them, where that does not change what they read.

    Args:
        lines: Lines of a block.
        after: Names of the values that are needed after it.
        fits:  Whether a nested call fits into a line.
    """
    folded = [line if isinstance(line, SequenceLoop) else Nested(call=line, arguments=line.arguments) for line in lines]
    number = 0
    while number < len(folded) - 1:
        user = _user(folded, number, after)
        merged = user and _merged(folded[number], folded[user])
        if merged and fits(merged):
            folded[user] = merged
            del folded[number]
            number = max(number - FAR, 0)
        else:
            number += 1
    return folded


def live(lines, after: set[str]) -> set[str]:
    """Names of the values that lines read before they make them, or leave for what follows."""
    needed = set(after)
    for line in reversed(lines):
        needed = needed - _made(line) | set(_read(line, needed))
    return needed


def after_pass(loop: SequenceLoop, after: set[str]) -> set[str]:
    """Names of the values that are needed after a pass of a loop: by the next pass, and by what follows the loop."""
    needed = after | {name for name, _ in loop.carried} | {source for _, source in loop.collected}
    return needed | live(loop.body, needed) - {name for name, _ in loop.items}


def _user(folded, number: int, after: set[str]) -> int | None:
    """Index of the only call that uses the result of call `number`, if it may stand there."""
    first = folded[number]
    if isinstance(first, SequenceLoop) or len(first.call.results) != 1 or first.call.note:
        return None
    (result,) = first.call.results
    for index in range(number + 1, min(number + 1 + FAR, len(folded))):
        line = folded[index]
        if isinstance(line, SequenceLoop):
            return None
        if uses := Counter(line.names)[result]:
            last = result in line.call.results or result not in live(folded[index + 1:], after)
            return index if uses == 1 and last else None
        if {result, *first.names} & set(line.call.results):
            return None
    return None


def _merged(first: Nested, user: Nested) -> Nested | None:
    """The call of `user` with `first` as one of its arguments."""
    (result,) = first.call.results
    if result not in user.arguments:
        within = [_merged(first, each) if isinstance(each, Nested) else each for each in user.arguments]
        within = [new or old for new, old in zip(within, user.arguments, strict=True)]
        return Nested(call=user.call, arguments=tuple(within)) if tuple(within) != user.arguments else None
    return Nested(call=user.call, arguments=tuple(first if each == result else each for each in user.arguments))


def _made(line) -> set[str]:
    if isinstance(line, SequenceLoop):
        return {name for name, _ in line.carried} | {name for name, _ in line.collected}
    return set((line if isinstance(line, Call) else line.call).results)


def _read(line, after: set[str]) -> Iterator[str]:
    if isinstance(line, SequenceLoop):
        yield from (source for _, source in line.items)
        yield from (first for _, first in line.carried if isinstance(first, str))
        yield from live(line.body, after_pass(line, after)) - {name for name, _ in (*line.items, *line.carried)} - after
    elif isinstance(line, Call):
        yield from (each for each in line.arguments if not isinstance(each, Stored))
    else:
        yield from line.names
