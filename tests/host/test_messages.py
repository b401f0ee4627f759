"""Host messages: encoding, decoding, refusals, and the units that receive and send them."""

import zlib

import numpy as np
import pytest
from concord.golden.host.messages import (
    bias_message,
    input_message,
    packed_message,
    program_message,
    read_message,
    words_of,
    write_message,
)
from concord.golden.mvm.elements import unpack_tiles
from concord.hw.host.axi_streams import AxiStreams
from concord.hw.host.control import Control
from concord.hw.host.message_input import MessageInput
from concord.hw.host.message_output import MessageOutput
from concord.sim.machines.build import run
from concord.sim.stimulus.message_cases import items, malformed, message, to_machine
from concord.spec.host.messages import Message, MessageKind, item_bytes, pack, unpack
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset

PRESETS = ("tiny", "serial", "wide", "vision")


@pytest.mark.parametrize("name", [*PRESETS, "ulx3s", "trainer"])
def test_round_trip(name):
    config, rng = preset(name), np.random.default_rng(0)
    for kind in 20 * to_machine(config):
        sent = message(config, rng, kind)
        data = pack(config, sent)
        assert len(data) % config.message_bytes == 0
        assert unpack(config, data, to_machine=True) == sent


@pytest.mark.parametrize("name", PRESETS)
def test_refused(name):
    config, rng = preset(name), np.random.default_rng(0)
    for _ in range(20):
        for fault, data in malformed(config, rng).items():
            with pytest.raises(ValueError, match="message|memory|UPDATE|exponent"):
                print(fault, unpack(config, data, to_machine=True))


def test_layout():
    """The bytes are those in the host's documentation."""
    config = preset("tiny")
    data = pack(config, Message(kind=MessageKind.WRITE, memory=Mem.ADDSUB_VRF1, address=5, count=2,
                                payload=bytes(range(8))))
    head = bytes([1, 3, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0]) + config.digest.to_bytes(4, "little") + bytes(range(8))
    assert data == head + zlib.crc32(head).to_bytes(4, "little")


def test_from_arrays():
    config, rng = preset("serial"), np.random.default_rng(1)
    words = rng.integers(0, 65536, (3, config.mfu_lanes)).astype(np.uint16)
    for data in (write_message(config, Mem.INITIAL_VRF, words, 7), input_message(config, words)):
        assert (words_of(config, unpack(config, data, to_machine=True)) == words).all()
    read = unpack(config, read_message(config, Mem.MULTIPLY_VRF0, 4, 9), to_machine=True)
    assert (read.memory, read.address, read.count) == (Mem.MULTIPLY_VRF0, 9, 4)
    mantissas, exponents = rng.integers(-15, 16, (2, 4, 4)), rng.integers(0, 8, (2, 4))
    tiles = unpack(config, packed_message(config, mantissas, exponents, 3, integer=True), to_machine=True)
    assert tiles.integer
    for got, sent in zip(unpack_tiles(config, tiles.payload), (mantissas, exponents), strict=True):
        assert (got == sent).all()
    biases = rng.integers(-(1 << 15), 1 << 15, (2, config.mfu_lanes))
    assert np.frombuffer(unpack(config, bias_message(config, biases, 2), to_machine=True).payload, "<i4").tolist() \
        == biases.reshape(-1).tolist()
    program = [0x16, 1 << 63 | 1]
    assert np.frombuffer(unpack(config, program_message(config, program), to_machine=True).payload, "<u8").tolist() \
        == program


def test_items_match_the_array_view():
    """The items that hardware gives hold the fields that golden reads."""
    config, rng = preset("wide"), np.random.default_rng(2)
    words = rng.integers(0, 65536, (3, config.mfu_lanes)).astype(np.uint16)
    for k, item in enumerate(items(config, write_message(config, Mem.ADDSUB_VRF0, words, 7))["write"]):
        lanes = [item >> 20 + 16 * lane & 0xFFFF for lane in range(config.mfu_lanes)]
        assert (item & 15, item >> 4 & 0xFFFF, lanes) == (Mem.ADDSUB_VRF0, 7 + k, words[k].tolist())
    mantissas = np.zeros((1, 16, 16), int)
    mantissas[0, 5, 11] = -3
    exponents = np.zeros((1, 16), int)
    exponents[0, 5] = 9
    records = items(config, packed_message(config, mantissas, exponents, 4))["packed"]
    found = {item >> 17 & 0x1F: item >> 22 for item in records if item >> 22 & (1 << 24 + 4) - 1}
    group, lane = divmod(11, config.lanes)
    bits = config.weights.bits
    with_mantissa = 5 | group << 4
    assert found[with_mantissa] == -3 % (1 << bits) << bits * lane | 9 << bits * config.lanes
    assert found.keys() == {5, 5 | 1 << 4}
    assert len(records) == item_bytes(config, MessageKind.PACKED) // 4


@pytest.mark.parametrize("name", PRESETS)
def test_message_input(name):
    run(AxiStreams(MessageInput(preset(name)), {"i": "s_axis"}), "concord.sim.host.message_input", CONFIG=name)


@pytest.mark.parametrize("name", PRESETS)
def test_message_output(name):
    run(AxiStreams(MessageOutput(preset(name)), {"o": "m_axis"}), "concord.sim.host.message_output", CONFIG=name)


@pytest.mark.parametrize("name", ["tiny", "wide"])
def test_control(name):
    run(Control(preset(name)), "concord.sim.host.control", CONFIG=name)
