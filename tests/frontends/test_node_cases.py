"""ONNX's own node cases: a quick selection; `nox -s node_cases` takes all of them."""

import pytest

pytest.importorskip("onnxruntime")
from concord.campaigns.node_cases import cases, outcome, write

#: Cases with an input of three axes that is no sequence, whole numbers, a recurrent layer that onnxruntime lacks.
CHOSEN = ("test_relu", "test_hardswish", "test_neg", "test_softmax_axis_1", "test_argmax_default_axis_random",
          "test_transpose_all_permutations_0", "test_add", "test_add_uint8", "test_div_int32_trunc", "test_div_int8",
          "test_unsqueeze_axis_1", "test_reshape_one_dim", "test_less_bcast", "test_clip_default_min",
          "test_lstm_batchwise", "test_lstm_with_peepholes", "test_maxpool_1d_default")


@pytest.mark.parametrize("constants", [False, True], ids=["inputs", "constants"])
@pytest.mark.parametrize("name", [*CHOSEN, *cases()[::23]])
def test_a_case_agrees_or_is_refused(name, constants, tmp_path):
    path = tmp_path / "case.onnx"
    if write(name, path, constants):
        found = outcome(name, path)
        assert found.expected, found
        assert found.difference == 0.0 or not found.refused


def test_all_cases_are_there():
    assert len(cases()) > 1700
    assert set(CHOSEN) <= set(cases())
