# amaranth: UnusedElaboratable=no
"""Verilog of units with AXI4-Stream buses, as `nnp verilog` writes it."""

import re

import pytest
from amaranth.lib import data
from concord.hw.host.axi_streams import fields
from concord.nnp.main import app
from typer.testing import CliRunner


def test_fields_take_whole_bytes():
    pairs = data.ArrayLayout(data.StructLayout({"a": 9, "none": 0}), 2)
    shape = data.StructLayout({"few": 3, "numbers": pairs, "last": 1})
    assert [(field.name, field.source, field.offset, field.bytes) for field in fields(shape)] == [
        ("few", 0, 0, 1), ("numbers[0].a", 3, 8, 2), ("numbers[1].a", 12, 24, 2)]
    assert fields(data.StructLayout({"last": 1})) == []
    assert [field.name for field in fields(12)] == ["data"]


def test_lazy_update(tmp_path):
    """Each stream becomes a bus, and a page lists the bytes of each field."""
    result = CliRunner().invoke(app, ["verilog", "--unit", "lazy_update", "--preset", "tiny", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    text = (tmp_path / "lazy_update.v").read_text()
    for name in ("s_axis_block", "s_axis_i", "m_axis_o", "m_axis_answer"):
        assert all(f" {name}_{wire};" in text for wire in ("tvalid", "tready"))
    page = (tmp_path / "ports.md").read_text()
    assert "## s_axis_i: AXI4-Stream\n" in page
    assert "| `s_axis_i_tdata` | input | 112 |" in page
    assert "| `s_axis_i_tlast` | input | 1 |" in page
    assert "| `updates[1]` | 32, signed | `[111:80]` |" in page
    assert "| `change` | 5, signed | `[12:8]` |" in page
    assert "payload" not in page
    instance = (tmp_path / "lazy_update_instance.v").read_text()
    ports = set(re.findall(r"^  (?:input|output) (?:\[.*\] )?(\w+);", text.split("endmodule")[0], re.MULTILINE))
    assert ports <= set(re.findall(r"\.(\w+)\(", instance))


@pytest.mark.parametrize("name", ["quantizer", "copy", "adder"])
def test_other_units(name, tmp_path):
    """Streams of any unit become buses of whole bytes; a unit without streams is unchanged."""
    result = CliRunner().invoke(app, ["verilog", "--unit", name, "--preset", "tiny", "-o", str(tmp_path)])
    assert result.exit_code == 0, result.output
    widths = re.findall(r"axis_\w+_tdata` \| \w+ \| (\d+) \|", (tmp_path / "ports.md").read_text())
    assert all(int(width) % 8 == 0 for width in widths)
    assert bool(widths) == (name != "adder")
