"""Tiles of vectors on the gates, beside products, writes and loads from Dram that meet them: golden's bits."""

import numpy as np
import pytest
from concord.campaigns.dram_programs import MACHINES, MEMORIES
from concord.sim.machines.host import HardwareMachine
from concord.sim.machines.library import Library
from concord.sim.machines.scoreboard import compare
from concord.sim.stimulus.programs import written_program
from concord.spec.isa.dram import tile_words


def program(config) -> str:
    """Passes that make tiles of vectors instead of older ones, multiply them, and write what was read.

    A tile from Dram, whose words the program writes itself, is loaded beside them.
    """
    n, size = config.native_dim, config.vector_words
    return f"""
    s_wr Rows, {tile_words(config) * config.mfu_lanes}
    v_rd NetQ
    v_wr Dram, 0
    end_chain
    s_wr StrideX, {size}
    loop 4
    s_wr Rows, {n}
    set_iterations {n}
    m_rd_inc InitialVrf, 0 + Base2
    m_wr MatrixRf, 1 + Base1
    end_chain
    set_iterations 3
    m_rd_inc MultiplyVrf1, 0
    m_wr MatrixRf, 2 + Base1, transposed
    end_chain
    set_iterations 1
    m_rd Dram, 0
    m_wr MatrixRf, 10 + Base1
    end_chain
    s_wr Rows, {2 * n}
    v_rd NetQ
    mv_mul 1 + Base1
    v_wr MultiplyVrf1, 0
    v_wr NetQ
    end_chain
    s_wr Rows, {n}
    v_rd InitialVrf, {size}
    mv_mul 10 + Base1
    vv_add0 0
    v_wr InitialVrf, {2 * size}
    v_wr NetQ
    end_chain
    s_add Base1, 1
    s_add Base2, {size}
    end_loop
    end"""


@pytest.mark.parametrize("name", ["tiny", "wide"])
@pytest.mark.parametrize("memory", MEMORIES, ids=lambda memory: f"latency {memory.latency}")
def test_tiles_of_vectors_meet_products_writes_and_loads(name, memory):
    config = MACHINES[name]
    with HardwareMachine(Library(config, seed=1, memory=memory)) as nnp:
        for seed in range(6):
            case = written_program(config, np.random.default_rng(seed), program(config), integer=False)
            assert case.violation is None
            assert not compare(case, nnp, late=seed % 2 == 1)
