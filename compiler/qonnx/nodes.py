"""Nodes of a QONNX graph whose numbers are the machine's.

Binary16 values travel as float32, and every operation is followed by a cast to float16 and back: runtimes that lack
float16 kernels drop such roundings where the tensors themselves are float16.
"""

import numpy as np
from concord.spec.formats import Format
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper, parser

DOMAIN = "qonnx.custom_op.general"
#: Of ONNX: the first with all operators used, and the first with BitCast.
OPSET, OPSET_BITS = 17, 26
#: Integers below are exact in float32.
FLOAT32_BITS = 24
#: What Quant does in operators of ONNX, for runtimes without QONNX; every Quant here rounds half to even.
QUANT = """
<domain: "qonnx.custom_op.general", opset_import: ["" : OPSET]>
Quant <signed, narrow, rounding_mode> (x, scale, zero, bits) => (y) {
    signed_integer = Constant <value_int: int = @signed> ()
    narrow_integer = Constant <value_int: int = @narrow> ()
    is_signed = CastLike (signed_integer, bits)
    is_narrow = CastLike (narrow_integer, bits)
    one = Constant <value_float = 1.0> ()
    two = Constant <value_float = 2.0> ()
    magnitude_bits = Sub (bits, is_signed)
    beyond = Pow (two, magnitude_bits)
    is_unsigned = Sub (one, is_signed)
    left_out = Mul (is_unsigned, is_narrow)
    top = Sub (beyond, one)
    highest = Sub (top, left_out)
    bottom = Sub (is_narrow, beyond)
    lowest = Mul (is_signed, bottom)
    scaled = Div (x, scale)
    shifted = Add (scaled, zero)
    clipped = Clip (shifted, lowest, highest)
    integers = Round (clipped)
    centred = Sub (integers, zero)
    y = Mul (centred, scale)
}
"""


def quant_function(opset: int) -> FunctionProto:
    """QUANT; a file has one opset for all."""
    return parser.parse_function(QUANT.replace("OPSET", str(opset)))


class Nodes:
    """Nodes and constants in the order in which they are computed; each is called as the tensor that it makes.

    Attributes:
        nodes:     NodeProtos.
        constants: TensorProtos by their names.
        opset:     The least that the nodes need.
    """

    def __init__(self):
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.opset = OPSET

    def add(self, op: str, name: str, *inputs: str, **attributes) -> str:
        """One node."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value, dtype=np.float32) -> str:
        """A tensor that is part of the graph."""
        self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    def halves(self, name: str, bits: np.ndarray, shape: tuple[int, ...]) -> str:
        """A constant of binary16 patterns."""
        return self.constant(name, np.asarray(bits, np.uint16).view(np.float16).reshape(shape))

    def rounded(self, name: str, x: str) -> str:
        """Float32 to the nearest binary16."""
        half = self.add("Cast", f"{name}.half", x, to=TensorProto.FLOAT16)
        return self.add("Cast", name, half, to=TensorProto.FLOAT)

    def binary16(self, op: str, name: str, a: str, b: str) -> str:
        """Add or Mul of binary16 numbers: float32 has more than twice their bits, so this rounds as if once."""
        return self.rounded(name, self.add(op, f"{name}.wide", a, b))

    def reshaped(self, name: str, x: str, shape: tuple[int, ...]) -> str:
        """All samples, each in another shape."""
        return self.add("Reshape", name, x, self.constant(f"{name}.shape", (0, *shape), np.int64))

    def quant(self, name: str, x: str, fmt: Format, *, unsigned: bool = False) -> str:
        """The integers of a format: half to even, clipped."""
        unit, none = self.constant("unit", 1), self.constant("none", 0)
        bits = self.constant(f"{fmt.bits}.bits", fmt.bits)
        return self.add("Quant", name, x, unit, none, bits, domain=DOMAIN, signed=int(not unsigned),
                        narrow=int(fmt.symmetric), rounding_mode="ROUND")

    def slices(self, name: str, x: str, size: tuple[int, int], places: tuple[int, int], stride: int) -> list[str]:
        """For each element of a window, in row order, what all windows have there."""
        axes = self.constant(f"{name}.axes", (2, 3), np.int64)
        steps = self.constant(f"{name}.steps", (stride, stride), np.int64)
        found = []
        for at in np.ndindex(size):
            part = f"{name}.{at[0]}.{at[1]}"
            ends = [first + (count - 1) * stride + 1 for first, count in zip(at, places, strict=True)]
            starts = self.constant(f"{part}.starts", at, np.int64)
            found.append(
                self.add("Slice", part, x, starts, self.constant(f"{part}.ends", ends, np.int64), axes, steps))
        return found

    def narrowed(self, name: str, total: str, largest: int) -> str:
        """Float32 that rounds to the same binary16 as integers in float64, of up to `largest`.

        13 leading bits of what float32 does not hold are kept, and a half for all that lies below them.
        """
        size, unit = self.add("Abs", f"{name}.size", total), self.constant(f"{name}.one", 1, np.float64)
        for bits in range(FLOAT32_BITS, largest.bit_length(), 11):
            limit = self.constant(f"{name}.{bits}.limit", 2.0**bits, np.float64)
            small = self.add("Less", f"{name}.{bits}.small", size, limit)
            large = self.constant(f"{name}.{bits}.large", 2.0 ** (bits - 12), np.float64)
            unit = self.add("Where", f"{name}.{bits}.unit", small, unit, large)
        whole = self.add("Floor", f"{name}.whole", self.add("Div", f"{name}.quotient", total, unit))
        exact = self.add("Equal", f"{name}.exact", self.add("Mul", f"{name}.back", whole, unit), total)
        half = self.constant(f"{name}.half", 0.5, np.float64)
        kept = self.add("Where", f"{name}.kept", exact, whole, self.add("Add", f"{name}.between", whole, half))
        return self.add("Cast", name, self.add("Mul", f"{name}.rounded", kept, unit), to=TensorProto.FLOAT)

    def table(self, name: str, x: str, results: np.ndarray) -> str:
        """The entry for each binary16 number of a table of 65,536."""
        self.opset = OPSET_BITS
        half = self.add("Cast", f"{name}.half", x, to=TensorProto.FLOAT16)
        bits = self.add("BitCast", f"{name}.bits", half, to=TensorProto.UINT16)
        index = self.add("Cast", f"{name}.index", bits, to=TensorProto.INT32)
        return self.add("Gather", name, self.halves(f"{name}.table", results, (-1,)), index)
