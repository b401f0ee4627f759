"""ONNX's own node cases: a quick selection; `nox -s node_cases` takes all of them."""

import pytest

pytest.importorskip("onnxruntime")
from concord.campaigns.node_cases import CaseOutcome, cases, outcome, write

#: Cases that become networks, their inputs but the first one constant: one with an input of three axes that is no
#: sequence, a recurrent layer that onnxruntime lacks.
AGREE = ("test_relu", "test_hardswish", "test_neg", "test_clip_default_min", "test_lstm_batchwise",
         "test_lstm_with_peepholes", "test_maxpool_1d_default", "test_basic_conv_without_padding")
#: Cases that are refused in the same form, whole numbers among them, and a part of the sentence that refuses each.
REFUSED = {
    "test_softmax_axis_1": "is left to the host", "test_argmax_default_axis_random": "is left to the host",
    "test_less_bcast": "is left to the host", "test_transpose_all_permutations_0": "only moves its input",
    "test_unsqueeze_axis_1": "only moves its input", "test_reshape_one_dim": "only moves its input",
    "test_add": "use the same numbers for all samples", "test_add_uint8": "whole numbers (uint8), which wrap around",
    "test_div_int32_trunc": "divided without a remainder", "test_div_int8": "divided without a remainder"}


def with_constants(name: str, path) -> CaseOutcome:
    """What becomes of a case whose inputs but the first one are constant."""
    assert write(name, path, constants=True) or write(name, path, constants=False)
    return outcome(name, path)


@pytest.mark.parametrize("name", AGREE)
def test_a_case_agrees(name, tmp_path):
    found = with_constants(name, tmp_path / "case.onnx")
    assert not found.refused
    assert found.expected, found


@pytest.mark.parametrize("name", REFUSED)
def test_a_case_is_refused(name, tmp_path):
    assert REFUSED[name] in with_constants(name, tmp_path / "case.onnx").refused


@pytest.mark.parametrize("name", ["test_add", "test_reshape_one_dim", "test_clip_default_min", "test_lstm_batchwise"])
def test_several_inputs_are_refused(name, tmp_path):
    path = tmp_path / "case.onnx"
    assert write(name, path, constants=False)
    assert "export it with one input" in outcome(name, path).refused


@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
def test_every_case_agrees_or_is_refused(constants, tmp_path):
    path = tmp_path / "case.onnx"
    found = {name: outcome(name, path) for name in cases()[::23] if write(name, path, constants)}
    assert {name: each for name, each in found.items() if not each.expected} == {}
    assert any(not each.refused for each in found.values())


def test_all_cases_are_there():
    assert len(cases()) > 1700
    assert {*AGREE, *REFUSED} <= set(cases())
