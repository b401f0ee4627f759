"""A quick selection of the zoo: files that PyTorch and scikit-learn write."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("skl2onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
from concord.tests.front.zoo import ZOO, outcome

QUICK = [name for name in ZOO if name.startswith(("torch_", "scikit_")) and not name.endswith("_dynamo")] + [
    "torch_mobile_dynamo", "torch_mlp_dynamo"]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", QUICK)
def test_zoo(name, tmp_path):
    found = outcome(name, tmp_path)
    assert found.expected, found


def test_the_zoo_is_large():
    assert len(ZOO) >= 40
