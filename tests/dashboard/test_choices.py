"""The form of a run and of steering: what the command line refuses, the page refuses beside the field."""

from dataclasses import asdict
from pathlib import Path

import pytest
from concord.dashboard.choices import FIELDS, MEASURED, checked, defaults
from concord.dashboard.steering import CHANGES, command_of
from concord.nnp.commands.train_file import train_file
from concord.nnp.lib.field_options import WORDS
from concord.train.live.changes import WHAT
from concord.train.overflow.record import STEPS, NetworkKind
from typer import Typer
from typer.testing import CliRunner

IMPORTED = {"kind": "lstm", "defaults": asdict(STEPS[NetworkKind.LSTM]), "kept": {}, "paths": {}}
HERE = Path()
USUAL = defaults(IMPORTED)


def test_every_kind_has_its_defaults_and_what_justifies_them():
    assert MEASURED.keys() == set(NetworkKind)
    for kind in NetworkKind:
        given = defaults({"kind": kind, "defaults": asdict(STEPS[kind]), "kept": {}})
        assert float(given["overflow_share"]) == STEPS[kind].inputs
        assert float(given["overflow_shrink"]) == STEPS[kind].shrink
        choice, wrong = checked(given | {"accumulator": "16"}, IMPORTED | {"defaults": asdict(STEPS[kind])}, HERE)
        assert not wrong
        assert choice.words == ("--weights-bits", "8", "--input-bits", "8", "--accumulator", "16", "--epochs", "4,1",
                                "--seed", "0"), "a command without defaults"


def test_options_are_those_of_the_command_line():
    names = {names[0] for words in WORDS.values() for names, *_ in words.values()}
    every = {field.name: "3" for field in FIELDS if not field.choices} | {
        "accumulator": "16", "epochs": "2,0", "rate": "0.1", "overflow_share": "0.5", "overflow_shrink": "0.5",
        "overflow_by": "ranges", "weights": "dorefa", "start": "fp32", "overflow_weights": "2"}
    choice, wrong = checked(every, IMPORTED, HERE)
    assert not wrong
    options = set(choice.words[::2])
    assert options - {"--epochs", "--rate", "--seed"} <= names
    app = Typer()
    app.command()(train_file)
    said = CliRunner().invoke(app, ["no-such-file.onnx", *choice.words])  # every option is known, and its value good
    assert "no-such-file" in str(said.exception) + said.output, said.output


@pytest.mark.parametrize(("given", "field", "words"), [
    ({"accumulator": "65"}, "accumulator", "1 to 64"),
    ({"accumulator": "twelve"}, "accumulator", "whole number"),
    ({"weights_bits": "17"}, "weights_bits", "17"),
    ({"preset": "tiny"}, "preset", "leave"),
    ({"preset": "tiny", "weights_bits": "", "input_bits": "", "overflow_shrink": "2", "accumulator": "9"},
     "overflow_shrink", "at most 1"),
    ({"overflow_share": "2", "accumulator": "9"}, "overflow_share", "--overflow-share = 2.0 must be in 0..1"),
    ({"overflow_weights": "0", "accumulator": "9"}, "overflow_weights", "at least 1"),
    ({"overflow_weights": "1", "overflow_inputs": "1", "accumulator": "9"}, "overflow_inputs",
     "above 1 where --overflow-weights is 1"),
    ({"overflow_every": "-1", "accumulator": "9"}, "overflow_every", "at least 0"),
    ({"preset": "no-such"}, "preset", "no-such"),
    ({"weights_bits": ""}, "preset", "bits of weights"),
    ({"epochs": "4"}, "epochs", "two numbers"),
    ({"epochs": "-1,1"}, "epochs", "whole numbers"),
    ({"epochs": "0,0"}, "epochs", "one epoch"),
    ({"rate": "fast"}, "rate", "0.01"),
    ({"rate": "-1"}, "rate", "above 0"),
    ({"seed": "x"}, "seed", "whole number"),
    ({"arithmetic": "bfp", "accumulator": "16"}, "accumulator", "integers"),
])
def test_what_is_wrong_stands_beside_its_field(given, field, words):
    choice, wrong = checked(USUAL | given, IMPORTED, HERE)
    assert choice is None
    assert words in wrong[field], wrong


def test_a_machine_of_ones_own_and_one_that_is_fitted(tmp_path):
    chosen, _ = checked(USUAL | {"preset": "fit"}, IMPORTED, HERE)
    assert chosen.fit
    assert "--preset" not in chosen.words
    none = {"weights_bits": "", "input_bits": ""}
    chosen, wrong = checked(USUAL | none | {"preset": "vision"}, IMPORTED, HERE)
    assert not wrong
    assert chosen.options == {"preset": "vision"}
    (tmp_path / "machine.toml").write_text('based_on = "ulx3s"\n')
    own = IMPORTED | {"paths": {"machine": "machine.toml"}}
    chosen, wrong = checked(USUAL | none, own, tmp_path)
    assert not wrong
    assert chosen.words[:2] == ("--preset", "machine.toml")
    kept = IMPORTED | {"kept": {"weights_bits": 4, "input_bits": 4}}
    assert "keeps its widths" in checked(USUAL, kept, HERE)[1]["weights_bits"]
    assert checked(defaults(kept), kept, HERE)[0].words == ("--epochs", "4,1", "--seed", "0")


@pytest.mark.parametrize(("form", "command"), [
    ({"do": "pause"}, {"do": "pause"}),
    ({"do": "set", "what": "accumulator", "value": "12"},
     {"do": "set", "what": "accumulator", "layer": None, "value": 12}),
    ({"do": "set", "what": "weights_factor", "layer": "one", "value": "1.5"},
     {"do": "set", "what": "weights_factor", "layer": "one", "value": 1.5}),
])
def test_forms_become_commands(form, command):
    assert command_of(form, {"one"}) == command


@pytest.mark.parametrize(("form", "words"), [
    ({"do": "rm"}, "no such command"), ({"do": "set", "what": "os", "value": "1"}, "no such command"),
    ({"do": "set", "what": "accumulator", "value": "12.5"}, "whole number"),
    ({"do": "set", "what": "accumulator", "value": "65"}, "1..64"),
    ({"do": "set", "what": "rate", "value": "nan"}, "number"),
    ({"do": "set", "what": "rate", "layer": "one", "value": "0.1"}, "whole network"),
    ({"do": "set", "what": "threshold", "layer": "two", "value": "1"}, "no such layer"),
    ({"do": "what_if", "what": "rate", "value": "1"}, "no such command")])
def test_commands_that_there_are_not_are_refused(form, words):
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        command_of(form, {"one"})


def test_pages_change_what_training_can_change():
    assert {*CHANGES, "range", "stop"} == set(WHAT)
