"""The data flow of small programs."""

import numpy as np
from concord.spec.isa.instructions import Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.twin.bare_firmware import bare
from concord.twin.flow.flow import Origin
from concord.twin.flow.flow_of import flow_of

TINY = preset("tiny")
SUM = """
    s_wr Rows, 4
    v_rd NetQ
    v_wr AddSubVrf0, 3
    end_chain
    loop 2
    v_rd NetQ
    vv_add0 3
    v_wr AddSubVrf0, 3
    v_wr NetQ
    end_chain
    end_loop
    end
"""


def test_a_value_is_followed_through_a_memory_and_a_loop():
    flow = flow_of(bare(TINY, SUM, loop=4), steps=3)
    words = TINY.words_of(4)
    first, *passes = flow.steps
    assert [step.passes for step in flow.steps] == [(), (0,), (1,), (2,)]
    source = [i for i, value in enumerate(flow.values) if value.origin == Origin.INPUT]
    assert flow.values[source[0]].count == 4 * words
    held = first.makes[1]
    for number, step in enumerate(passes, 1):
        assert step.chain.instructions[1].op == Op.VV_ADD0
        np.testing.assert_array_equal(step.reads[0].value, np.full((words, 1), source[0]))
        np.testing.assert_array_equal(step.reads[0].item[:, 0], number * words + np.arange(words))
        np.testing.assert_array_equal(step.reads[1].value, np.full(words, held))
        np.testing.assert_array_equal(step.reads[1].item, np.arange(words))
        held = step.makes[2]
    assert flow.final[Mem.ADDSUB_VRF0].value[3] == held
    assert flow.values[held].step == 3
    assert flow.values[flow.final[Mem.ADDSUB_VRF0].value[0]].origin == Origin.IMAGE
    assert flow.outputs.value.tolist() == [step.makes[3] for step in passes for _ in range(words)]


def test_a_chain_that_reads_its_own_words_has_a_step_for_each():
    flow = flow_of(bare(TINY, f"""
        s_wr Rows, {TINY.native_dim}
        v_rd InitialVrf, 0
        v_wr InitialVrf, 1
        end_chain
        end
    """))
    words = TINY.vector_words
    assert [step.span for step in flow.steps] == [(k, k + 1) for k in range(words)]
    for before, step in zip(flow.steps, flow.steps[1:], strict=False):
        assert step.reads[0].value.tolist() == [[before.makes[1]]]


def test_products_read_tiles_that_the_program_loads():
    flow = flow_of(bare(TINY, """
        m_rd NetQ
        m_wr MatrixRf, 1
        end_chain
        v_rd NetQ
        mv_mul 1
        v_wr MvmQ
        end_chain
        v_rd MvmQ
        v_relu0
        v_wr VectorRf, 2
        end_chain
        v_rd VectorRf, 2
        mv_mul 2
        v_wr NetQ
        end_chain
        end
    """))
    load, product, rest, last = flow.steps
    assert load.reads[0].item.shape == (1, TINY.native_dim * TINY.vector_words)
    assert product.tiles.value.tolist() == [[load.makes[1]]]
    assert product.reads[0].item[0, 0] == TINY.native_dim * TINY.vector_words
    assert rest.reads[0].value[:, 0].tolist() == [product.makes[2]] * TINY.vector_words
    assert last.reads[0].value.tolist() == [[rest.makes[2]]]
    assert last.tiles.item.tolist() == [[2]]
    assert flow.values[rest.makes[2]].count == 1
