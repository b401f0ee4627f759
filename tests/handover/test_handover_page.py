"""The commands of docs/handover.md, as they stand there, and what `nnp handover` refuses."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from amaranth.hdl import Fragment
from concord.handover import integration
from concord.nnp.main import app
from concord.sim.machines.library import nnp_verilog
from concord.spec.machine.config import preset
from concord.tests.c_driver import PORTABLE, compile_c
from typer.testing import CliRunner

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "handover.md").read_text()
#: Programs that the page names and this test leaves out: tests/handover/test_testbench.py runs the testbench, and there
#: is no board.
ELSEWHERE = ("verilator", "obj_dir", "./example_linux")


def nnp(*words):
    """Run the command in this process."""
    return CliRunner().invoke(app, [str(word) for word in words])


def cached_verilog(dut, name: str) -> str:
    """Verilog of `ulx3s` from the cache; Amaranth warns of components that nothing elaborates."""
    Fragment.get(dut, None)
    return nnp_verilog(preset("ulx3s"))


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """The folder that the steps of the page make, and what they print."""
    where, printed = tmp_path_factory.mktemp("steps"), []
    (where / "data").symlink_to(ROOT / "data")
    folder = where
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integration, "verilog", cached_verilog)
        for line in re.findall("^    (.*)$", PAGE, re.MULTILINE):
            patch.chdir(folder)
            words = line.split()
            if line.startswith(ELSEWHERE):
                continue
            if words[0] == "cd":
                folder /= words[1]
            elif words[0] == "nnp":
                result = nnp(*words[1:])
                assert result.exit_code == 0, result.output
                if words[1] == "verilog":
                    assert {"nnp.v", "registers.md", "nnp.rdl", "nnp.xml", "nnp_machine.h"} <= {
                        path.name for path in (folder / "board").iterdir()}
            else:
                done = subprocess.run(words, capture_output=True, text=True, check=True)
                printed.append((line, done.stdout))
    return folder, dict(printed)


def test_the_steps_end_with_goldens_bits(board):
    _, printed = board
    for line in ("./example ./nnp.so", "./example ./nnp.so load.bin"):
        examples = printed[line].splitlines()
        assert len(examples) == 3
        assert all(f"example {k}: 10 outputs, 0 differ from golden, " in text for k, text in enumerate(examples))


def test_the_folder_has_what_its_page_lists(board):
    folder, _ = board
    page = (folder / "README.md").read_text()
    listed = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    assert listed <= {path.name for path in folder.iterdir()}
    assert listed >= json.loads((folder / "manifest.json").read_text())["files"].keys()
    assert {"load.hex", "nnp_testbench.v", "nnp.so", "nnp.rdl"} <= listed
    assert "The outputs are T-shirt/top, trouser" in page


def test_the_c_files_have_no_warnings(board):
    folder, _ = board
    for platform in ("simulation", "linux"):
        compile_c(folder, f"example_{platform}", "example.c", f"platform_{platform}.c", *PORTABLE)


def test_the_example_sees_a_bit_that_differs(board, tmp_path):
    folder = shutil.copytree(board[0], tmp_path / "copy")
    source = (folder / "examples.c").read_text()
    begin = source.index("result_1[] = {") + len("result_1[] = {")
    number = re.compile(r"\d+").search(source, begin)
    (folder / "examples.c").write_text(source[:number.start()] + str(int(number[0]) ^ 1) + source[number.end():])
    compile_c(folder, "example", "example.c", "platform_simulation.c", *PORTABLE)
    done = subprocess.run(["./example", "./nnp.so"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "example 1: 10 outputs, 1 differ from golden" in done.stdout


def test_the_example_refuses_a_damaged_file(board, tmp_path):
    folder, _ = board
    content = bytearray((folder / "load.bin").read_bytes())
    content[1000] ^= 1
    damaged = tmp_path / "load.bin"
    damaged.write_bytes(content)
    done = subprocess.run(["./example", "./nnp.so", damaged], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "load: The message or the firmware is damaged or cut off.\n")


def test_linux_reads_the_registers_of_its_device(board, tmp_path):
    """A file of zeros as UIO device has another digest than the machine."""
    folder, _ = board
    for name in ("uio", "stream"):
        (tmp_path / name).write_bytes(bytes(4096))
    for location, code, said in (
        (f"{tmp_path}/uio,{tmp_path}/stream", 1, "open: The machine has another configuration than the headers.\n"),
        (f"{tmp_path}/uio", 2, f"{tmp_path}/uio: no machine is here; call it as: example LOCATION [load.bin]\n"),
    ):
        done = subprocess.run(["./example_linux", location], cwd=folder, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (code, said)


@pytest.fixture(scope="module")
def firmware(tmp_path_factory):
    path = tmp_path_factory.mktemp("firmware") / "vowels.safetensors"
    assert nnp("compile", ROOT / "data" / "models" / "vowels-lstm-w8.safetensors", "-o", path).exit_code == 0
    return path


@pytest.mark.parametrize(("words", "said"), [
    (["--samples", "0"], "--samples 0 is neither 'all' nor a number"),
    (["--first", "9999"], "--first 9999 is not one of the samples"),
    (["--inputs", "missing.npy"], "missing.npy"),
    (["-o", "{firmware}"], "it is a file; name another path"),
    (["--data", "/nowhere"], "/nowhere: there is no such file or folder"),
])
def test_bad_input_is_a_sentence_and_leaves_nothing(firmware, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = nnp("handover", firmware, *(word.format(firmware=firmware) for word in words))
    assert result.exit_code == 2
    assert result.stderr.startswith("nnp: ")
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_firmware(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"nothing")
    result = nnp("handover", path, "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()
