"""`nnp verify` runs one sample of each shipped network under cocotb, with bus models."""

import json

import pytest
from concord.datasets.dataset import DATA
from concord.nnp.main import app
from typer.testing import CliRunner

MODELS = sorted((DATA / "models").glob("*.safetensors"))


@pytest.mark.parametrize("model", MODELS, ids=lambda path: path.stem)
def test_one_sample_through_cocotb(model, tmp_path):
    words = ["verify", str(model), "--machine", "cocotb", "--samples", "1", "--jobs", "1", "--report", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    (record,) = json.loads((tmp_path / "verify.json").read_text())
    assert record["equal"]
    assert record["machine"] == "cocotb"
    assert record["mismatching_bits"] == record["golden_network_bits"] == 0
    assert record["counters"]["CYCLES"] > record["counters"]["BEATS"] > 0
    costs = record["layer_costs"]
    assert sum(cost["counters"]["BEATS"] for cost in costs) == record["counters"]["BEATS"]
    assert sum(cost["cycles"] for cost in costs) > record["counters"]["BEATS"]
    assert (tmp_path / "verify.html").read_text().count("<svg") == 4
