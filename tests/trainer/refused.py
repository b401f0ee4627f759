"""Instructions that a trainer refuses, each with its views and its error."""

from dataclasses import replace

from concord.sim.stimulus.trainer_parts import SMALL
from concord.sim.stimulus.trainer_programs import SERVER_WORDS
from concord.spec.trainer.instructions import Space, TrainerError, TrainerOp, instruction
from concord.spec.trainer.views import TrainerView

#: A view that fits everywhere, and views that do not.
FINE = TrainerView(n0=4, s0=1)
TWO = replace(FINE, planes=2, plane=16, offset=32)
FAR, LIMITED = replace(FINE, offset=SMALL.words - 3), replace(FINE, limit1=1)
RECORD = replace(FINE, planes=5, plane=16)
ODD, WIDE = replace(FINE, offset=5), replace(FINE, offset=16, limit2=4)
SUMS = TrainerView(space=Space.ACCUMULATORS, planes=6, n0=4, s0=1)
OUTSIDE = replace(FINE, space=Space.SERVER)
REGIONS = TrainerView(space=Space.SERVER, planes=6, plane=1, blocks=2, block=6, n0=1, s0=12)
PATCHES = {"to": 0, "source": 1, "patches": 1, "size": 1, "channels": 4}


def one_product(**fields: int) -> dict[str, int]:
    return {"a": 0, "b": 1, "n0": 1, "n1": 1, "n2": 1} | fields


#: Views, opcode, fields, and the error that they end with.
REFUSED = [
    ((), TrainerOp.ADD, {}, TrainerError.SIZE),
    ((FINE,), TrainerOp.COPY, {"to": 0, "source": 1}, TrainerError.SIZE),
    ((replace(FINE, n1=0),), TrainerOp.COPY, {"zeros": 1}, TrainerError.SIZE),
    ((replace(FINE, planes=3),), TrainerOp.COPY, {"zeros": 1}, TrainerError.SIZE),
    ((FINE, ODD, replace(ODD, n0=3)), TrainerOp.ADD, {"y": 0, "a": 1, "b": 2}, TrainerError.SIZE),
    ((FINE, replace(FINE, n0=5, offset=16)), TrainerOp.COPY, {"to": 0, "source": 1}, TrainerError.SIZE),
    ((FINE, TWO), TrainerOp.COPY, {"to": 0, "source": 1}, TrainerError.SIZE),
    ((FAR,), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((replace(FINE, s0=-1),), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((replace(TWO, offset=64, plane=(1 << 20) - 16),), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((LIMITED,), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((FINE, replace(FINE, offset=3)), TrainerOp.COPY, {"to": 0, "source": 1}, TrainerError.RANGE),
    ((OUTSIDE, replace(OUTSIDE, offset=8)), TrainerOp.COPY, {"to": 0, "source": 1}, TrainerError.RANGE),
    ((replace(OUTSIDE, offset=SERVER_WORDS - 3),), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((replace(FINE, space=Space.EXPONENTS),), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((replace(SUMS, planes=4),), TrainerOp.COPY, {"zeros": 1}, TrainerError.SIZE),
    ((replace(SUMS, blocks=3),), TrainerOp.COPY, {"zeros": 1}, TrainerError.SIZE),
    ((replace(SUMS, offset=SMALL.accumulator_rows - 3),), TrainerOp.COPY, {"zeros": 1}, TrainerError.RANGE),
    ((FINE, ODD), TrainerOp.COPY, {"to": 0, "source": 1, "add": 1}, TrainerError.RANGE),
    ((FINE, ODD), TrainerOp.COPY, PATCHES | {"size": 4}, TrainerError.SIZE),
    ((FINE, ODD), TrainerOp.COPY, PATCHES, TrainerError.SIZE),
    ((OUTSIDE, WIDE), TrainerOp.COPY, PATCHES, TrainerError.RANGE),
    ((WIDE, replace(WIDE, space=Space.SERVER)), TrainerOp.COPY, PATCHES, TrainerError.RANGE),
    ((FINE, FINE), TrainerOp.PRODUCT, one_product(n1=0), TrainerError.SIZE),
    ((FINE, FINE), TrainerOp.PRODUCT, one_product(mode=1), TrainerError.SIZE),
    ((FINE, TWO), TrainerOp.PRODUCT, one_product(), TrainerError.SIZE),
    ((FINE, FINE, replace(FINE, n0=3)), TrainerOp.PRODUCT, one_product(y=2), TrainerError.SIZE),
    ((FINE, FINE), TrainerOp.PRODUCT, one_product(acc=SMALL.accumulator_rows - 3), TrainerError.RANGE),
    ((FINE, FINE), TrainerOp.PRODUCT, one_product(mode=1, outputs=13, n1=5), TrainerError.RANGE),
    ((FINE, ODD), TrainerOp.PRODUCT, one_product(), TrainerError.RANGE),
    ((FINE, LIMITED), TrainerOp.PRODUCT, one_product(), TrainerError.RANGE),
    ((FINE, replace(FINE, s0=16)), TrainerOp.PRODUCT, one_product(n0=SMALL.words // 16 + 1), TrainerError.RANGE),
    ((FINE, FINE), TrainerOp.PRODUCT, one_product(n0=2, a_s0=SMALL.words - 3), TrainerError.RANGE),
    ((FINE, FINE, ODD), TrainerOp.PRODUCT, one_product(y=2), TrainerError.RANGE),
    ((FINE, FINE, replace(ODD, offset=32), FAR), TrainerOp.PRODUCT, one_product(y=2, mask=3), TrainerError.RANGE),
    (
        (FINE, FINE, replace(ODD, offset=32), replace(FINE, offset=SMALL.words)),
        TrainerOp.PRODUCT,
        one_product(y=2, bias=3),
        TrainerError.RANGE,
    ),
    ((OUTSIDE, FINE), TrainerOp.PRODUCT, one_product(), TrainerError.RANGE),
    ((ODD, FINE), TrainerOp.PRODUCT, one_product(mode=1, outputs=3), TrainerError.RANGE),
    ((replace(TWO, plane=8), FINE), TrainerOp.PRODUCT, one_product(mode=1, outputs=3), TrainerError.RANGE),
    ((FINE, replace(FINE, offset=16)), TrainerOp.POOL, {"y": 0, "x": 1}, TrainerError.SIZE),
    ((FINE, replace(FINE, offset=16)), TrainerOp.POOL, {"y": 0, "x": 1, "size": 1, "chosen": 0}, TrainerError.RANGE),
    (
        (FINE, replace(FINE, offset=SMALL.words - 5, pitch2=1)),
        TrainerOp.POOL,
        {"y": 0, "x": 1, "size": 3},
        TrainerError.RANGE,
    ),
    (
        (TWO, replace(TWO, offset=64), FINE),
        TrainerOp.POOL_BACK,
        {"y": 0, "x": 1, "chosen": 2, "size": 1},
        TrainerError.SIZE,
    ),
    (
        (TWO, replace(TWO, n0=3), FINE),
        TrainerOp.POOL_BACK,
        {"y": 0, "x": 1, "chosen": 2, "size": 1, "stride": 1},
        TrainerError.SIZE,
    ),
    *(
        (
            (TWO, replace(TWO, offset=64, **x), replace(FINE, offset=128, **chosen)),
            TrainerOp.POOL_BACK,
            {"y": 0, "x": 1, "chosen": 2, "size": 1, "stride": 1},
            error,
        )
        for x, chosen, error in (
            ({}, {"n0": 2, "n1": 2}, TrainerError.SIZE),
            ({"limit1": 1}, {}, TrainerError.RANGE),
            ({}, {"limit2": 1}, TrainerError.RANGE),
        )
    ),
    ((RECORD, RECORD), TrainerOp.UPDATE, {"old": 0, "new": 1, "ew": 1, "ev": 2, "eg": 3}, TrainerError.RANGE),
    (
        (RECORD, replace(RECORD, offset=80)),
        TrainerOp.UPDATE,
        {"old": 0, "new": 1, "acc": SMALL.accumulator_rows - 3, "ew": 1, "ev": 2, "eg": 3},
        TrainerError.RANGE,
    ),
    (
        (RECORD, replace(RECORD, offset=80)),
        TrainerOp.UPDATE,
        {"old": 0, "new": 1, "bias": 1, "acc": 1, "ew": 1, "ev": 2, "eg": 3},
        TrainerError.RANGE,
    ),
    (
        (RECORD, replace(RECORD, n0=3)),
        TrainerOp.UPDATE,
        {"old": 0, "new": 1, "ew": 1, "ev": 2, "eg": 3},
        TrainerError.SIZE,
    ),
    ((replace(SUMS, space=Space.SERVER, blocks=2),), TrainerOp.SUM, {"cores": 1}, TrainerError.SIZE),
    ((REGIONS,), TrainerOp.SUM, {"cores": 2}, TrainerError.PEER),
    ((), TrainerOp.LOOP, {"count": 0}, TrainerError.LOOP),
    ((), TrainerOp.END_LOOP, {}, TrainerError.LOOP),
    ((), TrainerOp.REPEAT, {"target": 5}, TrainerError.LOOP),
    ((), TrainerOp.BARRIER, {"cores": 2}, TrainerError.PEER),
    ((), TrainerOp.BARRIER, {"cores": 3}, TrainerError.PEER),
    ((), TrainerOp.COPY, {}, TrainerError.ILLEGAL),
]


def refused_program(case: int) -> list[int]:
    """A program that ends with the instruction of a case, behind its views."""
    views, op, fields, _ = REFUSED[case]
    return [*(word for number, view in enumerate(views) for word in view.tensor(number).words),
            *instruction(op, **fields).words]
