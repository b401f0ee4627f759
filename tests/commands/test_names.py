"""Names with control characters never reach a terminal, and a model that is written can be read."""

from pathlib import Path

import numpy as np
import pytest
from concord.lib import tensor_file
from concord.lib.names import check_printable, cleaned
from concord.net import model_file
from concord.net.model_file import load_model
from concord.tests import own_digits
from concord.tests.command_line import done, nnp, refused

ESCAPE = "\x1b[31m"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_escape_in_a_class_is_shown_and_read_again(folder):
    network, _ = own_digits.written(folder)
    arrays = own_digits.arrays()
    names = np.array([f"digit {number}" for number in range(9)] + [f"the {ESCAPE}last"])
    np.savez("own.npz", **{key: names[value] if key.startswith("y") else value for key, value in arrays.items()})
    found = nnp("verify", network, "--data", "own.npz", "--preset", "tiny", "--machine", "golden", "--report", "out")
    assert found.exit_code == 0
    assert "\x1b[31m" not in found.output
    assert load_model("out/net.safetensors").classes[9] == "the \\x1b[31mlast"
    said = done("predict", "out/net.safetensors", "--data", "own.npz", "--samples", "all")
    assert "the \\x1b[31mlast" in said
    assert ESCAPE not in said
    assert ESCAPE not in Path("out/verify.html").read_text()
    odd = "50%20#1?.safetensors"
    Path("out/net.safetensors").rename(odd)
    done("verify", odd, "--data", "own.npz", "--preset", "tiny", "--machine", "golden", "--report", "odd")
    assert Path("odd/50%20#1?.csv").is_file()
    assert 'href="50%2520%231%3F.csv"' in Path("odd/verify.html").read_text()
    Path(odd).rename("out/net.safetensors")
    # A model that an earlier version wrote holds the character itself.
    kind, path = model_file.KIND, Path("out/net.safetensors")
    header, tensors = tensor_file.read(kind, path)
    header["classes"] = [name.replace("\\x1b", "\x1b") for name in header["classes"]]
    header["description"] = header["description"].replace("\\\\x1b", "\\u001b")
    assert ESCAPE in header["classes"][9]
    assert "\\u001b[31m" in header["description"]
    tensor_file.write(kind, path, header, {name: np.array(value) for name, value in tensors.items()})
    assert done("predict", path, "--data", "own.npz", "--samples", "all") == said


def test_names_of_files_are_refused(folder):
    network, data = own_digits.written(folder)
    for words in (("verify", f"{ESCAPE}.onnx"), ("predict", network, "--data", f"a{ESCAPE}"),
                  ("train", f"{ESCAPE}.onnx"),
                  ("quantize", network, "--for", "tiny", "--data", data, "-o", f"{ESCAPE}.safetensors")):
        assert "holds a control character, such as one that moves a terminal's cursor; rename it" in refused(*words)


def test_brackets_in_names_are_no_markup(folder):
    own_digits.written(folder)
    Path("net.safetensors").rename("a[bold]b.safetensors")
    said = done("verify", "a[bold]b.safetensors", "--data", "digits.npz", "--preset", "tiny", "--machine", "golden",
                "--report", "out")
    assert "quantised model: out/a[bold]b.safetensors" in said
    assert "┃ a[bold]b" in said


def test_cleaning():
    assert cleaned("a\nb\tc\x07\u200b é") == "a\\nb\\tc\\x07\\u200b é"
    assert cleaned("a\nb", "\n") == "a\nb"
    check_printable("the name", ["a b", ""])
    with pytest.raises(ValueError, match=r"the name 'a\\x07' holds a control character"):
        check_printable("the name", ["b", "a\x07"])
