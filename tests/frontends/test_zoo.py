"""A quick selection of the zoo: files that PyTorch and scikit-learn write."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("skl2onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
from concord.campaigns.zoo.twins import twins
from concord.campaigns.zoo.zoo import ZOO, outcome

QUICK = [name for name in ZOO if name.startswith(("torch_", "scikit_")) and not name.endswith("_dynamo")] + [
    "torch_mobile_dynamo", "torch_mlp_dynamo", "torch_encoder_dynamo", "torch_multihead_dynamo", "torch_vision_dynamo"]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", QUICK)
def test_zoo(name, tmp_path):
    found = outcome(name, tmp_path)
    assert found.expected, found


@pytest.mark.filterwarnings("default")
def test_twins_of_the_zoo(tmp_path):
    """In integers and in block floating point, with the names of the firmware and without them."""
    made = list(twins(outcome("scikit_perceptron", tmp_path).network))
    assert [each.text.partition(":")[0] for each in made] == ["integer", "bfp"]
    assert all(each.equal and each.text.count("layers, 0 bits") == 2 for each in made), made


def test_the_zoo_is_large():
    assert len(ZOO) >= 40
