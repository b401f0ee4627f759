"""Timing of the machine: independent chains overlap, and a dependent step costs a bounded time."""

import numpy as np
import pytest
from concord.golden.host.messages import input_message, program_message
from concord.sim.machines.host import machine
from concord.spec.host.registers import Counter
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset
from concord.tests.machines import chain_latency

CONFIG = preset("ulx3s")

PRODUCT = """
s_wr Rows, 1024
s_wr Columns, 8
v_rd InitialVrf, 0
mv_mul 0
v_wr InitialVrf, 512
end_chain
"""
POINTWISE = """
s_wr Rows, 1024
v_rd InitialVrf, 64
vv_add0 0
v_tanh1
v_wr AddSubVrf1, 0
end_chain
"""
COPY = """
s_wr Rows, 1024
v_rd MultiplyVrf1, 0
v_wr MultiplyVrf0, 0
end_chain
"""
PUSH = """
s_wr Rows, 1024
s_wr Columns, 8
v_rd InitialVrf, 0
mv_mul 0
v_wr MvmQ
end_chain
"""

# [W U] is one tall product, whose gates are popped in the order f, i, o, j; x comes from NetQ and h goes to NetQ.
LSTM = """
s_wr Columns, 2
loop {steps}
s_wr Rows, 32
v_rd NetQ
v_wr InitialVrf, 0
end_chain
s_wr Rows, 128
v_rd InitialVrf, 0
mv_mul 0
v_wr MvmQ
end_chain
s_wr Rows, 32
v_rd MvmQ
vv_add0 0
v_sigm0
vv_mul0 0
v_wr AddSubVrf1, 0
end_chain
v_rd MvmQ
vv_add0 8
v_sigm0
v_wr MultiplyVrf0, 8
end_chain
v_rd MvmQ
vv_add0 16
v_sigm0
v_wr MultiplyVrf1, 0
end_chain
v_rd MvmQ
vv_add0 24
v_tanh0
vv_mul0 8
vv_add1 0
v_wr MultiplyVrf0, 0
v_tanh1
vv_mul1 0
v_wr InitialVrf, 8
v_wr NetQ
end_chain
end_loop
"""


def cycles(text, words=0):
    """Number of cycles of a program whose input already waits in NetQ."""
    with machine("library", CONFIG) as nnp:
        nnp.send(program_message(CONFIG, assemble(text + "end")))
        if words:
            nnp.send(input_message(CONFIG, np.zeros((words, CONFIG.mfu_lanes), np.uint16)))
        nnp.start()
        nnp.run(1_000_000)
        assert nnp.error() == (Error.NONE, 0)
        return nnp.counter(Counter.CYCLES)


@pytest.mark.parametrize(("first", "second"), [(PUSH, POINTWISE), (PUSH, COPY), (POINTWISE, COPY)])
def test_independent_chains_overlap(first, second):
    """Two chains together take as long as the longer one, plus the decoding of the other."""
    alone = [cycles(first), cycles(second)]
    assert cycles(first + second) <= max(alone) + 40


def test_products_follow_each_other_without_a_gap():
    """The engines compute a product while the results of the one before are converted."""
    beats = 32 * 8
    assert cycles(PRODUCT * 6) - cycles(PRODUCT * 5) <= beats + 2


def test_dependent_lstm_step():
    """At N/M = 8, a step takes its 32 word slots, the latency of a product of words, and at most 18 more cycles."""
    assert CONFIG.vector_words == 8
    steps = [cycles(LSTM.format(steps=n), n * CONFIG.vector_words) for n in (10, 30)]
    assert (steps[1] - steps[0]) / 20 <= 4 * CONFIG.vector_words + chain_latency(CONFIG) + 18
