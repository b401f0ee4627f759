"""Machines in TOML files: every error names the file, the line, the attribute, and what would do."""

from dataclasses import asdict, replace

import pytest
from concord.machines.machine_text import ATTRIBUTES, changes_text, full_text, meanings
from concord.spec.machine.config import PRESETS, preset
from concord.spec.machine.machine_file import config_from_text, find_config, machine_name, read_config
from concord.spec.numbers.formats import Format, Rule

VISION = preset("vision")


def test_attributes_of_a_preset_that_change():
    found = config_from_text('based_on = "vision"\nweights = { bits = 6 }\nmatrix_tiles = 400\nlazy_update = true\n')
    assert found == replace(VISION, weights=replace(VISION.weights, bits=6), matrix_tiles=400, lazy_update=True)
    table = config_from_text('based_on = "vision"\n[weights]\nbits = 6\nrule = "ceil"\n')
    assert table.weights == replace(VISION.weights, bits=6, rule=Rule.CEIL)


def test_a_machine_that_is_based_on_no_preset():
    text = "native_dim = 4\nlanes = 2\nmfu_lanes = 2\nacc_int = 10\nacc_frac = 44\nweights = {}\nactivations = {}"
    assert config_from_text(text).activations == Format()


@pytest.mark.parametrize("name", PRESETS)
def test_the_text_of_a_machine_gives_it_back(name):
    config = PRESETS[name]
    assert config_from_text(full_text(config, name)) == config
    assert config_from_text(changes_text(config, "any")) == config
    other = replace(config, clock_mhz=7, activations=replace(config.activations, e_max=15))
    assert config_from_text(changes_text(other, "any")) == other
    assert len(changes_text(other, "any").splitlines()) <= 4


def test_every_attribute_has_a_meaning():
    assert tuple(meanings()) == ATTRIBUTES == tuple(asdict(VISION))
    assert all(text.endswith(".") for text in meanings().values())


def test_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, clock in (("mine", 7), ("vision", 7), ("tiny", 50)):
        base = "tiny" if name == "tiny" else "vision"
        (tmp_path / f"{name}.toml").write_text(f'based_on = "{base}"\nclock_mhz = {clock}')
    assert machine_name("ulx3s") == "ulx3s"
    assert machine_name("mine.toml") == machine_name(f"{tmp_path}/mine.toml") == "mine"
    assert machine_name("vision.toml") == "vision.toml"  # it is another machine than the preset
    assert machine_name("tiny.toml") == "tiny"
    assert find_config("mine.toml") == replace(VISION, clock_mhz=7) == find_config("vision.toml")
    assert find_config("vision") == VISION
    with pytest.raises(ValueError, match="there is no preset 'mine', but there is a file: write mine.toml"):
        find_config("mine")
    with pytest.raises(ValueError, match="there is no preset 'huge': choose one of tiny, serial"):
        find_config("huge")
    for names in ("vision,ulx3s", "vision,mine.toml"):
        with pytest.raises(ValueError, match=f"'{names}' names 2 machines, .* with --machines 2"):
            find_config(names)


V = 'based_on = "vision"\n'


@pytest.mark.parametrize(("text", "sentence"), [
    (V + "lane = 8", r"line 2: lane = 8: a machine has no such attribute \(did you mean lanes\?\); it has nat"),
    (V + '\nlanes = "8"', 'line 3: lanes = "8" must be a whole number, without quotation marks'),
    (V + "lanes = 8.0", "line 2: lanes = 8.0 must be a whole number"),
    (V + "lanes = true", "line 2: lanes = true must be a whole number"),
    (V + "lazy_update = 1", "line 2: lazy_update = 1 must be true or false"),
    (V + "lanes = 3", "line 2: lanes = 3 must divide native_dim = 16: 2 or 4 would do"),
    (V + "tile_engines = 4\nmatrix_tiles = 385",
     "line 3: matrix_tiles = 385 must be a multiple of tile_engines = 4: 384 or 388 would do"),
    (V + "matrix_tiles = 70000", r"line 2: matrix_tiles = 70000 is out of range: it lies in 1\.\.65536"),
    (V + "acc_frac = 20", "line 2: acc_frac = 20 drops bits of small blocks: it must be at least 36"),
    (V + "weights = { bits = 16 }", "acc_frac = 36 drops bits of small blocks: it must be at least 44"),
    (V + "weights = 6", r"line 2: weights = 6 must be a table, such as weights = \{ bits = 8, symmetric = true \}"),
    (V + "weights = { bit = 6 }", r"line 2: weights = { bit = 6 }: a format has no attribute bit \(did you"),
    (V + "weights = { bits = 17 }", "line 2: weights = { bits = 17 }: a mantissa has 2 to 16 bits, not 17"),
    (V + "[weights]\nbits = '6'", 'line 2: weights.bits = "6" must be a whole number'),
    (V + "weights = { rule = 'round' }", 'line 2: weights.rule = "round" must be one of "ceil", "frexp"'),
    ('based_on = "visoin"', r'line 1: based_on = "visoin" is no preset \(did you mean vision\?\): choose one of '),
    ("based_on = vision", r"no TOML: Invalid value \(at line 1, column 12\)"),
    ("based_on = 3", 'line 1: based_on = 3 must be the name of a preset in quotation marks, such as "vision"'),
    ("lanes = 8", "it lacks native_dim, mfu_lanes, weights, activations, acc_int, acc_frac: name them, or begin with "),
    (V + V, "no TOML: Cannot overwrite a value"), ("a = " + "[" * 5000, "no TOML: "),
    (V + '"" = 1', ' = 1: a machine has no such attribute; it has '),
    (V + "lanes = " + "9" * 5000, "no TOML: "), (V + "lanes = nan", "line 2: lanes = nan must be a whole number"),
])
def test_what_is_no_machine(text, sentence, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^{path}: {sentence}"):
        read_config(path)


def test_files_that_are_not_read(tmp_path):
    path = tmp_path / "mine.toml"
    with pytest.raises(ValueError, match="there is no such file; a machine is the name of a preset .* --toml` prints"):
        find_config(str(path))
    with pytest.raises(ValueError, match="it is a folder; a machine is"):
        find_config(str(tmp_path) + "/")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="mine.toml: 'utf-8' codec can't decode"):
        find_config(str(path))
    path.write_bytes(b"#" * 100_001)
    with pytest.raises(ValueError, match="a file of 100,001 bytes describes no machine: 100,000 are the most"):
        find_config(str(path))


def test_a_file_that_begins_with_a_mark_as_editors_of_windows_write_it(tmp_path):
    (tmp_path / "mine.toml").write_text('based_on = "vision"\nclock_mhz = 7\n', "utf-8-sig")
    assert read_config(tmp_path / "mine.toml") == replace(VISION, clock_mhz=7)
