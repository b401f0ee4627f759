"""QuantizeLinear with DequantizeLinear, and QONNX's Quant and BipolarQuant: networks that are quantised already."""

from dataclasses import replace

import numpy as np
from concord.frontends.onnx.lib.builder import Builder, check_not_padded
from concord.frontends.onnx.lib.problems import Refused
from concord.frontends.onnx.lib.step import FileCodes, FileNode, Value, evaluate
from concord.frontends.onnx.lib.views import View
from concord.net.ops.grid import WIDEST, IntegerGrid, Quantize
from onnx import TensorProto, helper

#: Bits and sign of the integers of each element type of numpy.
TYPES = {"uint8": (8, False), "int8": (8, True), "uint16": (16, False), "int16": (16, True), "int4": (4, True),
         "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}


def quantize_linear(step: FileNode, build: Builder) -> list[Value]:
    """Integers of what the network computes, which a DequantizeLinear must follow."""
    zero = step.constant(2, "zero point")
    kind = _type_without_zero_point(step) if zero is None else zero.dtype.name
    bits, signed = TYPES.get(kind, (0, False))
    if not bits:
        raise Refused(f"its integers are {kind}", "use int8, uint8, int16, uint16 or integers of 4 bits")
    grid = IntegerGrid(scale=_one(step.weights(1, "scale"), "scales"), bits=bits, signed=signed,
                zero_point=0 if zero is None else int(_one(zero, "zero points")))
    return [FileCodes(view=_quantize(step, build, step.view(0), grid), scale=grid.scale, zero_point=grid.zero_point)]


def _type_without_zero_point(step: FileNode) -> str:
    """The type of the integers that the attribute output_dtype names, uint8 if there is none."""
    found = step.attributes.get("output_dtype", TensorProto.UNDEFINED)
    return helper.tensor_dtype_to_np_dtype(found or TensorProto.UINT8).name


def clip(step: FileNode, build: Builder, lowest, highest) -> list[Value]:
    """Integers of fewer bits than their type has; None is no limit."""
    codes = step.get(0)
    grid = build.maker(codes.view.source).op.grid
    limits = (grid.lowest if lowest is None else int(_one(lowest, "smallest integers")),
              grid.highest if highest is None else int(_one(highest, "largest integers")))
    made = grid.clipped(*limits)
    if made is None:
        raise Refused(f"it limits integers to {limits[0]}..{limits[1]}, which is the range of no number of bits",
                      "use the range of 2 bits or more, with or without a sign")
    return [replace(codes, view=_quantize(step, build, codes.view, made))]


def dequantize_linear(step: FileNode, build: Builder) -> list[Value]:
    """What integers stand for: of weights, or of what the network computes."""
    value, scale, zero = step.get(0), step.weights(1, "scale"), step.constant(2, "zero point")
    if isinstance(value, FileCodes):
        offset = 0 if zero is None else int(_one(zero, "zero points"))
        if _one(scale, "scales") != value.scale or offset != value.zero_point:
            raise Refused(f"it takes integers of the scale {value.scale:g} and the zero point {value.zero_point} for "
                          f"those of {_one(scale, 'scales'):g} and {offset}", "use the same in both")
        return [value.view]
    if isinstance(value, View):
        raise Refused("it takes integers from the network's input", "start the network with QuantizeLinear")
    if step.attributes.get("block_size", 0):
        raise Refused("it has scales of blocks (block_size), which are not supported",
                      "use one scale, or one for each channel")
    made = evaluate(step, step.values)
    if value.dtype.name in TYPES:
        bits, signed = TYPES[value.dtype.name]
        axis = step.attributes.get("axis", 1) % max(1, value.ndim)
        shape = [-1 if index == axis else 1 for index in range(value.ndim)] if scale.size > 1 else [1] * value.ndim
        build.grids[step.outputs[0]] = _spread(value, bits, signed, False, *(
            np.asarray(part, np.float64).reshape(shape) for part in (scale, np.zeros(scale.shape) if zero is None
                                                                     else np.broadcast_to(zero, scale.shape))))
    return made


def quant(step: FileNode, build: Builder) -> list[Value]:
    """QONNX's Quant: rounds to integers, and gives what they stand for."""
    scale, zero, bits = (step.weights(index, what) for index, what in ((1, "scale"), (2, "zero point"), (3, "bits")))
    mode = step.attributes.get("rounding_mode", "ROUND")
    if mode not in ("ROUND", "HALF_EVEN"):
        raise Refused(f"it rounds by {mode}", "use ROUND, which rounds half to even, and train again")
    width, signed, narrow = _one(bits, "bits"), _flag(step, "signed", 1), _flag(step, "narrow", 0)
    if width != int(width) or not 1 <= width <= WIDEST:
        raise Refused(f"its integers have {width:g} bits", f"use 1 to {WIDEST}")
    if isinstance(step.get(0), View):
        return [_quantize(step, build, step.view(0), IntegerGrid(
            scale=_one(scale, "scales"), zero_point=_one(zero, "zero points"), bits=int(width), signed=signed,
            narrow=narrow))]
    weight = step.weights(0, "weight")
    grid = build.grids[step.outputs[0]] = _spread(weight, int(width), signed, narrow, scale, zero)
    return [grid.quantized(weight).astype(np.float32)]


def bipolar(step: FileNode, build: Builder) -> list[Value]:
    """QONNX's BipolarQuant of weights: the sign times a scale."""
    if isinstance(step.get(0), View):
        raise Refused("it gives the sign of what the network computes, which the machine does not have",
                      "use Quant of 2 bits or more, and train again")
    weight, scale = step.weights(0, "weight"), step.weights(1, "scale")
    build.grids[step.outputs[0]] = _spread(weight, 2, True, True, scale, np.zeros(1))
    return [(np.where(weight >= 0, 1.0, -1.0) * scale).astype(np.float32)]


def _quantize(step: FileNode, build: Builder, view: View, grid: IntegerGrid) -> View:
    if not grid.scale > 0:
        raise Refused(f"its scale is {grid.scale:g}", "use a scale above zero")
    check_not_padded(view)
    return build.same(step, Quantize(grid=replace(
        grid, scale=float(grid.scale), zero_point=int(grid.zero_point))), view)


def _spread(value: np.ndarray, bits: int, signed: bool, narrow: bool, scale: np.ndarray, zero: np.ndarray
            ) -> IntegerGrid:
    """A grid with the scale and the zero point of each element of a tensor."""
    scale, zero = (np.broadcast_to(part, value.shape) for part in (scale, zero))
    return IntegerGrid(scale=scale, zero_point=zero, bits=bits, signed=signed, narrow=narrow)


def _flag(step: FileNode, key: str, usual: int) -> bool:
    """An attribute that is 0 or 1.

    Raises:
        Refused: it is another number.
    """
    found = step.attributes.get(key, usual)
    if found not in (0, 1):
        raise Refused(f"its attribute {key} is {found}", "use 0 or 1")
    return bool(found)


def _one(value: np.ndarray, what: str) -> float:
    """The only number of a tensor.

    Raises:
        Refused: there are several.
    """
    found = np.unique(value)
    if len(found) != 1:
        raise Refused(f"it has {found.size} {what}, one for each channel of what the network computes",
                      "use one for all channels")
    return float(found[0])
