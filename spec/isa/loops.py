"""Loops that move base registers: the first pass that breaks a rule, without walking through all passes.

From a loop's second pass on, a base register moves by a constant in each pass, so the passes differ only in how far
addresses have moved. A movement is a tuple like `spec.isa.chain.NO_BASES`: a distance for each value of the field
`base`. Rules that depend on addresses fail where a distance is too large or too small, or brings a write to what the
chain reads; both have a closed form. A distance that breaks the alignment of a product does so in the second pass, and
that pass is walked.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from concord.spec.isa.chain import NO_BASES, Chain
from concord.spec.isa.chain_rules import check_chain, check_constants, ends, outside_writes, overwriting
from concord.spec.isa.instructions import Instruction, Op, base_number
from concord.spec.isa.memories import depth
from concord.spec.isa.rules import check_sum
from concord.spec.machine.config import Config

Movement = tuple[int, ...]


def moved_by(bases: Movement, move: Movement, times: int = 1) -> Movement:
    """Base registers, or a movement of them, after `times` further movements."""
    return tuple(base + times * distance for base, distance in zip(bases, move, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One chain or `s_add` of a pass, and the movements with which it breaks no rule.

    Attributes:
        check: Function of a movement; it raises the violation of the rule that the moved step breaks first.
        most:  Pairs (base, distance): this base may move up by this distance at most.
        least: Pairs (base, distance): this base may move down by this distance at most.
        apart: Tuples (read, written, low, high): the base of a write moves, against the base of the source, by a
               distance outside low..high.
        walks: Pairs (base, unit): passes in which this base moves by no multiple of the unit are walked one by one,
               because rules look at more than how far addresses move; with the unit 0, all in which it moves. An
               address that moves in all passes leaves its memory after as many passes as that has addresses.
    """

    check: Callable[[Movement], object]
    most: tuple[tuple[int, int], ...] = ()
    least: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int, int, int], ...] = ()
    walks: tuple[tuple[int, int], ...] = ()


def chain_step(config: Config, body: tuple[Instruction, ...], chain: Chain, bases: Movement,
               constants: int = 0) -> Step | None:
    """The step of a chain that breaks no rule; None if it names no base register.

    Args:
        body:      The instructions of the chain, with their base registers by name.
        chain:     The chain that they make with `bases`.
        constants: Number of words of Dram that it must not write.
    """
    base = {chain.address + k: instruction.base for k, instruction in enumerate(body)}
    if not any(base.values()):
        return None

    def check(moved: Movement) -> None:
        there = Chain.resolve(config, chain.address, body, chain.registers, moved_by(bases, moved))
        check_chain(config, there)
        check_constants(there, constants)

    read = base[chain.address]
    apart = []
    for address, instruction in overwriting(chain):
        source, written = chain.source_span(), chain.result_span(instruction)
        apart.append((read, base[address], source.start - written.stop + 1, source.stop - written.start - 1))
    return Step(
        check=check, apart=tuple(apart),
        least=tuple((base[address], write.a - constants) for address, write in outside_writes(chain) if base[address]),
        most=tuple((base[address], depth(config, mem) - end) for address, mem, end in ends(chain) if base[address]),
        walks=_walks(config, chain, base))


def _walks(config, chain, base):
    """The attribute `walks` of the step of a chain: tiles have modes, and vectors of tiles lie in native vectors."""
    tiles = [base[chain.address + k] for k, one in enumerate(chain.instructions) if one.op in (Op.MV_MUL, Op.M_WR)]
    pairs = [(number, 0) for number in tiles] + [(base[chain.address], config.vector_words)] * chain.builds
    return tuple((number, unit) for number, unit in pairs if number)


def sum_step(instruction: Instruction, before: int, address: int, bits: int) -> Step:
    """The step of an `s_add` that breaks no rule.

    Args:
        before: The base register before it.
        bits:   Number of bits of a base register.
    """
    number = base_number(instruction)
    after = check_sum(instruction, before, address, bits)
    return Step(check=lambda moved: check_sum(instruction, before + moved[number], address, bits),
                most=((number, (1 << bits) - 1 - after),), least=((number, after),))


@dataclass(frozen=True, slots=True)
class Passes:
    """Passes of a loop after one that broke no rule: the k-th of them, from 1 on, is that one moved k times.

    Attributes:
        steps: Steps of that pass; passes of the loops inside it stand among them.
        count: Number of passes.
        move:  Movement from one pass to the next.
    """

    steps: tuple["Step | Passes", ...]
    count: int
    move: Movement

    def check(self, moved: Movement = NO_BASES) -> None:
        """Raise the first violation of these passes.

        Args:
            moved: Movement of the first pass, which stands before these passes and breaks no rule then.

        Raises:
            Violation: a pass breaks a rule.
        """
        number = self._first(moved)
        if number is None:
            return
        for step in self.steps:
            step.check(moved_by(moved, self.move, number))
        raise AssertionError("the pass breaks no rule")

    def _first(self, moved: Movement) -> int | None:
        """Number of the first pass that breaks a rule."""
        found, families = self.count + 1, list(_families(self.steps))
        for step, inner in families:
            found = min(found, self._first_far(step, inner, moved, found))
        for step, inner in families:
            for read, written, low, high in step.apart:
                speed = self.move[written] - self.move[read]
                if speed:
                    low, high = (end - moved[written] + moved[read] for end in (low, high))
                    hits = _hits([(one.count, one.move[written] - one.move[read]) for one in inner], low, high)
                    found = next((k for k in range(1, found) if hits(k * speed)), found)
        return found if found <= self.count else None

    def _first_far(self, step: Step, inner: list["Passes"], moved: Movement, none: int) -> int:
        """Number of the first pass in which a step moves too far; `none` if there is none."""
        found = [none]
        for sign, limits in ((1, step.most), (-1, step.least)):
            for base, most in limits:
                speed = sign * self.move[base]
                # Each inner loop has its extreme where its passes begin, or in the last one.
                start = sign * moved[base] + sum(max(0, one.count * sign * one.move[base]) for one in inner)
                if start + speed > most:
                    found.append(1)
                elif speed > 0:
                    found.append((most - start) // speed + 1)
        return min(found)


def walked(steps: "Iterable[Step | Passes]", move: Movement) -> bool:
    """Whether the passes of a loop with these steps and this movement must be walked one by one."""
    return any(move[base] % unit if unit else move[base]
               for step, _ in _families(steps) for base, unit in step.walks)


def _families(steps: "Iterable[Step | Passes]") -> Iterator[tuple[Step, list[Passes]]]:
    """Yield each step with the passes of inner loops in which it stands, the outermost first."""
    for step in steps:
        if isinstance(step, Step):
            yield step, []
        else:
            for inner, passes in _families(step.steps):
                yield inner, [step, *passes]


def _hits(inner: list[tuple[int, int]], low: int, high: int) -> Callable[[int], bool]:
    """A function of a distance d: whether d + k1*s1 + k2*s2 + ... lies in low..high for some k1, k2, ...

    Args:
        inner: Pairs (n, s): k lies in 0..n.
    """
    lowest = low - sum(max(0, count * speed) for count, speed in inner)
    wanted = (1 << high - low + 1) - 1  # bit d stands for the distance lowest + d
    for count, speed in inner:
        wanted = _united(wanted, 1 + count, abs(speed))
    data = wanted.to_bytes((wanted.bit_length() + 7) // 8, "little")

    def hit(distance: int) -> bool:
        bit = distance - lowest
        return 0 <= bit < 8 * len(data) and bool(data[bit >> 3] >> (bit & 7) & 1)

    return hit


def _united(bits: int, count: int, speed: int) -> int:
    """The union of `bits` shifted by 0, speed, ... (count - 1) * speed."""
    done = 1
    while done < count and speed:
        step = min(done, count - done)
        bits |= bits << step * speed
        done += step
    return bits
