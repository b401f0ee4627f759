"""Firmware files: a file that is written can be read back, and errors name the faulty part."""

import json
import re
from dataclasses import fields, replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.firmware import Entries, Firmware
from concord.firmware.firmware_file import KIND, load_firmware, save_firmware
from concord.firmware.layout import Layout, runs_of
from concord.golden.host.messages import entries_of
from concord.golden.mvm.elements import unpack_tiles
from concord.spec.host.messages import Message, MessageKind, pack, unpack
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

TINY = preset("tiny")


@pytest.fixture
def firmware() -> Firmware:
    rng = np.random.default_rng(0)
    return compile_network(networks.recurrent(rng, TINY, [3, 5], block=[False], outputs=4), TINY).firmware


@pytest.fixture
def path(firmware, tmp_path):
    save_firmware(firmware, tmp_path / "firmware.safetensors")
    return tmp_path / "firmware.safetensors"


def equal(a, b) -> bool:
    """Whether two firmwares are equal."""
    for field in fields(Firmware):
        left, right = getattr(a, field.name), getattr(b, field.name)
        if field.name == "tiles":
            same = all(
                np.array_equal(getattr(left, k), getattr(right, k)) for k in ("mantissas", "exponents", "integer")
            )
        elif field.name == "entries":
            same = len(left) == len(right) and all(
                a.address == b.address and np.array_equal(a.mantissas, b.mantissas)
                and np.array_equal(a.exponents, b.exponents) for a, b in zip(left, right, strict=True))
        elif field.name == "vectors":
            same = left.keys() == right.keys() and all(np.array_equal(left[mem], right[mem]) for mem in left)
        else:
            same = np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right
        if not same:
            return False
    return True


def refusal(path, config=None) -> str:
    with pytest.raises(ValueError, match=str(path)) as caught:
        load_firmware(path, config)
    return str(caught.value)


def edited(path, change_header=lambda header: None, change_arrays=lambda arrays: None):
    """Rewrite the file with changes."""
    with safe_open(path, framework="numpy") as file:
        header = json.loads(file.metadata()[KIND.key])
    arrays = load_file(path)
    change_header(header)
    change_arrays(arrays)
    save_file(arrays, path, {KIND.key: json.dumps(header)})


def test_round_trip(firmware, path):
    assert equal(load_firmware(path, TINY), firmware)
    assert not list(path.parent.glob("*.part"))


def test_missing(tmp_path):
    assert "no such firmware file; `nnp compile` makes one" in refusal(tmp_path / "none")


def test_a_network_is_no_firmware(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"a graph")
    with pytest.raises(ValueError, match="a network in ONNX, and a firmware file is needed"):
        load_firmware(tmp_path / "net.onnx")



@pytest.mark.parametrize("length", [0, 7, 100, 2000])
def test_truncated(path, length):
    path.write_bytes(path.read_bytes()[:length])
    assert "not a whole safetensors file" in refusal(path)


def test_another_kind_of_file(path):
    save_file({"a": np.zeros(1)}, path)
    assert "a safetensors file, but no firmware" in refusal(path)


def test_another_version(path):
    edited(path, lambda header: header.update(version=9))
    assert "firmware file version 9" in refusal(path)


def test_another_machine_is_named(path):
    message = refusal(path, preset("wide"))
    assert f"is for machine tiny ({TINY.digest:08x}), this one is wide ({preset('wide').digest:08x})" in message


def test_a_changed_configuration(path):
    edited(path, lambda header: header["config"].update(matrix_tiles=64))
    assert "but describes" in refusal(path)


def test_an_impossible_configuration(path):
    edited(path, lambda header: header["config"].update(lanes=3))
    assert "lanes = 3 must divide native_dim = 8" in refusal(path)


def test_a_missing_field_or_array(path):
    edited(path, lambda header: header.pop("outputs"))
    assert "the file lacks 'outputs'" in refusal(path)


def test_a_missing_array(path):
    edited(path, change_arrays=lambda arrays: arrays.pop("tiles.exponents"))
    assert "the file lacks 'tiles.exponents'" in refusal(path)


def test_a_wrong_shape(path):
    edited(path, change_arrays=lambda arrays: arrays.update({"tiles.exponents": np.zeros((3, 7), np.int8)}))
    assert "tiles, exponents: int8[" in refusal(path)


def test_a_wrong_type(path):
    edited(path, change_arrays=lambda arrays: arrays.update(biases=np.zeros((1, 2))))
    assert "biases: int32[1, 2] is needed, not float64[1, 2]" in refusal(path)


def test_a_mantissa_out_of_range(firmware):
    mantissas = firmware.tiles.mantissas.copy()
    mantissas[0, 0, 0] = 128
    with pytest.raises(ValueError, match=r"mantissas lie in -?\d+..128, the machine takes -128..127"):
        replace(firmware, tiles=replace(firmware.tiles, mantissas=mantissas))


def test_more_words_than_the_memory_holds(firmware):
    with pytest.raises(ValueError, match="InitialVrf holds 64 items, the firmware brings 65"):
        replace(firmware, vectors={**firmware.vectors, Mem.INITIAL_VRF: np.zeros((65, 2), np.uint16)})


def test_a_program_that_is_not_legal(path):
    def change(arrays):
        arrays["words"][-1] = 0

    edited(path, lambda header: header.update(text=header["text"].removesuffix("end\n") + ".word 0"), change)
    assert "the program is not legal: instruction" in refusal(path)


def test_text_and_words_that_differ(path):
    edited(path, lambda header: header.update(text=header["text"].replace("v_sigm1", "v_tanh1")))
    assert "the program text does not mean the program's words" in refusal(path)


def test_a_loop_that_is_none(path):
    edited(path, lambda header: header.update(loop=0))
    assert "instruction 0 is not the loop over time steps" in refusal(path)


def test_steps_change_the_loop_alone(firmware):
    once, often = firmware.program(), firmware.program(1500)
    assert [k for k in range(len(once)) if once[k] != often[k]] == [firmware.loop]
    with pytest.raises(ValueError, match="1 to 65535 time steps, not 0"):
        firmware.program(0)


def test_messages_fill_the_memories(firmware):
    messages = [unpack(TINY, data, to_machine=True) for data in firmware.memory_messages()]
    (packed,) = [message for message in messages if message.kind == MessageKind.PACKED]
    mantissas, exponents = unpack_tiles(TINY, packed.payload)
    assert packed.integer
    np.testing.assert_array_equal(mantissas, firmware.tiles.mantissas)
    assert not exponents.any()
    assert {message.memory for message in messages if message.kind == MessageKind.WRITE} == set(firmware.vectors)


def test_an_input_of_another_shape(firmware):
    with pytest.raises(ValueError, match=r"takes uint16\[steps, 3\], not uint16\[2, 4\]"):
        firmware.input_message(np.zeros((2, 4), np.uint16))


def test_an_input_is_padded_to_native_vectors(firmware):
    message = unpack(TINY, firmware.input_message(np.full((2, 3), 0x3C00, np.uint16)), to_machine=True)
    values = np.frombuffer(message.payload, "<u2").reshape(2, TINY.native_dim)
    assert (values[:, :3] == 0x3C00).all()
    assert not values[:, 3:].any()


def test_an_output_of_another_length(firmware):
    with pytest.raises(ValueError, match="gives 2 words for one input, 0 came"):
        firmware.output([])


def test_layers_of_addresses(firmware):
    assert firmware.layer_at(firmware.loop + 1) == "lstm0"
    assert firmware.layer_at(len(firmware.instruction_words) - 2) == "dense"
    assert firmware.layer_at(len(firmware.instruction_words) - 1) == ""


def entries(address=3, count=2) -> Entries:
    mantissas = np.arange(-8, count * 8 - 8, dtype=np.int16).reshape(count, 8)
    return Entries(address=address, mantissas=mantissas, exponents=np.arange(-15, count - 15, dtype=np.int8))


def test_entries_go_to_their_address(firmware, path):
    firmware = replace(firmware, entries=(entries(), entries(40, 8)))
    save_firmware(firmware, path)
    assert equal(load_firmware(path), firmware)
    sent = [unpack(TINY, data, to_machine=True) for data in firmware.memory_messages()]
    first, second = [message for message in sent if message.memory == Mem.VECTOR_RF]
    assert (first.address, first.count, second.address, second.count) == (3, 2, 40, 8)
    mantissas, stored = entries_of(TINY, first)
    assert (mantissas == entries().mantissas).all()
    assert stored.tolist() == [0, 1]


@pytest.mark.parametrize(("wrong", "sentence"), [
    (entries(47), "VectorRf holds 48 items, the firmware brings 49"),
    (entries(-1), "a range of VectorRf begins at 0"),
    (entries(0, 0), "has at least one entry"),
    (replace(entries(), mantissas=np.full((2, 8), 128, np.int16)), "mantissas of entries lie in 128..128"),
    (replace(entries(), exponents=np.full(2, 17, np.int8)), r"exponents of entries lie in 17..17, .* takes -15..16"),
    (replace(entries(), exponents=np.zeros(2)), r"entries 0, exponents: int8\[2\] is needed, not float64"),
])
def test_entries_that_do_not_fit(firmware, wrong, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(firmware, entries=(wrong,))


def patches(image, layout: Layout):
    """The elements that are sent, position by position, by loops."""
    sent = []
    for row in range(-layout.padding[0], layout.rows + layout.padding[1], layout.stride[0]):
        for column in range(-layout.padding[2], layout.columns + layout.padding[3], layout.stride[1]):
            last = (row + (layout.window[0] - 1) * layout.dilation[0],
                    column + (layout.window[1] - 1) * layout.dilation[1])
            if last[0] >= layout.rows + layout.padding[1] or last[1] >= layout.columns + layout.padding[3]:
                continue
            elements = []
            for y in range(layout.window[0]):
                for x in range(layout.window[1]):
                    at = row + y * layout.dilation[0], column + x * layout.dilation[1]
                    inside = 0 <= at[0] < layout.rows and 0 <= at[1] < layout.columns
                    elements += [int(image[c, *at]) if inside else 0 for c in range(layout.channels)]
            sent += elements + [0] * (-len(elements) % layout.align)
    return sent


def test_layouts_against_loops():
    rng = np.random.default_rng(8)
    for _ in range(60):
        def pair(low, high):
            return tuple(int(k) for k in rng.integers(low, high, 2))

        layout = Layout(channels=int(rng.integers(1, 5)), rows=int(rng.integers(5, 8)), columns=int(rng.integers(5, 8)),
                        align=int(rng.choice((1, 2, 8))), window=pair(1, 4), stride=pair(1, 4), dilation=pair(1, 3),
                        padding=pair(0, 3) + pair(0, 3))
        image = rng.integers(1, 1 << 16, (layout.channels, layout.rows, layout.columns)).astype(np.uint16)
        sent = layout.laid(image.reshape(1, -1))
        assert sent.tolist() == [patches(image, layout)]
        assert Layout.from_record(json.loads(json.dumps(layout.record()))) == layout
        if layout.window == layout.stride == (1, 1):
            assert (layout.taken(sent) == image.reshape(1, -1)).all()


def test_layouts_of_channels_that_do_not_follow_each_other():
    rng = np.random.default_rng(4)
    for _ in range(60):
        channels, rows, columns = (int(number) for number in rng.integers(1, 9, 3))
        lanes = int(rng.integers(channels, 3 * channels + 1))
        places = rng.permutation(lanes)[:channels]
        layout = Layout(channels=channels, rows=rows, columns=columns, align=int(rng.choice((2, 8))),
                        places=runs_of(places))
        assert sum(number for *_, number in layout.places) in (0, channels)
        assert Layout.from_record(json.loads(json.dumps(layout.record()))) == layout
        image = rng.integers(1, 1 << 16, (channels, rows * columns)).astype(np.uint16)
        sent = layout.laid(image.reshape(1, -1))
        assert (layout.taken(sent) == image.reshape(1, -1)).all()
        pixels = sent.reshape(rows * columns, -1)
        assert pixels.shape[1] % layout.align == 0
        assert (pixels[:, places] == image.T).all()
        assert (np.delete(pixels, places, axis=1) == 0).all()


def test_runs_of_places():
    assert runs_of(np.arange(7)) == ()
    assert runs_of(np.array([0, 1, 2, 8, 9, 16])) == ((0, 1, 3), (8, 1, 2), (16, 1, 1))
    flattened = (4 * np.arange(3) + np.arange(2)[:, None]).reshape(-1)
    assert runs_of(flattened) == ((0, 4, 3), (1, 4, 3))
    assert runs_of(np.array([3, 2])) == ((3, 1, 1), (2, 1, 1))


def test_images_are_sent_and_received_in_their_layout(firmware, path):
    layout = Layout(channels=3, rows=1, columns=1, align=8)
    result = Layout(channels=2, rows=2, columns=1, align=2)
    firmware = replace(firmware, input_layout=layout, output_layout=result)
    save_firmware(firmware, path)
    assert equal(load_firmware(path), firmware)
    message = unpack(TINY, firmware.input_message(np.arange(6, dtype=np.uint16).reshape(2, 3)), to_machine=True)
    assert np.frombuffer(message.payload, "<u2").tolist() == [0, 1, 2, 0, 0, 0, 0, 0, 3, 4, 5, 0, 0, 0, 0, 0]
    reply = pack(TINY, Message(kind=MessageKind.OUTPUT, count=2, payload=np.arange(4, dtype="<u2").tobytes()))
    assert firmware.output([reply]).tolist() == [0, 2, 1, 3]


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"channels": 4}, "the layout of the input has 4 x 1 x 1 elements, the network 3"),
    ({"align": 1}, "aligns positions to 1 elements, which is no multiple of the 2 lanes"),
    ({"rows": 0}, "layout: rows is 0, whole numbers from 1 on are needed"),
    ({"padding": (0, 0, -1, 0)}, "whole numbers from 0 on"),
    ({"padding": (0, 0)}, "padding is (0, 0), whole numbers from 0 on are needed, 4 of them"),
    ({"window": 3}, "window is 3, whole numbers from 1 on are needed, 2 of them"),
    ({"rows": (8,)}, "rows is (8,), whole numbers from 1 on are needed"),
    ({"places": ((0, 1),)}, "(0, 1) in places is no run of channels"),
    ({"places": ((0, 0, 3),)}, "(0, 0, 3) in places is no run of channels"),
    ({"places": ((0, 1, 2),)}, "places are those of the 3 channels of single pixels"),
    ({"places": ((0, 1, 2), (1, 1, 1))}, "places has one place for two channels"),
    ({"places": ((0, 1 << 30, 3),)}, "places has one beyond the 16,777,216"),
    ({"window": (2, 1)}, "a window of 2 x 1 pixels does not fit into an image of 1 x 1"),
])
def test_layouts_that_do_not_fit(firmware, changes, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        replace(firmware, input_layout=Layout(**{"channels": 3, "rows": 1, "columns": 1, "align": 8} | changes))


def test_a_result_without_some_elements_is_refused(firmware):
    layout = Layout(channels=1, rows=4, columns=1, align=2, stride=(2, 1))
    with pytest.raises(ValueError, match="the layout of the output leaves out elements"):
        replace(firmware, output_layout=layout)


def test_a_layout_in_a_file_is_checked(path):
    edited(path, lambda header: header.update(input_layout={"channels": 3}))
    assert "layout: " in refusal(path)
