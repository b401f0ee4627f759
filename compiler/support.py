"""What a machine can compute of a model: every layer that it cannot, with the reason and what to do."""

from concord.compiler import tiling
from concord.model.block_conv import BlockConv
from concord.model.image_layers import Add, Concat, Conv, Pool
from concord.model.layers import LSTM, BlockDense, BlockLSTM, Dense, Layer, Unknown
from concord.model.model import Model
from concord.spec.config import Config
from concord.spec.formats import Format


def problems(model: Model, config: Config) -> list[str]:
    """A sentence for each thing in the way, layer by layer; none where the model can be compiled."""
    return [
        f"layer {layer.name!r} ({kind_name(layer)}): {reason}"
        for layer in model.layers
        for reason in _reasons(layer, config)
    ]


def kind_name(layer: Layer) -> str:
    """What people call the layer's kind."""
    names = {
        Dense: "dense, integer",
        BlockDense: "dense, block floating point",
        LSTM: "LSTM, integer",
        BlockLSTM: "LSTM, block floating point",
        Conv: "convolution, integer",
        BlockConv: "convolution, block floating point",
        Pool: "pooling",
        Add: "sum",
        Concat: "concatenation",
    }
    return layer.kind if isinstance(layer, Unknown) else names[type(layer)]


def _reasons(layer: Layer, config: Config) -> list[str]:
    match layer:
        case Dense():
            return (
                _operands(layer, config, [layer.weights])
                + _start(layer, config)
                + _columns(config, tiling.vectors(config, layer.inputs))
                + _rows(config, layer.outputs)
            )
        case LSTM():
            widest = max(layer.inputs, layer.outputs)
            return (
                _operands(layer, config, [layer.input_weights, layer.recurrent_weights])
                + _columns(config, tiling.vectors(config, widest))
                + _rows(config, layer.outputs)
            )
        case BlockDense():
            return (
                _blocks(layer, config)
                + _columns(config, tiling.vectors(config, layer.inputs))
                + _rows(config, layer.outputs)
            )
        case BlockLSTM():
            columns = tiling.vectors(config, layer.inputs) + tiling.vectors(config, layer.outputs)
            return _blocks(layer, config) + _columns(config, columns) + _rows(config, layer.outputs)
    return ["there is no such layer on this machine: use dense or LSTM layers, or run it on the host"]


def _operands(layer, config: Config, matrices) -> list[str]:
    """Integer mode: codes are the machine's own, since its quantiser clips them; weights only have to fit."""
    found = []
    machine, model = config.activations, layer.input_format
    if (model.bits, model.symmetric) != (machine.bits, machine.symmetric):
        found.append(
            f"its input codes are {_width(model)}, the machine's operands {_width(machine)}: quantise the "
            "model for this machine, or choose another preset"
        )
    low, high = (int(f(m.min() if f is min else m.max() for m in matrices)) for f in (min, max))
    if low < config.weights.lowest or high > config.weights.highest:
        found.append(
            f"its weights lie in {low}..{high}, the machine's mantissas in {config.weights.lowest}.."
            f"{config.weights.highest}: quantise them to {config.weights.bits} bits, or choose a wider preset"
        )
    return found


def _start(layer: Dense, config: Config) -> list[str]:
    ends = int(layer.start.min()), int(layer.start.max())
    bits = max((value if value >= 0 else ~value).bit_length() + 1 for value in ends)
    if bits <= config.bias_bits:
        return []
    return [f"its start values need {bits} bits, BiasRf has {config.bias_bits}: use smaller weights or fewer inputs"]


def _blocks(layer, config: Config) -> list[str]:
    """Block floating point: both formats and the block are the machine's own."""
    found = []
    for what, model, machine in (
        ("weights", layer.weights_format, config.weights),
        ("inputs", layer.input_format, config.activations),
    ):
        if model != machine:
            found.append(
                f"its {what} are {_block_format(model)}, the machine's {_block_format(machine)}: quantise the "
                "model for this machine, or choose another preset"
            )
    if layer.block != config.native_dim:
        found.append(
            f"its blocks have {layer.block} elements, native vectors {config.native_dim}: quantise the model "
            "for this machine"
        )
    return found


def _columns(config: Config, columns: int) -> list[str]:
    if columns <= config.operand_columns:
        return []
    reason = f"one product needs {columns} native vectors, operand_columns is {config.operand_columns}"
    advice = f"use at most {config.operand_columns * config.native_dim} inputs"
    return [f"{reason}, and a sum cannot be cut without another rounding: {advice}"]


def _rows(config: Config, rows: int) -> list[str]:
    if rows > tiling.LARGEST:
        return [f"its {rows} outputs are more than the {tiling.LARGEST} that Rows can say: cut the layer"]
    if rows <= config.accumulator_rows or config.accumulator_rows >= config.mfu_lanes:
        return []
    return [
        f"accumulator_rows = {config.accumulator_rows} is less than a word of {config.mfu_lanes}: choose another preset"
    ]


def _width(fmt: Format) -> str:
    return f"{'symmetric' if fmt.symmetric else 'full'} {fmt.bits}-bit"


def _block_format(fmt: Format) -> str:
    return f"{_width(fmt)} with exponents {fmt.e_min}..{fmt.e_max} by rule {fmt.rule}"
