"""Instruction words, program text, sizes, and the closed form of the words that a view may reach."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from concord.golden.trainer.memory import Seen
from concord.spec.isa.enum_docs import comments
from concord.spec.trainer.config import NONE, TrainerConfig
from concord.spec.trainer.instructions import (
    FIELDS,
    OPCODE,
    SIZES,
    WORD,
    TrainerError,
    TrainerField,
    TrainerOp,
    broken_rule,
    decode,
    instruction,
)
from concord.spec.trainer.registers import TrainerRegister, rate_bits, rate_of
from concord.spec.trainer.text import assemble, disassemble
from concord.spec.trainer.views import TrainerView


def random_words(rng: np.random.Generator, op: TrainerOp) -> list[int]:
    """Words of an instruction with random bits in all of its fields."""
    bits = OPCODE.put(op)
    for field in FIELDS[op].values():
        bits |= field.put(int(rng.integers(0, 1 << field.width)))
    return [bits >> WORD * k & (1 << WORD) - 1 for k in range(SIZES[op])]


@pytest.mark.parametrize("op", TrainerOp)
def test_words_and_text(op):
    fields = [(0, OPCODE), *((field.lo, field) for field in FIELDS[op].values())]
    taken = [bit for lo, field in fields for bit in range(lo, lo + field.width)]
    assert len(taken) == len(set(taken))
    assert all(lo // WORD == (lo + field.width - 1) // WORD for lo, field in fields)
    rng = np.random.default_rng(op)
    for _ in range(20):
        words = random_words(rng, op)
        found = decode(words)
        assert found is not None
        assert found.words == words
        assert assemble(disassemble(words)) == words
    spare = [bit for bit in range(WORD * SIZES[op]) if bit not in taken]
    for bit in spare:
        wrong = list(words)
        wrong[bit // WORD] |= 1 << bit % WORD
        assert decode(wrong) is None
        assert assemble(disassemble(wrong)) == wrong
    assert op.name in comments(TrainerOp)


def test_unknown_opcodes_are_none():
    assert all(decode([op]) is None for op in range(64) if op not in list(TrainerOp))
    with pytest.raises(IndexError):
        decode([int(TrainerOp.TENSOR)])
    assert disassemble([int(TrainerOp.TENSOR)]).startswith(".word")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("end 3", "line 1: end takes names and numbers"),
        ("\nloop times 3", "line 2: loop does not take times: it takes count"),
        ("jump", "there is no instruction 'jump'"),
        ("loop count x", "'x' is not a number"),
        ("loop count 65536", "count of loop: 65536 does not fit in 16 bits"),
        ("s_wr r 1, value 0x80000000", "value of s_wr: 2147483648 does not fit in 32 bits with its sign"),
        ("loop count 1, count 1", "each name once"),
    ],
)
def test_text_that_is_wrong(text, sentence):
    with pytest.raises(ValueError, match=sentence):
        assemble(text)


ILLEGAL = [
    instruction(TrainerOp.COPY, to=0),
    instruction(TrainerOp.COPY, to=0, source=1, zeros=1),
    instruction(TrainerOp.COPY, to=0, source=1, add=1, patches=1),
    instruction(TrainerOp.COPY, to=0, source=1, size=1),
    instruction(TrainerOp.PRODUCT, a=0, b=1, bias=2),
    instruction(TrainerOp.PRODUCT, a=0, b=1, mode=1, y=2),
    instruction(TrainerOp.PRODUCT, a=0, b=1, mode=1, turned=1),
    instruction(TrainerOp.PRODUCT, a=0, b=1, outputs=1),
    instruction(TrainerOp.PRODUCT, a=0, b=1, mode=1, sum=1, ey=3, ebias=3),
    instruction(TrainerOp.POOL, mean=1, chosen=1),
    instruction(TrainerOp.POOL, shift=1),
    instruction(TrainerOp.POOL_BACK),
    instruction(TrainerOp.UPDATE, ew=1, ev=1),
    instruction(TrainerOp.MEASURE, kind=3),
    instruction(TrainerOp.MEASURE, ew=1),
    instruction(TrainerOp.MEASURE, kind=2, e=1),
    instruction(TrainerOp.PRODUCT, a=NONE, b=1),
    instruction(TrainerOp.PRODUCT, a=0, b=8),
    instruction(TrainerOp.S_WR, r=NONE),
    instruction(TrainerOp.S_WR, r=4),
    instruction(TrainerOp.MEASURE, e=16),
]


@pytest.mark.parametrize("found", ILLEGAL, ids=lambda found: found.op.name)
def test_instructions_that_make_no_sense(found):
    assert broken_rule(found, TrainerConfig(views=8, bases=4, exponents=16))
    assert decode(found.words) == found


@pytest.mark.parametrize(
    "values", [{"words": 200}, {"words": 1 << 17}, {"accumulator_rows": 24}, {"views": 32}, {"exponents": 65}]
)
def test_sizes_out_of_range_are_refused(values):
    with pytest.raises(ValueError, match=f"{next(iter(values))} = .* of a trainer must be"):
        TrainerConfig(**values)
    assert TrainerConfig().digest != TrainerConfig(views=30).digest


def random_view(rng: np.random.Generator) -> TrainerView:
    """A small view with padding, steps and pitches of either sign."""
    few = {name: int(rng.integers(1, 4)) for name in ("n0", "n1", "n2", "blocks")}
    pitches = {name: int(rng.integers(-9, 10)) for name in ("s0", "pitch1", "pitch2", "block")}
    axes = {
        f"{name}{axis}": int(rng.integers(*ends))
        for axis in (1, 2)
        for name, ends in (("step", (0, 4)), ("origin", (-4, 5)), ("limit", (0, 6)))
    }
    return TrainerView(
        **few,
        **pitches,
        **axes,
        offset=int(rng.integers(50)),
        plane=int(rng.integers(rng.choice([99, 1 << 20]))),
        planes=int(rng.choice([1, 2, 4, 5, 6])),
    )


def walked(view: TrainerView, base: int, taps: tuple[int, int], *, every: bool) -> list[int]:
    """Words that a view reads; with `every`, also those of all u between the ends of an axis."""
    axes = []
    for axis, number in enumerate(taps, 1):
        count, step, origin, limit = (getattr(view, f"{name}{axis}") for name in ("n", "step", "origin", "limit"))
        us = {origin + step * t + c for t in range(count) for c in range(number)}
        us = range(min(us), max(us) + 1) if every else us
        axes.append([u for u in us if not limit or 0 <= u < limit])
    counts = range(view.planes), range(view.blocks), range(view.n0)
    return [
        base + view.offset + view.plane * p + view.block * k + view.s0 * t0 + view.pitch1 * u1 + view.pitch2 * u2
        for p, k, t0 in product(*counts)
        for u1, u2 in product(*axes)
    ]


def test_the_range_of_a_view_is_that_of_a_walk():
    rng = np.random.default_rng(1)
    empty = 0
    for _ in range(400):
        view, taps, base = (
            random_view(rng),
            (int(rng.integers(1, 4)), int(rng.integers(1, 4))),
            int(rng.integers(-30, 30)),
        )
        words, read = walked(view, base, taps, every=True), walked(view, base, taps, every=False)
        found = view.whole(base, taps=taps)
        assert found == (range(min(words), max(words) + 1) if words else range(0))
        assert all(word in found for word in read)
        empty += not words
        first = replace(view, planes=1, blocks=1)
        address, inside = Seen(first, base).rows()
        assert set(address[inside]) == set(walked(first, base, (1, 1), every=False))
        assert TrainerView.of(view.tensor(3)) == view
    assert 10 < empty < 300


def test_codes_stay():
    assert [(op.name, int(op)) for op in TrainerOp] == [
        ("TENSOR", 1),
        ("COPY", 2),
        ("PRODUCT", 4),
        ("POOL", 5),
        ("POOL_BACK", 6),
        ("ADD", 7),
        ("UPDATE", 8),
        ("MEASURE", 16),
        ("LOOP", 17),
        ("END_LOOP", 18),
        ("S_WR", 19),
        ("REPEAT", 20),
        ("S_ADD", 21),
        ("SWAP", 22),
        ("BARRIER", 23),
        ("SUM", 24),
        ("END", 25),
    ]
    assert list(TrainerError) == list(range(11))
    assert set(comments(TrainerError)) == set(TrainerError.__members__)
    assert all(isinstance(field, TrainerField) for fields in FIELDS.values() for field in fields.values())


def test_rates_in_registers():
    assert all(rate_of(rate_bits(*rate)) == rate for rate in ((-1 << 15, -126), ((1 << 15) - 1, 128), (3, -4)))
    assert TrainerRegister.EXPONENTS >= TrainerRegister.BASES + 4 * NONE
