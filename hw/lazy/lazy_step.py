"""The lazy update of one element, as stages that registers may separate.

An element is a mapping of values, and each stage adds values to it. The control is another mapping, which all elements
of a pass share. Without a change of the exponent, v is the
residual plus the aligned update. With a change, v = -round(joint / 2**change), and the mantissa begins at 0. In both
cases the mantissa falls by round(v / 2**t), and the residual is the rest of v.
"""

from functools import partial

from amaranth import *
from amaranth.lib import data
from amaranth.utils import bits_for
from concord.hw.lib.arithmetic import add_carry, apart, clamp, digits, shift_digit
from concord.spec.numbers.lazy import LazyFormat


def _limit_bits(fmt: LazyFormat) -> int:
    """Number of bits of the largest magnitude of an aligned update."""
    return fmt.limit.bit_length()


def change_shape(fmt: LazyFormat) -> Shape:
    """Shape of the change of an exponent."""
    return signed(bits_for(fmt.changes[-1]) + 1)


def joint_shape(fmt: LazyFormat) -> Shape:
    """Shape of a joint value or its negative."""
    return signed(fmt.joint_bits)


def _scale_bits(fmt: LazyFormat) -> int:
    """Number of bits of a change of the exponent, counted from the lowest change."""
    return bits_for(len(fmt.changes) - 1)


def _right_bits(fmt: LazyFormat) -> int:
    """Number of bits of the shift that aligns an update, counted from the largest left shift that matters."""
    return bits_for(_limit_bits(fmt) + fmt.update + 1)


def control(block: data.View, fmt: LazyFormat) -> dict:
    """Values that all elements of a pass share; `distance` becomes `right` one stage later."""
    return {"exponent": block.exponent, "update_exponent": block.update_exponent,
            "distance": block.exponent - block.update_exponent + (fmt.alignment(0, 0) + _limit_bits(fmt)),
            "scale": (block.change - fmt.changes[0])[:_scale_bits(fmt)], "changes": block.change != 0}


def set_out(shared: dict, fmt: LazyFormat) -> dict:
    """Values that the first stage adds to the control: the alignment, limited to the range in which it matters."""
    right = clamp(shared["distance"], 0, _limit_bits(fmt) + fmt.update + 1)
    return {"right": right[:_right_bits(fmt)]}


def stages(fmt: LazyFormat) -> list:
    """Functions of an element and its control, each of which returns the values that its stage adds to the element.

    After the last stage, the element has `mantissa`, `residual` and the flags `moved`, `rounded`, `limited`, `outside`,
    `large`, `holds` and `updated`. After the stage `joint` it has `fall`, the negative joint value.
    """
    align = [partial(_align, low=low) for low in digits(_right_bits(fmt))]
    rescale = [partial(_rescale, low=low) for low in digits(_scale_bits(fmt))]
    chain = [_magnitude, *align, _compare, _limit, _aligned, _total, joint, _choose, *rescale, _nearest, _half, _step,
             _clip, _moved]
    return [partial(function, fmt=fmt) for function in chain]


def _magnitude(e, shared, fmt):
    update, negative = e["update"], e["update"][-1]
    size = ((update ^ negative.replicate(fmt.update)) + negative)[:fmt.update]
    # One fraction bit, and space for the largest left shift.
    return {"negative": negative, "value": Cat(Const(0, _limit_bits(fmt) + 1), size), "updated": update.any(),
                "holds": Cat(e["mantissa"], e["residual"]).any()}


def _align(e, shared, fmt, low):
    return {"value": shift_digit(e["value"], shared["right"], low)[0]}


def _compare(e, shared, fmt):
    """Whether a magnitude is above the limit, and whether it is the limit."""
    whole, above = e["value"][1:1 + _limit_bits(fmt)], e["value"][1 + _limit_bits(fmt):]
    return {"above": above.any(), "full": whole.all()}


def _limit(e, shared, fmt):
    """The magnitude without its fraction, and whether it rounds up; a limited magnitude has the limit and does not."""
    half, whole = e["value"][0], e["value"][1:1 + _limit_bits(fmt)]
    limited = e["above"] | (e["full"] & half)
    return {"limited": limited, "up": half & ~limited, "whole": whole | limited.replicate(_limit_bits(fmt))}


def _aligned(e, shared, fmt):
    """-(whole + up) is ~whole + ~up."""
    negative = e["negative"]
    whole = (Cat(e["whole"], 0) ^ negative.replicate(_limit_bits(fmt) + 1)).as_signed()
    aligned = add_carry(whole, Const(0, whole.shape()), e["up"] ^ negative)
    return {"aligned": aligned[:_limit_bits(fmt) + 1].as_signed()}


def _total(e, shared, fmt):
    return {"total": e["residual"] + e["aligned"]}


def joint(e, shared, fmt):
    """The negative joint value, which grows by the same amount as the residual."""
    return {"fall": (e["total"] - (e["mantissa"] << fmt.shift))[:fmt.joint_bits].as_signed()}


def _choose(e, shared, fmt):
    """The value v, with space for one fraction bit and one left shift."""
    v = Mux(shared["changes"], e["fall"], e["total"]).as_signed()
    return {"v": Cat(Const(0, 2), v).as_signed(), "rounded": Const(0)}


def _rescale(e, shared, fmt, low):
    v, lost = shift_digit(e["v"], shared["scale"], low)
    return {"v": v, "rounded": e["rounded"] | lost}


def _nearest(e, shared, fmt):
    half, v = e["v"][0], e["v"][1:].as_signed()
    round_up = half & (~v[-1] | e["rounded"])
    return {"v": add_carry(v, Const(0, v.shape()), round_up), "rounded": e["rounded"] | half}


def _half(e, shared, fmt):
    round_up, rest = apart(e["v"], fmt.shift)
    return {"up": round_up, "residual": rest, "before": e["mantissa"],
                "begin": Mux(shared["changes"], 0, e["mantissa"]).as_signed()}


def _step(e, shared, fmt):
    """begin - floor - up is begin + ~floor + ~up."""
    floor = e["v"][fmt.shift:].as_signed()
    return {"mantissa": add_carry(_extend(e["begin"], len(floor)), ~floor, ~e["up"])}


def _clip(e, shared, fmt):
    bits, mantissa = fmt.bits, e["mantissa"]
    outside = mantissa[bits - 1:].any() & ~mantissa[bits - 1:].all()
    end = Mux(mantissa[-1], fmt.lowest, fmt.highest)
    low = mantissa[:bits].as_signed()
    residual = Mux(outside, 0, e["residual"])
    return {"outside": outside, "mantissa": Mux(outside, end, low)[:bits].as_signed(),
                "residual": _extend(residual.as_signed(), fmt.residual),
                "large": (low >= fmt.small) | (low <= -fmt.small)}


def _moved(e, shared, fmt):
    return {"moved": e["mantissa"] != e["before"], "limited": e["limited"] | e["outside"]}


def _extend(value, bits: int):
    """A signed value, extended to more bits."""
    return Cat(value, value[-1].replicate(bits - len(value))).as_signed()
