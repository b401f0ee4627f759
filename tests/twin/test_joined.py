"""The programs of several machines as one program, whose twin has the bits of the machines."""

from dataclasses import replace

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ROOM, ImageNetworkMaker
from concord.compiler.cascade import PartCompiler
from concord.firmware.cascade import Cascade
from concord.firmware.cascade_session import session_of
from concord.firmware.firmware import Firmware, Tiles
from concord.net.model import Model
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Op, decode
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.twin.flow.flow_of import flow_of
from concord.twin.flow.joined import joined
from concord.twin.generic.generic import generic
from concord.twin.lib.run import arrays, run
from concord.twin.recovery.recover import recover
from concord.twin.vocabulary import word_functions
from concord.verification.twins import TwinSession, differing

CONFIG = replace(preset("tiny"), **ROOM)


def residual(block: bool) -> Model:
    """Three convolutions, the first two of which are added, and a dense layer."""
    made = ImageNetworkMaker(np.random.default_rng(4), CONFIG, (3, 5, 4), block=block)
    first = made.conv("", 6, padding=(1, 1, 1, 1))
    second = made.conv(first, 6, padding=(1, 1, 1, 1))
    made.dense(made.conv(made.sum(first, second), 5, (1, 1)), 4)
    return made.model()


def several(model: Model, cut: list[str]) -> Cascade:
    return PartCompiler(model, [CONFIG] * (len(cut) + 1)).compiled(cut).cascade


def check(cascade: Cascade, samples: np.ndarray, layers: list[str]):
    """Assert that the layers of all machines are recovered, and that the twin has the bits of golden."""
    script = recover(joined(cascade))
    assert [routine.name for routine in script.routines] == layers
    shaped = samples if cascade.recurrent else samples.reshape(len(samples), *script.inputs)
    with np.errstate(all="ignore"):
        found = run(script, shaped.view(np.float16), word_functions, arrays(script)).view(np.uint16)
    with session_of(cascade, "golden") as session:
        assert not differing(np.stack([session.infer(sample) for sample in samples]), found)


@pytest.mark.parametrize("block", [False, True])
def test_a_network_of_images_is_one_again(block):
    """Both terms of the sum cross the first cut, and one of them both cuts of three machines."""
    model, samples = residual(block), networks.inputs(np.random.default_rng(1), 2, 60)
    layers = ["conv0", "conv1", "sum2", "conv3", "dense4"]
    for cut in ["conv1"], ["conv0", "conv1"]:
        check(several(model, cut), samples, layers)


@pytest.mark.parametrize("block", [False, True])
def test_loops_over_time_steps_become_one(block):
    model = networks.recurrent(np.random.default_rng(4), CONFIG, [5, 7, 6], block=[block, block], outputs=4)
    for cut in ["lstm1"], ["lstm0", "lstm1"]:
        cascade = several(model, cut)
        check(cascade, networks.inputs(np.random.default_rng(1), 2, 4, 5), ["lstm0", "lstm1", "dense_layer"])
        assert sum(decode(word).op == Op.LOOP for word in joined(cascade).instruction_words.tolist()) == 1


def test_word_by_word():
    cascade, samples = several(residual(False), ["conv1"]), networks.inputs(np.random.default_rng(1), 2, 60)
    script = generic(flow_of(joined(cascade)))
    words = np.stack([cascade.first.words_of(sample).reshape(-1) for sample in samples])
    with np.errstate(all="ignore"):
        found = run(script, words.view(np.float16), word_functions, arrays(script)).view(np.uint16)
    with session_of(cascade, "golden") as session:
        for sample, each in zip(samples, found, strict=True):
            np.testing.assert_array_equal(session.infer(sample), cascade.last.result(each.reshape(-1)))


def firmware(text: str, numbers: int = 16) -> Firmware:
    """A program that takes as many numbers as it sends."""
    tiles = Tiles(mantissas=np.zeros((0, 8, 8), np.int16), exponents=np.zeros((0, 8), np.int8),
                  integer=np.zeros(0, bool))
    return Firmware(
        name="copy", config=CONFIG, data="none", classes=(), inputs=numbers, outputs=numbers, loop=None, text=text,
        instruction_words=np.array(assemble(text), np.uint64), sections=(), vectors={}, tiles=tiles,
        biases=np.zeros((0, 2), np.int32), input_words=CONFIG.words_of(numbers))


def test_each_machine_begins_with_the_registers_after_a_start():
    copy = "v_rd NetQ\nv_relu0\nv_wr NetQ\nend_chain\n"
    parts = firmware(f"s_wr Iterations, 2\n{copy}end\n"), firmware(f"{copy}{copy}end\n")
    cascade = Cascade(name="copies", parts=parts, cuts=("",))
    sample = networks.inputs(np.random.default_rng(1), 1, 16)[0]
    assert len(flow_of(joined(cascade)).outputs.item) == 8
    with session_of(cascade, "golden") as session:
        found = TwinSession(joined(cascade)).infer(sample)
        np.testing.assert_array_equal(found, session.infer(sample))


def test_a_word_behind_those_that_a_firmware_fills_is_no_word_of_the_next_machine():
    write = "v_rd NetQ\nv_wr InitialVrf, 0\nv_wr NetQ\nend_chain\n"
    read = "v_rd InitialVrf, 0\nv_wr NetQ\nend_chain\n"
    drop = "v_rd NetQ\nv_wr AddSubVrf0, 0\nend_chain\n"
    stored = np.arange(0x3C00, 0x3C08, dtype=np.uint16).reshape(-1, CONFIG.mfu_lanes)
    second = replace(firmware(f"{drop}{read}end\n", 8), vectors={Mem.INITIAL_VRF: stored})
    cascade = Cascade(name="copies", parts=(firmware(f"{write}end\n", 8), second), cuts=("",))
    sample = networks.inputs(np.random.default_rng(1), 1, 8)[0]
    np.testing.assert_array_equal(TwinSession(joined(cascade)).infer(sample), stored.reshape(-1))
    with session_of(cascade, "golden") as session:
        np.testing.assert_array_equal(session.infer(sample), stored.reshape(-1))


def test_machines_of_other_formats_have_no_common_program():
    other = replace(CONFIG, native_dim=16, lanes=8)
    model = networks.mlp(np.random.default_rng(5), CONFIG, [10, 13, 5], block=False)
    with pytest.raises(ValueError, match="its machines differ in native_dim, and one program cannot compute for both"):
        joined(PartCompiler(model, [CONFIG, other]).compiled(["dense0"]).cascade)
