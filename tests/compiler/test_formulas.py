"""Random formulas of cells: whatever schedule and layout make of them, the bits are those of golden arithmetic."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.cells.formula_chains import schedule
from concord.compiler.cells.formula_trace import BlockTracer, IntegerTracer
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.net import network
from concord.net.cells.cell import Cell, Gate, Operations
from concord.net.cells.registry import CELLS
from concord.sim.machines.host import machine
from concord.spec.machine.config import PRESETS
from concord.spec.numbers.activation import Activation

ROOM = {"initial_vrf": 512, "addsub_vrf": 512, "multiply_vrf": 1024, "matrix_tiles": 1024, "instructions": 2048}
LIMITS = ({}, {"accumulator_rows": 8})
#: Chains of a time step in integers, after the one for u = W x, and in block floating point.
CHAINS = {"lstm": (5, 4), "lstm-peephole": (8, 8), "gru": (5, 5), "gru-reset-before": (5, 4), "rnn": (1, 1),
          "rnn-relu": (1, 1)}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_a_time_step(name):
    tracers = IntegerTracer(CELLS[name]), BlockTracer(CELLS[name])
    assert tuple(len(schedule(tracer)) for tracer in tracers) == CHAINS[name]


def random_cell(seed: int) -> Cell:
    """A cell of one to three gates, states and vectors, whose formula is drawn anew, but equal, at each call."""
    rng = np.random.default_rng(seed)
    curves = rng.choice([Activation.SIGMOID, Activation.TANH], rng.integers(1, 4))
    gates = tuple(Gate(name=f"g{k}", curve=Activation(curve)) for k, curve in enumerate(curves))
    states = tuple(f"s{k}" for k in range(rng.integers(1, 4)))
    vectors = tuple(f"v{k}" for k in range(rng.integers(3)))
    formula = rng.integers(1 << 30)

    def step(ops: Operations, *old):
        rng = np.random.default_rng(formula)
        values, outputs = [*old, *map(ops.vector, vectors)], []
        for gate in gates:
            kind = rng.integers(3)
            if kind == 0:
                seen = ops.mul(ops.recurrent_product(gate.name, old[0]), values[rng.integers(len(values))])
                value = ops.add(seen, ops.input_product(gate.name))
            else:
                value = ops.preactivation(gate.name, outputs[-1] if kind == 1 and outputs else old[0])
            outputs.append(ops.output(gate.name, value))
        values += outputs
        for _ in range(rng.integers(1, 8)):
            a, b = (values[index] for index in rng.integers(len(values), size=2))
            kinds = ops.add, ops.sub, ops.mul, lambda a, b: ops.curve(Activation.TANH, a)
            values.append(kinds[rng.integers(4)](a, b))
        new = [ops.curve(Activation.TANH, value) for value in values[-len(states):]]
        for output in outputs:
            new[0] = (ops.mul if rng.integers(2) else ops.sub)(output, new[0])
        return tuple(new)

    return Cell(name="random", title="random", gates=gates, step=step, states=states, vectors=vectors)


@pytest.mark.parametrize("block", [False, True])
@pytest.mark.parametrize("first", range(0, 32, 8))
def test_random_formulas(first, block):
    refused = 0
    for seed in range(first, first + 8):
        for limits in LIMITS:
            config, rng = replace(PRESETS["tiny"], **ROOM | limits), np.random.default_rng(seed)
            model = networks.recurrent(rng, config, [5, 11, 3], block=[block, block], cell=random_cell(seed))
            try:
                firmware = compile_network(model, config).firmware
            except ValueError as error:
                if "write the cell's formula in another order" not in str(error):
                    raise
                refused += 1
                continue
            (sample,) = networks.inputs(rng, 1, 3, 5)
            wanted = network.forward(model, sample[None])[-1].outputs[0]
            np.testing.assert_array_equal(Session(machine("golden", config), firmware).infer(sample), wanted)
    assert refused <= len(LIMITS)  # one formula
