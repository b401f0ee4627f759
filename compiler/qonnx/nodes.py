"""Builds nodes of a QONNX graph that compute with the machine's numbers.

Binary16 values are stored as float32, and every operation is followed by a cast to float16 and back. If the tensors
themselves were float16, runtimes without float16 kernels would leave these roundings out.
"""

import numpy as np
from concord.net.arithmetic.windows import Window
from concord.spec.numbers.formats import Format
from onnx import FunctionProto, NodeProto, TensorProto, helper, numpy_helper, parser

DOMAIN = "qonnx.custom_op.general"
#: Operator sets of ONNX: the first one with all operators used here, and the first one with BitCast.
OPSET, OPSET_BITS = 17, 26
#: Integers below this limit are exact in float32.
FLOAT32_BITS = 24
#: Quant expressed in operators of ONNX, for runtimes without QONNX; every Quant here rounds half to even.
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
    """The function QUANT for an operator set, which must be that of the whole file."""
    return parser.parse_function(QUANT.replace("OPSET", str(opset)))


class QonnxNodes:
    """Nodes in the order of computation, and constants. Each node has the name of the tensor that it makes.

    Attributes:
        nodes:     The nodes.
        constants: The constants by their names.
        opset:     The lowest operator set that has all operators of the nodes.
    """

    def __init__(self):
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.opset = OPSET

    def add(self, op: str, name: str, *inputs: str, **attributes) -> str:
        """Add a node, and return the name of its tensor."""
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value, dtype=np.float32) -> str:
        """Add a constant tensor, and return its name."""
        self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype), name)
        return name

    def halves(self, name: str, bits: np.ndarray, shape: tuple[int, ...]) -> str:
        """Add a constant from binary16 patterns."""
        return self.constant(name, np.asarray(bits, np.uint16).view(np.float16).reshape(shape))

    def rounded(self, name: str, x: str) -> str:
        """Add nodes that round float32 to the nearest binary16."""
        half = self.add("Cast", f"{name}.half", x, to=TensorProto.FLOAT16)
        return self.add("Cast", name, half, to=TensorProto.FLOAT)

    def binary16(self, op: str, name: str, a: str, b: str) -> str:
        """Add nodes for Add or Mul of binary16 numbers.

        Rounding to float32 and then to binary16 gives the same as rounding once: float32 has more than twice the bits.
        """
        return self.rounded(name, self.add(op, f"{name}.wide", a, b))

    def reshaped(self, name: str, x: str, shape: tuple[int, ...]) -> str:
        """Add a node that gives each sample another shape."""
        return self.add("Reshape", name, x, self.constant(f"{name}.shape", (0, *shape), np.int64))

    def quant(self, name: str, x: str, fmt: Format, *, unsigned: bool = False) -> str:
        """Add a node that rounds half to even to the integers of a format, and clips them."""
        unit, none = self.constant("unit", 1), self.constant("none", 0)
        bits = self.constant(f"{fmt.bits}.bits", fmt.bits)
        return self.add("Quant", name, x, unit, none, bits, domain=DOMAIN, signed=int(not unsigned),
                        narrow=int(fmt.symmetric), rounding_mode="ROUND")

    def slices(self, name: str, x: str, window: Window, positions: tuple[int, int]) -> list[str]:
        """For each position within a window, in row order, the tensor of the elements that all windows have there."""
        axes = self.constant(f"{name}.axes", (2, 3), np.int64)
        steps = self.constant(f"{name}.steps", window.stride, np.int64)
        found = []
        for at in np.ndindex(window.size):
            part, firsts = f"{name}.{at[0]}.{at[1]}", np.multiply(at, window.dilation)
            ends = firsts + (np.array(positions) - 1) * window.stride + 1
            starts = self.constant(f"{part}.starts", firsts, np.int64)
            found.append(
                self.add("Slice", part, x, starts, self.constant(f"{part}.ends", ends, np.int64), axes, steps))
        return found

    def narrowed(self, name: str, total: str, largest: int) -> str:
        """Convert integers up to `largest` from float64 to float32 numbers that round to the same binary16 numbers.

        Of an integer that float32 does not hold, at least 13 leading bits are kept; all lower bits are replaced by a
        half of the last bit that is kept, if any of them is set.
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
        """Add nodes that look each binary16 number up in a table of 65,536 results."""
        self.opset = OPSET_BITS
        half = self.add("Cast", f"{name}.half", x, to=TensorProto.FLOAT16)
        bits = self.add("BitCast", f"{name}.bits", half, to=TensorProto.UINT16)
        index = self.add("Cast", f"{name}.index", bits, to=TensorProto.INT32)
        return self.add("Gather", name, self.halves(f"{name}.table", results, (-1,)), index)
