"""`nnp presets`, and machines in TOML files wherever a preset's name is taken."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from concord.campaigns.makers import image_networks, networks
from concord.compiler.lib.limits import CannotRun
from concord.compiler.network import compile_network
from concord.datasets.dataset import DATA
from concord.firmware.firmware_file import load_firmware
from concord.machines.fit import fit
from concord.net.model import INPUT
from concord.net.model_file import load_model, save_model
from concord.spec.machine.config import PRESETS, preset
from concord.spec.machine.machine_file import config_from_text, read_config
from concord.tests.command_line import done, refused
from concord.workflows.imports import runs_on

RESNET = DATA / "models" / "fashion-resnet-w8.safetensors"


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """A small network for the formats of `serial` in model.safetensors, in the present folder."""
    monkeypatch.chdir(tmp_path)
    model = networks.mlp(np.random.default_rng(0), preset("serial"), [6, 30, 3], block=False)
    save_model(replace(model, name="small"), tmp_path / "model.safetensors")
    return tmp_path


def test_all_presets():
    lines = done("presets").splitlines()
    for name in PRESETS:
        assert sum(name in line.split() for line in lines) == 1
    assert next(line for line in lines if "brainwave_s10" in line).count(" - ") == 3  # golden only


def test_a_comparison(small):
    (small / "mine.toml").write_text('based_on = "vision"\nvector_rf = 4096\n')
    lines = done("presets", "vision", "mine.toml").splitlines()
    (row,) = [line for line in lines if "vector_rf" in line]
    assert row.split()[3:6:2] == [f"{preset('vision').vector_rf:,}", "4,096"]
    assert not any("native_dim" in line for line in lines)
    assert any("native_dim" in line for line in done("presets", "mine.toml").splitlines())
    (small / "a").mkdir()
    (small / "a" / "mine.toml").write_text('based_on = "vision"\n')
    assert "a/mine.toml" in done("presets", "mine.toml", "a/mine.toml")


def test_a_text_to_start_from():
    text = done("presets", "ulx3s", "--toml")
    assert config_from_text(text) == preset("ulx3s")
    assert "# Number of native tiles of MatrixRf.\nmatrix_tiles = 512" in text


@pytest.mark.parametrize(("words", "sentence"), [
    (("huge",), "there is no preset 'huge'"), (("--toml",), "--toml prints one machine: name it"),
    (("vision", "tiny", "--toml"), "--toml prints one machine"), (("-o", "x.toml"), "-o is for --fit"),
    (("tiny", "--errors"), "--errors prints all that was measured"),
    (("tiny", "--fit", RESNET), "--fit begins from the machine of --preset: leave out other machines"),
    (("--fit", RESNET, "-o", "x.json"), "x.json: the name of a machine's file ends with .toml"),
    (("--fit", RESNET, "-o", "/proc/x.toml"), "/proc cannot be written"),
    (("--fit", "nowhere"), "nowhere: there is no such model file"),
    (("--fit", RESNET, "--preset", "nothing.toml"), "nothing.toml: there is no such file"),
])
def test_bad_input_is_a_sentence(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused("presets", *words)
    assert not os.listdir(tmp_path)


def test_estimates_are_near_what_was_measured():
    lines = done("presets", "--errors").splitlines()
    machines = [line.split("│") for line in lines if line.startswith("│ nnp ")]
    assert machines
    for _, _, _, _, error, _, block_ram, dsp, _ in machines:
        assert abs(int(error.strip(" %"))) <= 10
        for both in (block_ram, dsp):
            assert len({number.strip() for number in both.split("|")}) == 1


def test_a_machine_of_ones_own_on_gates(small):
    """A network too large for a machine: the advice of the error is followed, and its result verified on gates."""
    (small / "few.toml").write_text(
        'based_on = "serial"\nmfu_lanes = 2\nmessage_bytes = 4\ncount_overflows = false\nvector_rf = 0\n')
    message = refused("compile", "model.safetensors", "--preset", "few.toml")
    assert "one product needs 8 native vectors, operand_columns is 5" in message
    command = message.split("`")[1]
    assert command == "nnp presets --fit model.safetensors --preset few.toml -o my.toml"
    assert "my.toml: the model compiles for this machine" in done(*command.split()[1:])
    own = read_config(small / "my.toml")
    assert own != read_config(small / "few.toml")

    rng = np.random.default_rng(1)
    np.save(small / "in.npy", rng.normal(size=(3, 6)))
    result = done("verify", "model.safetensors", "--config", "my.toml", "--inputs", "in.npy", "--report", "report")
    assert "library, preset my" in " ".join(result.split())
    assert "verify model.safetensors --preset my.toml" in (small / "report" / "verify.json").read_text()

    assert "for my" in done("compile", "model.safetensors", "--preset", "my.toml")
    firmware = small / "model.my.safetensors"
    assert load_firmware(firmware).config == own
    assert f"is for machine {own.digest:08x}, this one is serial" in refused(
        "run", firmware, "--preset", "serial", "--inputs", "in.npy")
    assert done("run", firmware, "--inputs", "in.npy") == done(
        "run", firmware, "--preset", "my.toml", "--inputs", "in.npy")


@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "vision", "speech", "vision_large"])
def test_a_fit_holds_the_model(name):
    """A memory shrinks to what is used, and one step less of any depth that grew does not hold the model."""
    rng, base = np.random.default_rng(2), preset(name)
    images = image_networks.ImageNetworkMaker(rng, base, (3, 12, 12), block=False)
    images.conv(images.conv(INPUT, 24), 24)
    model = images.model()
    fitted = fit(model, base)
    compile_network(model, fitted.config)
    for attribute, used in fitted.compiled.uses.items():
        assert getattr(fitted.config, attribute) >= used
    grown = [attribute for attribute in fitted.compiled.uses
             if getattr(fitted.config, attribute) > getattr(base, attribute)]
    for attribute in set(grown) - {"vector_rf"}:  # with less of it, the compiler finds a slower way
        less = fitted.compiled.uses[attribute] - 1
        less -= less % base.tile_engines if attribute == "matrix_tiles" else 0
        with pytest.raises(CannotRun):
            compile_network(model, replace(fitted.config, **{attribute: less}))


def test_reasons_are_structured():
    model = networks.mlp(np.random.default_rng(6), preset("tiny"), [65, 600], block=True)
    with pytest.raises(CannotRun) as caught:
        compile_network(model, preset("tiny"))
    (reason,) = caught.value.reasons
    assert (reason.attribute, reason.needed, reason.available) == ("operand_columns", 9, 8)
    with pytest.raises(CannotRun) as caught:
        compile_network(model, replace(preset("tiny"), operand_columns=9))
    found = {reason.attribute: (reason.needed, reason.available) for reason in caught.value.reasons}
    assert found["matrix_tiles"] == (9 * 75, 32)
    assert set(found) == {"matrix_tiles", "addsub_vrf"}


def test_a_fit_that_no_machine_is():
    model = networks.mlp(np.random.default_rng(6), preset("tiny"), [65, 8], block=True)
    with pytest.raises(CannotRun, match="its blocks have 8 elements, native vectors 16"):
        fit(model, preset("trainer"))


@pytest.mark.parametrize(("preset", "said"), [
    ("", "preset vision takes it\n"), ("vision", ""), ("ulx3s", "ulx3s cannot run it: ")])
def test_what_is_said_of_a_model_that_was_made(preset, said):
    found = runs_on(load_model(DATA / "models" / "vowels-lstm-w8.safetensors"), preset, "m")
    assert found.startswith(said)
    assert bool(found) == bool(said)
