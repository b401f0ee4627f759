"""Synthesis for an ECP5: every product is mapped to cells, and impossible requests are refused.

Whole machines take minutes: `nox -s synth` and `nnp build` map them.
"""

from collections import Counter

import pytest
import typer
from concord.benchmarks.synth import YosysScript, costs, main, synthesise
from concord.hw.mvm.accumulator import Accumulator
from concord.hw.verilog import verilog
from concord.spec.machine.config import preset
from typer.testing import CliRunner

APP = typer.Typer()
APP.command()(main)


@pytest.mark.parametrize("name", ["speech", "trainer"])
def test_an_index_times_an_odd_width(name):
    """Accumulator words whose number of bits is no power of two are selected by a product with a constant."""
    config = preset(name)
    modules = synthesise(verilog(Accumulator(config), "top"), YosysScript(flatten=True))
    found = costs(sum(modules.values(), Counter()))
    assert found["DSP"] == 0
    assert found["FF"] >= 2 * config.native_dim * config.sum_bits


@pytest.mark.parametrize(("words", "sentence"), [
    (["--preset", "brainwave_s10"], "hardware needs native_dim to be a power of two, not 400"),
    (["--preset", "tiny", "--unit", "paper"], "there is no unit"), (["--preset", "tinyy"], "there is no preset"),
    (["--unit", "chip_memory", "--words", "100"], "words = 100 of a trainer must be a multiple of 256 in 256..65536")])
def test_what_cannot_be_synthesised_is_a_sentence(words, sentence):
    done = CliRunner().invoke(APP, words, env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert sentence in done.output
