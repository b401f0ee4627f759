"""The options of quantisation: one list for the command line, Python and TOML."""

from dataclasses import fields

import pytest
from concord.net.quantize.choices import BlockRecipe
from concord.net.quantize.options import QuantizationOptions
from concord.net.quantize.recipe import WeightMethod, WeightTraining
from concord.net.quantize.widths import NetworkArithmetic
from concord.nnp.lib.field_options import GATES, OPTIONS, TRAINING


def test_every_option_is_on_the_command_line():
    assert {item.name for item in fields(QuantizationOptions)} == OPTIONS.keys()
    assert {*GATES, *TRAINING} < OPTIONS.keys()


def test_names_stand_for_methods_and_none_for_defaults():
    made = QuantizationOptions.of(
        {"preset": "vision", "ptq_weights": "uniform", "symmetric": None, "layers": {"a": [4, 8]}})
    assert made == QuantizationOptions(preset="vision", ptq_weights=WeightMethod.UNIFORM, layers={"a": (4, 8)})


def test_a_file_holds_the_same_options(tmp_path):
    path = tmp_path / "options.toml"
    path.write_text('preset = "speech"\narithmetic = "bfp"\n\n[layers]\nconv1 = [4, 6]\n')
    made = QuantizationOptions.read(path)
    assert made == QuantizationOptions(preset="speech", arithmetic=NetworkArithmetic.BFP, layers={"conv1": (4, 6)})
    assert isinstance(made.recipe(), BlockRecipe)


@pytest.mark.parametrize(("text", "said"), [
    ("weight_bits = 4", "there is no option weight_bits: is weights_bits meant?"),
    ('weights_bits = "4"', "weights_bits: '4' is no int"),
    ('weights = "none"', "'none': choose one of wrpn"),
    ("batch_norm = 1", "batch_norm: 1 is no bool"),
    ("layers = 4", r"such as conv1 = \[8, 8\], not 4"),
    ("[layers]\na = [4]", r"such as a = \[8, 8\], not \[4\]"),
    ("= 4", "Invalid"),
])
def test_what_a_file_cannot_hold_is_said_with_its_name(tmp_path, text, said):
    path = tmp_path / "options.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"options.toml: .*{said}"):
        QuantizationOptions.read(path)
    with pytest.raises(ValueError, match="other.toml: No such file"):
        QuantizationOptions.read(tmp_path / "other.toml")


def test_the_machine_decides_its_widths():
    assert QuantizationOptions(preset="vision", asymmetric=True).widths().weights == 7
    assert QuantizationOptions(preset="vision", weights=WeightTraining.DOREFA).widths().weights == 7
    with pytest.raises(ValueError, match="--preset vision decides --weights-bits"):
        QuantizationOptions(preset="vision", weights_bits=4).widths()
    with pytest.raises(ValueError, match="name the machine, such as --preset vision"):
        QuantizationOptions(weights_bits=4).choices()


def test_weights_use_all_integers_where_the_machine_has_them():
    """The first source document has weights in -2**(k - 1)..2**(k - 1) - 1."""
    options = {"weights_bits": 4, "input_bits": 4}
    assert QuantizationOptions(**options).recipe().symmetric == (True, False)
    assert QuantizationOptions(**options, full_weights=True).recipe().symmetric == (False, False)
    assert QuantizationOptions(preset="trainer", full_weights=True).recipe().symmetric[0] is False
    with pytest.raises(ValueError, match="--preset ulx3s has no weight of -2"):
        QuantizationOptions(preset="ulx3s", full_weights=True).recipe()
    with pytest.raises(ValueError, match="--full-weights"):
        QuantizationOptions(**options, full_weights=True, arithmetic=NetworkArithmetic.BFP).recipe()
