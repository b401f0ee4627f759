"""Programs that use VectorRf, windows and pooling do the same on golden and on the Verilated library."""

import numpy as np
import pytest
from concord.golden.host.messages import packed_message, program_message
from concord.sim.machines.host import machine
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.programs import written_program
from concord.sim.units import CONFIGURATIONS
from concord.spec.host.registers import Counter
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset
from concord.tests.machines import chain_latency

#: An image of 6 x 4 pixels, an entry each.
IMAGE = """
s_wr Rows, {n}
set_iterations 24
v_rd NetQ
v_wr_inc VectorRf, 0{mode}
end_chain
"""
WINDOW = """
s_wr WindowX, 3
s_wr WindowY, 2
s_wr WindowPitch, 6
s_wr StrideX, 1
s_wr StrideY, 6
set_iterations 12, 4
"""
PROGRAMS = {
    "write": IMAGE,
    "short entries": """
s_wr Rows, {short}
set_iterations 4
s_wr StrideVec, 3
s_wr SkipVec, 1
v_rd NetQ
v_relu0
v_wr InitialVrf, 3
v_wr_inc VectorRf, 1{written}
end_chain
""",
    "numbers": """
s_wr Rows, {short}
v_rd VectorRf, 3{written}
v_wr NetQ
end_chain
v_rd NetQ
v_wr VectorRf, 5{written}
v_wr NetQ
end_chain
v_rd VectorRf, 5{written}
v_wr NetQ
end_chain
""",
    "product": IMAGE + """
s_wr Rows, {short}
s_wr Columns, 7
s_wr StrideX, 7
set_iterations 3
v_rd_inc VectorRf, 1
mv_mul 2{mode}
v_wr NetQ
end_chain
""",
    "convolution": IMAGE + WINDOW + """
s_wr Rows, {short}
s_wr Columns, 6
v_rd_inc VectorRf, 0
mv_mul 0{mode}, window
v_relu0
v_wr NetQ
end_chain
""",
    "depthwise": IMAGE + WINDOW + """
s_wr Rows, {short}
s_wr Columns, 6
s_wr WindowGroup, 1
set_iterations 9, 3
v_rd_inc VectorRf, 0
mv_mul 0{mode}, window
v_wr NetQ
end_chain
""",
    "layers": IMAGE + """
loop 3
set_iterations 12
s_wr Columns, 2
s_wr StrideX, 1
v_rd_inc VectorRf, 0
mv_mul 0{mode}
v_relu0
v_wr_inc VectorRf, 14{mode}
end_chain
v_rd_inc VectorRf, 14
mv_mul 4{mode}
v_wr_inc VectorRf, 1{mode}
v_wr NetQ
end_chain
end_loop
""",
    "pooled words": """
s_wr Rows, {short}
s_wr StrideX, {words}
s_wr StrideY, {words}
s_wr WindowX, 2
s_wr WindowY, 3
s_wr WindowPitch, 3
set_iterations 4, 2
v_rd_inc InitialVrf, 2
v_pool_max
v_wr NetQ
end_chain
""",
    "pooled entries": IMAGE + WINDOW + """
s_wr Rows, {n}
set_iterations 4
v_rd_inc VectorRf, 0{mode}
v_pool_max
v_relu0
v_wr NetQ
v_wr MultiplyVrf1, 0
v_wr_inc VectorRf, 18{mode}
end_chain
set_iterations 1
v_rd VectorRf, 18{mode}
v_pool_max
v_wr NetQ
end_chain
""",
}


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def hardware(request):
    """The Verilated machine of one configuration."""
    with machine("library", preset(request.param), seed=1, gap=0.1, stall=0.1) as nnp:
        yield nnp


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(hardware, name, integer):
    """Outputs, memories, events and status are golden's, twice in a row."""
    config, mode = hardware.config, ", integer" * integer
    text = PROGRAMS[name].format(n=config.native_dim, short=2 * config.native_dim - 1, words=config.vector_words,
                                 mode=mode, written=mode + ", unsigned" * integer)
    rng = np.random.default_rng([integer, *name.encode()])
    for late in (False, True):
        case = written_program(config, rng, text + "end\n", integer=integer)
        assert case.error == Error.NONE, case.violation
        assert compare(case, hardware, late=late) is None


def times(text):
    """Time counters and events of a program that waits for no input, on `tiny` with tiles of ones."""
    config = preset("tiny")
    ones = np.ones((config.matrix_tiles, config.native_dim, config.native_dim), int)
    with machine("library", config) as nnp:
        nnp.send(packed_message(config, ones, np.zeros(ones.shape[:2], int)))
        nnp.send(program_message(config, assemble(text + "end")))
        nnp.start()
        nnp.run(100_000)
        assert nnp.error() == (Error.NONE, 0)
        return nnp.counters()


@pytest.mark.parametrize(("registers", "chain", "rate"), [
    ("s_wr Rows, 48\ns_wr Columns, 5\n", "v_rd VectorRf, 0\nmv_mul 0\nv_wr InitialVrf, 0\n", Counter.BEATS),
    ("s_wr Rows, 8\ns_wr Columns, 5\ns_wr WindowX, 5\ns_wr WindowStep, 3\nset_iterations 8\ns_wr StrideX, 1\n",
     "v_rd_inc VectorRf, 0\nmv_mul 0, window\nv_wr VectorRf, 40\n", Counter.BEATS),
    ("s_wr Rows, 64\n", "v_rd VectorRf, 0\nv_wr AddSubVrf0, 0\n", Counter.READ_VECTOR_RF),
    ("s_wr Rows, 32\ns_wr WindowX, 2\ns_wr WindowY, 2\n", "v_rd VectorRf, 0\nv_pool_max\nv_wr AddSubVrf0, 0\n",
     Counter.READ_VECTOR_RF),
    ("s_wr Rows, 32\ns_wr WindowX, 2\ns_wr WindowY, 2\n", "v_rd InitialVrf, 0\nv_pool_max\nv_wr VectorRf, 0\n",
     Counter.READ_INITIAL_VRF),
    ("s_wr Rows, 64\n", "v_rd InitialVrf, 0\nv_wr VectorRf, 0\n", Counter.READ_INITIAL_VRF)])
def test_rates(registers, chain, rate):
    """Beats of products from VectorRf, gathered words and words for VectorRf come one a cycle, without a gap."""
    chain += "end_chain\n"
    fewer, more = (times(registers + chain * count) for count in (5, 6))
    assert more[Counter.CYCLES] - fewer[Counter.CYCLES] == more[rate] - fewer[rate]


def test_a_layer_starts_before_the_layer_that_it_reads_has_ended():
    """Of two layers of 16 pixels, the second reads what the first writes: it costs no more than its own words.

    These take less time than its first pixel takes from end to end, which is what it costs then.
    """
    layer = "v_rd_inc VectorRf, {}\nmv_mul 0\nv_wr_inc VectorRf, {}\nend_chain\n"
    texts = [layer.format(0, 16), layer.format(0, 16) + layer.format(16, 32)]
    one, two = (times("s_wr Rows, 8\ns_wr StrideX, 1\nset_iterations 16\n" + text) for text in texts)
    words, latency = two[Counter.MFU_BUSY] - one[Counter.MFU_BUSY], chain_latency(preset("tiny"))
    assert two[Counter.CYCLES] - one[Counter.CYCLES] <= max(words, latency)
