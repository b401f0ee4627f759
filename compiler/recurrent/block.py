"""Recurrent layers in block floating point: [W R] of all gates is one tall product, popped gate by gate."""

from dataclasses import dataclass

import numpy as np
from concord.compiler.lib import bounds, limits, tiling
from concord.compiler.lib.allocation import Place
from concord.compiler.lib.build import Build
from concord.compiler.lib.layer_compiler import LayerCompiler
from concord.compiler.lib.program import operate, read, write
from concord.compiler.recurrent.gates import each_gate, pieces, select
from concord.model.layers.recurrent import BlockRecurrent
from concord.spec.isa import Instruction, Mem, Op


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """What a layer keeps from one time step to the next.

    Attributes:
        operand: x, and h behind it: the operand of the product.
        hidden:  h.
        cell:    c.
        moves:   x lies elsewhere, and each step copies it.
    """

    operand: Place
    hidden: Place
    cell: Place
    moves: bool


class BlockRecurrentCompiler(LayerCompiler):
    """A recurrent layer in block floating point."""

    from_queue = True

    def problems(self, layer, config):
        columns = tiling.vectors(config, layer.inputs) + tiling.vectors(config, layer.outputs)
        own = limits.block_operands(layer, config)
        return own + limits.columns(config, columns) + limits.product_rows(config, layer.outputs)

    def begin(self, build, layer, source):
        return begin(build, layer, source)

    def step(self, build, layer, state, source):
        step(build, layer, state, source)


def begin(build: Build, layer: BlockRecurrent, source: Place) -> State:
    """Room for the state, and the chains that set it before the first time step."""
    allocator, name = build.allocator, layer.name
    # The hidden vector of the layer before is this one's x where it lies; h only has to follow.
    moves = source.mem != Mem.INITIAL_VRF or source.address + source.words != allocator.used(Mem.INITIAL_VRF)
    operand = allocator.vector(Mem.INITIAL_VRF, layer.inputs, f"{name}, input") if moves else source
    state = State(
        operand=operand,
        moves=moves,
        hidden=allocator.vector(Mem.INITIAL_VRF, layer.outputs, f"{name}, hidden"),
        cell=allocator.vector(Mem.MULTIPLY_VRF0, layer.outputs, f"{name}, cell"),
    )
    for what, values, target in (
        ("hidden", layer.initial["hidden"], state.hidden),
        ("cell", layer.initial["cell"], state.cell),
    ):
        start = allocator.constant(Mem.MULTIPLY_VRF1, values, f"{name}, initial {what}")
        build.program.chain(read(start), write(target), rows=layer.outputs)
    return state


def step(build: Build, layer: BlockRecurrent, state: State, source: Place) -> Place:
    """One time step: the new h. g = [W U] @ [x h] + bias, c = f * c + i * j, h = o * tanh(c)."""
    config, allocator, name, outputs = build.config, build.allocator, layer.name, layer.outputs
    if state.moves:
        build.moved(source, layer.inputs, name, target=state.operand)
    mantissas, exponents = _joined(build, layer)
    bias = allocator.constant(Mem.ADDSUB_VRF0, tiling.stacked(config, layer.bias), f"{name}, bias")
    forgotten, kept, out = (
        allocator.vector(mem, outputs, f"{name}, {what}")
        for mem, what in (
            (Mem.ADDSUB_VRF1, "forget gate times cell"),
            (Mem.MULTIPLY_VRF0, "input gate"),
            (Mem.MULTIPLY_VRF1, "output gate"),
        )
    )
    # The last gate's chain writes h; where it takes several products, those behind the first still need the old one.
    gates = [gate.name for gate in layer.cell.gates]
    late = len(pieces(config, range(len(gates)), outputs)) > len(gates)
    fresh = allocator.vector(Mem.ADDSUB_VRF0, outputs, f"{name}, new hidden") if late else state.hidden
    gate_words = tiling.words(config, outputs)
    chains = each_gate(
        build,
        gates=range(len(gates)),
        outputs=outputs,
        source=state.operand,
        columns=exponents.shape[-1],
        out_scale=None,
        product=lambda chosen: Instruction(
            op=Op.MV_MUL,
            a=build.block_matrix(
                f"{name}, weights", select(mantissas, chosen), select(exponents, chosen, config.weights.e_min)
            ),
        ),
    )
    for piece, start, registers in chains:
        build.program.note(f"gate {gates[piece.gate]}")
        first = operate(Op.VV_ADD0, bias.at(piece.gate * gate_words + piece.word))
        cell, word = state.cell.at(piece.word), piece.word
        last = {
            "f": (operate(Op.V_SIGM0), operate(Op.VV_MUL0, cell), write(forgotten.at(word))),
            "i": (operate(Op.V_SIGM0), write(kept.at(word))),
            "o": (operate(Op.V_SIGM0), write(out.at(word))),
            "j": (
                operate(Op.V_TANH0),
                operate(Op.VV_MUL0, kept.at(word)),
                operate(Op.VV_ADD1, forgotten.at(word)),
                write(cell),
                operate(Op.V_TANH1),
                operate(Op.VV_MUL1, out.at(word)),
                write(fresh.at(word)),
            ),
        }[gates[piece.gate]]
        build.program.chain(*start, first, *last, **registers)
    if late:
        build.program.chain(read(fresh), write(state.hidden), rows=outputs)
    tall = (gates.reshape(-1, gates.shape[-1]) for gates in (mantissas, exponents))
    build.bounds.append(bounds.block_bound(config, name, *tall))
    return state.hidden


def _joined(build: Build, layer: BlockRecurrent) -> tuple[np.ndarray, np.ndarray]:
    """[W U] as mantissas[4, outputs, columns], both parts padded to whole native vectors, and exponents."""
    mantissas = [
        tiling.padded(matrix, tiling.vectors(build.config, matrix.shape[2]) * build.config.native_dim, 2)
        for matrix in (layer.input_mantissas, layer.recurrent_mantissas)
    ]
    exponents = [layer.input_exponents, layer.recurrent_exponents]
    return np.concatenate(mantissas, axis=2), np.concatenate(exponents, axis=2)
