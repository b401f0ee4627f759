"""Integer recurrent layers: one pass for u = W x of all gates, then the passes of the cell."""

from dataclasses import dataclass

import numpy as np
from concord.compiler.lib import bounds, limits, tiling
from concord.compiler.lib.allocation import NET, Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import operate, read, write
from concord.compiler.recurrent.gates import each_gate, select
from concord.golden.lib import float16
from concord.model.layers.recurrent import IntegerRecurrent
from concord.spec.isa import Instruction, Mem, Op


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What a layer keeps from one time step to the next.

    Attributes:
        codes:  h in steps of its code, as the recurrent product reads it.
        cell:   c.
        hidden: h in real units, for the next layer.
    """

    codes: Place
    cell: Place
    hidden: Place


class IntegerRecurrentCompiler(LayerCompiler):
    """An integer recurrent layer."""

    from_queue = True

    def problems(self, layer, config):
        widest = max(layer.inputs, layer.outputs)
        return (
            limits.integer_operands(layer, config, [layer.input_weights, layer.recurrent_weights])
            + limits.columns(config, tiling.vectors(config, widest))
            + limits.product_rows(config, layer.outputs)
        )

    def begin(self, build, layer, source):
        return begin(build, layer, source)

    def step(self, build, layer, state, source):
        step(build, layer, state, source)


def begin(build: Build, layer: IntegerRecurrent, source: Place) -> State:
    """Room for the state, and the chains that set it before the first time step."""
    allocator, name = build.allocator, layer.name
    state = State(
        codes=allocator.vector(Mem.INITIAL_VRF, layer.outputs, f"{name}, hidden codes"),
        cell=allocator.vector(Mem.MULTIPLY_VRF1, layer.outputs, f"{name}, cell"),
        hidden=allocator.vector(Mem.ADDSUB_VRF0, layer.outputs, f"{name}, hidden"),
    )
    codes = float16.mul(layer.initial["hidden"], layer.hidden_quant_scale)
    for what, values, target in (("codes", codes, state.codes), ("cell", layer.initial["cell"], state.cell)):
        start = allocator.constant(Mem.MULTIPLY_VRF0, values, f"{name}, initial {what}")
        build.program.chain(read(start), write(target), rows=layer.outputs)
    return state


def step(build: Build, layer: IntegerRecurrent, state: State, source: Place) -> Place:
    """One time step: the new h in real units.

    u = a_W * S_W + bias, g = a_R * S_R + u, c = f * c + i * j, h = o * tanh(c); the outputs of gates may be quantised.
    """
    config, allocator, name, outputs = build.config, build.allocator, layer.name, layer.outputs
    u = _input_products(build, layer, source)
    scale = allocator.constant(
        Mem.MULTIPLY_VRF0, tiling.stacked(config, layer.recurrent_scale), f"{name}, recurrent scale"
    )
    kept, forgotten = (
        allocator.vector(mem, outputs, f"{name}, {what}")
        for mem, what in ((Mem.MULTIPLY_VRF1, "input gate"), (Mem.ADDSUB_VRF0, "forget gate times cell"))
    )
    out, fresh = (
        allocator.vector(mem, outputs, f"{name}, {what}")
        for mem, what in ((Mem.MULTIPLY_VRF0, "output gate"), (Mem.INITIAL_VRF, "input gate times cell input"))
    )
    gate_words = tiling.words(config, outputs)
    quantised = _Outputs(build, layer) if layer.gate_bits else None
    gates = [gate.name for gate in layer.cell.gates]
    chains = each_gate(
        build,
        gates=range(len(gates)),
        outputs=outputs,
        source=state.codes,
        columns=tiling.vectors(config, outputs),
        out_scale=layer.recurrent_p,
        product=lambda chosen: _product(build, f"{name}, recurrent weights", select(layer.recurrent_weights, chosen)),
    )
    for piece, start, registers in chains:
        word = piece.gate * gate_words + piece.word
        build.program.note(f"gate {gates[piece.gate]}")
        affine = (operate(Op.VV_MUL0, scale.at(word)), operate(Op.VV_ADD1, u.at(word)))
        gate = gates[piece.gate]
        last = {
            "f": (operate(Op.VV_MUL1, state.cell.at(piece.word)), write(forgotten.at(piece.word))),
            "i": (write(kept.at(piece.word)),),
            "o": (write(out.at(piece.word)),),
            "j": (operate(Op.VV_MUL1, kept.at(piece.word)), write(fresh.at(piece.word))),
        }[gate]
        curve = operate(Op.V_TANH1 if gate == "j" else Op.V_SIGM1)
        if quantised:
            build.program.chain(*start, *affine, curve, write(quantised.raw), **registers)
            build.program.chain(*quantised.steps(gate), *last, rows=piece.rows)
        else:
            build.program.chain(*start, *affine, curve, *last, **registers)
    build.program.note("cell")
    to_codes = allocator.constant(Mem.MULTIPLY_VRF1, layer.hidden_quant_scale, f"{name}, hidden scale")
    build.program.chain(
        read(fresh),
        operate(Op.VV_ADD0, forgotten),
        write(state.cell),
        operate(Op.V_TANH0),
        operate(Op.VV_MUL0, out),
        write(state.hidden),
        operate(Op.VV_MUL1, to_codes),
        write(state.codes),
        rows=outputs,
    )
    build.bounds.append(bounds.integer_bound(config, layer.product("recurrent")))
    return state.hidden


class _Outputs:
    """The gates' outputs on their way to fewer bits: y becomes (y + centre) - centre.

    Attributes:
        raw: Room for the output of one gate, or of a piece of it.
    """

    def __init__(self, build: Build, layer: IntegerRecurrent):
        allocator, name = build.allocator, layer.name
        self.raw = allocator.vector(Mem.INITIAL_VRF, layer.outputs, f"{name}, gate output")
        # One of each for the sigmoids and one for tanh.
        of_gates = {gate.name: gate.centre(layer.gate_bits) for gate in layer.cell.gates}
        centres = {
            centre: [
                allocator.constant(mem, np.full(layer.outputs, centre, np.float16).view(np.uint16), f"{name}, centre")
                for mem in (Mem.ADDSUB_VRF0, Mem.ADDSUB_VRF1)
            ]
            for centre in sorted(set(of_gates.values()))
        }
        self._of = {gate: centres[centre] for gate, centre in of_gates.items()}

    def steps(self, gate: str) -> tuple[Instruction, ...]:
        """How the chain begins that reads what lies in `raw`."""
        plus, minus = self._of[gate]
        return read(self.raw), operate(Op.VV_ADD0, plus), operate(Op.VV_A_SUB_B1, minus)


def _input_products(build: Build, layer: IntegerRecurrent, source: Place) -> Place:
    """u of all gates, each at a whole word."""
    config, allocator, name = build.config, build.allocator, layer.name
    weights = tiling.stacked(config, layer.input_weights)
    parts = tiling.parts(config, len(weights))
    source = build.affine(source, layer.inputs, name, tiling.whole_vectors(config, layer.input_quant_scale), None)
    if source == NET and len(parts) > 1:
        source = build.moved(source, layer.inputs, name)
    scale, bias = (
        allocator.constant(mem, tiling.stacked(config, values), f"{name}, {what}")
        for mem, values, what in (
            (Mem.MULTIPLY_VRF0, layer.input_scale, "input scale of gates"),
            (Mem.ADDSUB_VRF1, layer.bias, "bias"),
        )
    )
    u = allocator.vector(Mem.ADDSUB_VRF1, len(weights), f"{name}, u")
    for part in parts:
        word = part.row // config.mfu_lanes
        build.program.chain(
            read(source),
            _product(build, f"{name}, input weights", weights[part.row : part.row + part.rows]),
            operate(Op.VV_MUL0, scale.at(word)),
            operate(Op.VV_ADD1, bias.at(word)),
            write(u.at(word)),
            rows=part.rows,
            columns=tiling.vectors(config, layer.inputs),
            out_scale=layer.input_p,
        )
    build.bounds.append(bounds.integer_bound(config, layer.product("input")))
    return u


def _product(build: Build, name: str, weights: np.ndarray) -> Instruction:
    return Instruction(op=Op.MV_MUL, integer=1, a=build.integer_matrix(name, weights))

