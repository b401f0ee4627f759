"""The front page's Python does what the page says."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_front_page_prints_what_it_says(tmp_path, monkeypatch, capsys):
    for package in "sklearn", "skl2onnx", "onnx":
        pytest.importorskip(package, reason="dependency group test")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("0 differing bits, ")
    assert f"\n    {printed}" in README.read_text()
