# amaranth: UnusedElaboratable=no
"""Configurations: impossible values are refused by attribute; values that only hardware cannot have, separately."""

import json
from dataclasses import asdict, fields, replace

import pytest
from concord.hw.nnp import NNP
from concord.sim.drivers.configs import from_text, to_text
from concord.spec.machine.config import PRESETS, Config, preset, preset_name
from concord.spec.numbers.formats import Format

NUMBERS = [field.name for field in fields(Config) if field.type is int]
NARROW = Format(bits=2, e_min=0, e_max=0)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, (1 << 30) + 1])
def test_numbers_have_a_range(name, value):
    with pytest.raises(ValueError, match=rf"^{name} = {value} is out of range: it lies in \d+\.\.\d+$"):
        replace(preset("tiny"), **{name: value})


MAY_BE_ZERO = ("acc_int", "acc_frac", "vector_rf", "multipliers", "softmax_words", "mfu_registers", "partial_sums",
               "dram_words", "dram_bus")


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in MAY_BE_ZERO])
def test_nothing_has_the_size_zero(name):
    with pytest.raises(ValueError, match=f"^{name} = 0 "):
        replace(preset("tiny"), **{name: 0})


@pytest.mark.parametrize(("name", "value"), [("mfu_lanes", 1), ("bias_bits", 1), ("bias_bits", 33), ("acc_frac", 64)])
def test_narrower_ranges(name, value):
    with pytest.raises(ValueError, match=f"^{name} = {value} is out of range"):
        replace(preset("tiny"), **{name: value})


@pytest.mark.parametrize(("acc_int", "acc_frac", "legal"), [
    (0, 0, False), (1, 0, False), (0, 2, True), (2, 0, True), (20, 60, True), (21, 60, False), (80, 0, True)])
def test_an_accumulator_has_2_to_80_bits(acc_int, acc_frac, legal):
    wide = Format(bits=2, e_min=1, e_max=1)  # A product of these needs no fraction bits.
    changes = {"weights": wide, "activations": wide, "acc_int": acc_int, "acc_frac": acc_frac}
    if legal:
        assert replace(preset("tiny"), **changes).sum_bits == acc_int + acc_frac
    else:
        with pytest.raises(ValueError, match=rf"^acc_int \+ acc_frac = {acc_int + acc_frac} is out of range"):
            replace(preset("tiny"), **changes)


@pytest.mark.parametrize("name", [field.name for field in fields(Config)])
@pytest.mark.parametrize("value", [8.0, "8", None])
def test_attributes_have_their_type(name, value):
    with pytest.raises(ValueError, match=f"^{name} = .* must be of type "):
        replace(preset("tiny"), **{name: value})


def test_a_bool_is_no_number_and_a_number_no_bool():
    with pytest.raises(ValueError, match="^clock_mhz = True must be of type int, not bool"):
        replace(preset("tiny"), clock_mhz=True)
    with pytest.raises(ValueError, match="^count_overflows = 1 must be of type bool, not int"):
        replace(preset("tiny"), count_overflows=1)
    with pytest.raises(ValueError, match="^bits = 4.0 must be of type int, not float"):
        Format(bits=4.0)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"lanes": 3}, "lanes = 3 must divide native_dim = 8: 2 or 4 would do"),
    ({"mfu_lanes": 6}, "mfu_lanes = 6 must divide native_dim = 8: 4 or 8 would do"),
    ({"tile_engines": 3}, "matrix_tiles = 32 must be a multiple of tile_engines = 3: 30 or 33 would do"),
    ({"message_bytes": 5}, "message_bytes = 5 must be 4, 8 or 16"),
    ({"acc_frac": 43}, "acc_frac = 43 drops bits of small blocks: it must be at least 44"),
    ({"partial_sums": 4},
     "partial_sums = 4 must be 0 with vector_rf = 48, from which columns come row of tiles by row of tiles"),
    ({"mfu_registers": 2}, "mfu_registers = 2 must be 0 or 3"),
    ({"mfu_registers": 3, "more_functions": True},
     "mfu_registers = 3 must be 0 with more_functions: the reductions of an add stage take more cycles"),
    ({"native_dim": 512, "mfu_lanes": 512}, "mfu_lanes = 512 must be at most 256 with lazy_update"),
])
def test_attributes_that_do_not_go_together(changes, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        replace(preset("tiny"), **changes)


@pytest.mark.parametrize(("changes", "name"), [
    ({"native_dim": 24, "mfu_lanes": 4, "lanes": 4}, "native_dim"), ({"native_dim": 24, "lanes": 3}, "native_dim"),
    ({"tile_engines": 3, "matrix_tiles": 33}, "tile_engines"),
    ({"tile_engines": 3, "matrix_tiles": 33, "vector_rf": 0, "dram_words": 64, "dram_bus": 4}, "tile_engines")])
def test_hardware_needs_powers_of_two(changes, name):
    config = replace(preset("tiny"), **changes)
    with pytest.raises(ValueError, match=f"hardware needs {name} to be a power of two.*, not .* golden model only"):
        config.require_hardware()
    with pytest.raises(ValueError, match=f"hardware needs {name}"):
        NNP(config)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"operand_columns": 20_000, "matrix_tiles": 20_000}, "65,535 words of a product, and operand_columns = 20,000"),
    ({"native_dim": 512}, "65,535 words of a tile, and native_dim = 512 native vectors of 256 words have 131,072")])
def test_hardware_counts_words(changes, sentence):
    config = replace(preset("tiny"), **changes)
    with pytest.raises(ValueError, match=f"hardware counts at most {sentence}.* golden model only"):
        config.require_hardware()


def test_hardware_can_be_every_preset_but_the_published_shape():
    refused = []
    for name, config in PRESETS.items():
        try:
            config.require_hardware()
        except ValueError:
            refused.append(name)
    assert refused == ["brainwave_s10"]


@pytest.mark.parametrize("name", PRESETS)
def test_words_and_vectors_of_elements(name):
    config = preset(name)
    assert config.words_of(config.native_dim) == config.vector_words
    for count, size in ((config.words_of, config.mfu_lanes), (config.vectors_of, config.native_dim)):
        assert [count(n) for n in (0, 1, size, size + 1, 3 * size)] == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("name", PRESETS)
def test_a_record_gives_the_configuration_back(name):
    config = preset(name)
    assert Config.from_record(json.loads(json.dumps(asdict(config)))) == config
    assert to_text(config) == name
    other = replace(config, clock_mhz=7)
    assert from_text(to_text(other)) == other
    assert from_text(name) == config


def test_a_record_has_all_attributes_and_no_other():
    record = asdict(preset("tiny"))
    with pytest.raises(ValueError, match="^a configuration has no attribute colour: it has native_dim, lanes"):
        Config.from_record(record | {"colour": 3})
    del record["lanes"]
    with pytest.raises(ValueError, match="^the configuration lacks the attribute lanes"):
        Config.from_record(record)


def test_a_preset_is_known_by_its_attributes():
    assert [preset_name(config) for config in PRESETS.values()] == list(PRESETS)
    assert preset_name(replace(PRESETS["tiny"], instructions=8)) == ""


def test_a_machine_without_softmax_unit_has_the_record_and_digest_of_machines_that_know_none():
    tiny = preset("tiny")
    assert "softmax_words" not in tiny.record()
    assert tiny.digest == 1420184561
    assert Config.from_record(tiny.record()) == Config.from_record(asdict(tiny)) == tiny
    with_unit = preset("tiny_softmax")
    assert with_unit.record()["softmax_words"] == 6
    assert with_unit.digest != tiny.digest
    assert Config.from_record(json.loads(json.dumps(with_unit.record()))) == with_unit


def test_a_machine_without_more_functions_has_the_record_and_digest_of_machines_that_know_none():
    tiny, more = preset("tiny"), preset("tiny_vector")
    assert "more_functions" not in tiny.record()
    assert more.record()["more_functions"] is True
    assert more.digest != tiny.digest
    assert Config.from_record(json.loads(json.dumps(more.record()))) == more


def test_a_machine_whose_stages_are_as_deep_as_a_clock_needs_has_the_record_of_machines_that_know_no_depths():
    tiny, shallow = preset("tiny"), replace(preset("tiny"), mfu_registers=3)
    assert "mfu_registers" not in tiny.record()
    assert shallow.record()["mfu_registers"] == 3
    assert shallow.digest != tiny.digest
    assert Config.from_record(json.loads(json.dumps(shallow.record()))) == shallow


def test_a_softmax_has_a_largest_number_of_elements():
    assert replace(preset("vision"), softmax_words=512).softmax_words == 512
    with pytest.raises(ValueError, match=r"^softmax_words = 513 is too large: .* 512 words of 8 lanes would do$"):
        replace(preset("vision"), softmax_words=513)
