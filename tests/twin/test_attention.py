"""Twins of networks with attention: one function that a reader knows, with golden's bits."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.twin_programs import differences, firmware_of
from concord.campaigns.twin_random import results
from concord.compiler.cascade import PartCompiler
from concord.compiler.network import compile_network
from concord.sim.stimulus.programs import written_program
from concord.spec.isa.instructions import Op, decode
from concord.spec.machine.config import preset
from concord.tests.compiler.test_attention import CASES, TINY, VISION, attention, block, model_of
from concord.tests.twin import test_joined, test_unquantized
from concord.tests.twin.recovered import agree, golden
from concord.twin.flow.flow_of import built, flow_of
from concord.twin.lib.script import Routine, Script
from concord.twin.recovery.nodes.elements import Unrecognised
from concord.twin.recovery.recover import recover, without_hints
from concord.twin.source.frameworks import Framework, installed
from concord.twin.source.writer import write_twin
from concord.twin.weights import trainable
from concord.verification.twins import TwinSource, differing

DRAM = replace(preset("tiny"), dram_words=1000, dram_bus=8)  # N = 8, M = 2
#: Heads that begin in the middle of native vectors, so that elements of other heads are zeros of their blocks.
ACROSS = "heads across native vectors"


def samples_of(model, count: int = 3) -> np.ndarray:
    return networks.inputs(np.random.default_rng(1), count, model.inputs)


def functions(routine: Routine) -> list[str]:
    return [call.function for call in routine.body]


def attentions(script: Script) -> list[Routine]:
    return [routine for routine in script.routines if routine.title.startswith("Attention of ")]


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_one_function_for_all_heads(name, blocks):
    model = model_of(attention(**CASES[name]), VISION, blocks=blocks)
    (routine,) = attentions(agree(VISION, model, samples_of(model)))
    assert routine.parameters == ("queries", "keys", "values")
    assert functions(routine).count("matmul") == 2
    assert routine.title.startswith(f"Attention of {CASES[name]['heads']} head")
    if name != ACROSS:
        assert "take" not in functions(routine)


@pytest.mark.parametrize(("heads", "size"), [(1, 3), (3, 2), (2, 6)])
def test_sums_that_need_whole_numbers(heads, size):
    model = model_of(attention(heads, size, masks=1), TINY)
    (routine,) = attentions(agree(TINY, model, samples_of(model)))
    assert functions(routine).count("accumulated") == 2


@pytest.mark.parametrize("masks", [1, 2])
def test_masks_are_stored_once_and_not_trained(masks):
    model = model_of(attention(2, 8, masks=masks), VISION)
    firmware = compile_network(model, VISION).firmware
    script = recover(firmware)
    mask = script.tensors["a.mask"]
    assert mask.values.shape == ((7, 7) if masks == 1 else (2, 7, 7))
    trained = trainable(script, firmware)
    assert {"q.weights", "out.weights"} <= trained.keys()
    assert "a.mask" not in trained


def test_a_mask_that_is_nothing_for_one_head():
    model = model_of(attention(2, 8, masks=2), VISION)
    layer = model.node("a")
    other = replace(layer, mask=layer.mask * np.array([1, 0], np.uint16)[:, None, None])
    model = replace(model, layers=tuple(other if each is layer else each for each in model.layers))
    (routine,) = attentions(agree(VISION, model, samples_of(model)))
    assert functions(routine).count("matmul") == 2


@pytest.mark.parametrize("framework", Framework)
def test_frameworks(framework, tmp_path):
    if not installed(framework):
        pytest.skip(f"{framework} is not installed")
    model = model_of(block(), VISION)
    firmware, samples = compile_network(model, VISION).firmware, samples_of(model)
    twin = TwinSource(write_twin(recover(firmware), framework, tmp_path, "block"), framework)
    wanted = golden(firmware, samples)
    assert not differing(wanted, twin.infer(samples.reshape(-1, *firmware.image)).reshape(wanted.shape))


@pytest.mark.parametrize("name", ["heads in one native vector", ACROSS])
def test_without_quantisers(name):
    model = test_unquantized.with_reals(np.random.default_rng(1), model_of(attention(**CASES[name]), VISION))
    firmware = test_unquantized.carrying(model, VISION)
    assert test_unquantized.error(firmware, samples_of(model)) < test_unquantized.NONE
    assert test_unquantized.error(without_hints(firmware), samples_of(model)) < test_unquantized.NONE


def test_beside_tiles_from_dram():
    model = model_of(block(), VISION)
    small = replace(VISION, matrix_tiles=compile_network(model, VISION).usage["MatrixRf"][0] - 10)
    script = agree(small, model, samples_of(model))
    assert [routine.name for routine in attentions(script)] == ["heads"]


@pytest.mark.parametrize("cut", ["norm", "heads"])
def test_on_two_machines(cut):
    model = model_of(block(), VISION)
    layers = ["offsets", "norm", "q", "k", "v", "heads", "sum", "mean", "scores"]
    test_joined.check(PartCompiler(model, [VISION] * 2).compiled([cut]).cascade, samples_of(model, 2), layers)


def written(text: str, *, integer: bool = False):
    return written_program(DRAM, np.random.default_rng(3), text, integer=integer)


BUILD = """
    s_wr Rows, {rows}
    set_iterations {count}, {vectors}
    s_wr StrideX, 4
    s_wr StrideY, 8
    m_rd_inc InitialVrf, {first}
    m_wr MatrixRf, 1{mode}
    end_chain
"""
PRODUCT = """
    s_wr Rows, {rows}
    set_iterations 1
    v_rd {source}
    mv_mul 1{mode}
    v_wr NetQ
    end_chain
    end
"""


def program(rows: int, first: int, tiles: int, mode: str = "", transposed: str = "", source: str = "NetQ") -> str:
    """Tiles of five vectors each, and a product with the first two, or the first one."""
    build = BUILD.format(rows=rows, first=first, count=5 * tiles, vectors=5, mode=mode + transposed)
    return build + PRODUCT.format(rows=14 if source == "NetQ" else 5, mode=mode, source=source)


@pytest.mark.parametrize("mode", ["", ", integer"])
@pytest.mark.parametrize("transposed", ["", ", transposed"])
@pytest.mark.parametrize(("rows", "first"), [(8, 4), (3, 1), (5, 5)])
def test_tiles_of_vectors_word_by_word(rows, first, transposed, mode):
    case = written(program(rows, first, 2, mode, transposed), integer=bool(mode))
    assert not differences(case, 3, written=False)


@pytest.mark.parametrize(("text", "reason"), [
    (program(8, 0, 1), "beside stored tiles"), (program(8, 0, 2, ", integer"), "makes tiles of integers")])
def test_other_products_have_no_form(text, reason):
    case = written(text, integer="integer" in text)
    with pytest.raises(Unrecognised, match=reason):
        recover(replace(firmware_of(case), outputs=14))
    assert not differences(case, 3, written=False)


def test_a_product_that_is_no_attention():
    """Vectors times themselves: a product of computed tensors with nothing around it."""
    case = written("v_rd NetQ\nv_relu0\nv_wr InitialVrf, 0\nend_chain\n" + program(8, 0, 1, source="InitialVrf, 0"))
    firmware = replace(firmware_of(case), outputs=5)
    samples = case.pool[:case.taken].reshape(1, -1)
    script = recover(firmware)
    np.testing.assert_array_equal(results(script, samples), golden(firmware, samples))


def test_what_a_tile_holds():
    firmware = firmware_of(written(f"{BUILD.format(rows=3, first=1, count=2, vectors=2, mode='')}end"))
    (chain,) = (step.chain for step in flow_of(firmware).steps)
    assert decode(int(firmware.instruction_words[chain.address])).op == Op.M_RD
    (tile,) = built(DRAM, chain)
    assert tile[0].tolist() == [-1, -1, 0, 1, 2, -1, -1, -1]
    assert tile[1].tolist() == [-1, -1, 4, 5, 6, -1, -1, -1]
    assert (tile[2:] == -1).all()
