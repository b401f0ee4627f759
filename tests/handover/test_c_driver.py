"""The C driver on the Verilated machine: golden's bits, and a result of its own for everything that goes wrong."""

import ctypes
from ctypes import POINTER, byref, c_size_t, c_uint8, c_uint16, pointer

import numpy as np
import pytest
from concord.campaigns.makers import networks
from concord.campaigns.makers.image_networks import ImageNetworkMaker, geometry
from concord.compiler.network import compile_network
from concord.firmware.layout import Layout, runs_of
from concord.golden.host.messages import input_message, program_message
from concord.handover.memory_images import MemoryFile, assembled
from concord.net import network
from concord.net.cells.registry import CELLS
from concord.net.model import INPUT
from concord.sim.machines.library import Library
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.instructions import Error, Op
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.c_driver import CLayout, Driver, Network
from concord.tests.small_networks import small

TINY = preset("tiny")


def models(rng):
    """Networks of every form of input and output: vectors, sequences from both ends or of fixed steps, images.

    The last one has two images and a vector as its outputs.
    """
    yield networks.mlp(rng, TINY, [13, 9, 5], block=True)
    yield networks.both_directions(rng, TINY, block=False, cell=CELLS["gru"])
    images = ImageNetworkMaker(rng, TINY, (2, 4, 3), block=False)
    images.conv(images.conv(INPUT, 3, (2, 2), padding=(1, 0, 0, 1)), 3, (2, 2), stride=(2, 1), padding=(0, 1, 1, 0))
    yield images.model()
    yield small(np.random.default_rng(0), TINY, block=False)
    heads = ImageNetworkMaker(rng, TINY, (2, 4, 3), block=False)
    first = heads.conv(INPUT, 3, (2, 2))
    second = heads.conv(first, 5, (2, 2), stride=(2, 1))
    heads.concat(first, second, heads.dense(second, 3))
    yield heads.model()


def samples_of(rng, firmware):
    """Three samples, sequences of different lengths if the network is recurrent, one of them longer than NetQ."""
    if firmware.steps:
        return list(networks.inputs(rng, 3, firmware.steps, firmware.inputs))
    if firmware.recurrent:
        return [networks.inputs(rng, steps, firmware.inputs) for steps in (3, 1, 5, TINY.net_in // 8 + 3)]
    return list(networks.inputs(rng, 3, firmware.inputs))


@pytest.mark.parametrize("number", range(5), ids=["vectors", "both directions", "images", "fixed steps", "heads"])
def test_results_are_goldens(number, tmp_path):
    rng = np.random.default_rng(number)
    model = list(models(rng))[number]
    firmware = compile_network(model, TINY).firmware
    samples = samples_of(rng, firmware)
    link = Library(TINY, seed=1, gap=0.2, stall=0.2)
    driver = Driver(tmp_path, firmware, samples, link)
    assert (driver.open(), driver.load()) == ("OK", "OK")
    for sample in samples:
        name, result = driver.infer(sample)
        assert name == "OK"
        np.testing.assert_array_equal(result, network.forward(model, sample[None])[-1].outputs[0])
        assert driver.nnp.status == Status.DONE
    link.close()


def test_a_program_without_input(tmp_path):
    text = "v_rd InitialVrf, 0\nv_wr NetQ\nend_chain\nend"
    np.save(tmp_path / "x.npy", np.float16([3, 4]))
    image = MemoryFile(mem=Mem.INITIAL_VRF, address=0, path=tmp_path / "x.npy")
    firmware = assembled("constant", TINY, text, assemble(text), [image], inputs=None, outputs=None)
    driver = Driver(tmp_path, firmware, [np.zeros(0, np.uint16)], Library(TINY))
    assert (driver.open(), driver.load()) == ("OK", "OK")
    name, result = driver.infer(np.zeros(0, np.uint16))
    assert (name, result.view(np.float16).tolist()) == ("OK", [3, 4, 0, 0, 0, 0, 0, 0])
    driver.link.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A driver with a loaded network of sequences, whose machine is in order before each test and after it."""
    rng = np.random.default_rng(5)
    firmware = compile_network(networks.recurrent(rng, TINY, [3, 4], block=[False], outputs=3), TINY).firmware
    made = Driver(tmp_path_factory.mktemp("driver"), firmware, [networks.inputs(rng, 4, 3)], Library(TINY))
    made.sample = networks.inputs(rng, 4, 3)
    assert (made.open(), made.load()) == ("OK", "OK")
    made.wanted = made.infer(made.sample)[1]
    yield made
    made.link.close()


@pytest.fixture
def mended(driver):
    """The driver of a test that breaks something: after a reset and a new load it gives golden's bits again."""
    yield driver
    driver.broken, driver.overrides = False, {}
    assert (driver.call("reset"), driver.load()) == ("OK", "OK")
    name, result = driver.infer(driver.sample)
    assert (name, result.tolist()) == ("OK", driver.wanted.tolist())


def test_the_digest_register_of_another_machine(mended):
    mended.overrides = {Register.DIGEST: TINY.digest ^ 1}
    sent = len(mended.sent)
    assert mended.open() == "OTHER_MACHINE"
    assert len(mended.sent) == sent


def test_firmware_for_another_machine_is_not_sent(mended):
    other = preset("serial")
    sent = len(mended.sent)
    assert mended.load(program_message(other, assemble("end"))) == "OTHER_FIRMWARE"
    assert len(mended.sent) == sent


@pytest.mark.parametrize("damage", ["bit", "end", "header", "nothing but a header", "count"])
def test_damaged_firmware_is_not_sent(mended, damage):
    whole = b"".join(mended.firmware.memory_messages())
    message = bytearray(whole)
    if damage == "bit":
        message[-20] ^= 4
    elif damage == "header":
        message[0] = 77
    elif damage == "count":
        message[8:12] = b"\xff" * 4
    else:
        del message[-4 if damage == "end" else 16:]
    sent = len(mended.sent)
    assert mended.load(bytes(message)) == "DAMAGED"
    assert len(mended.sent) == sent


def test_a_program_that_stops_says_why_and_where(mended):
    address = mended.firmware.loop + 2
    assert mended.send(program_message(TINY, [0xFF], address)) == "OK"
    assert mended.infer(mended.sample)[0] == "STOPPED"
    assert (mended.nnp.error, mended.nnp.error_address) == (Error.ILLEGAL, address)
    assert mended.c.nnp_error_text(mended.nnp.error).startswith(b"ILLEGAL: The opcode is unknown")


def test_a_message_that_the_machine_refuses(mended):
    message = bytearray(mended.firmware.program_message())
    message[20] ^= 1
    assert mended.send(bytes(message)) == "OK"
    assert mended.call("start") == "REFUSED"
    assert mended.call("wait") == "REFUSED"
    assert mended.nnp.error == Error.MESSAGE


def test_a_program_that_waits_for_input_in_vain(mended):
    mended.call("start")
    mended.nnp.polls = 40
    assert mended.call("wait") == "TIMEOUT"
    assert Status(mended.nnp.status) == Status.RUNNING | Status.WAIT_INPUT
    mended.nnp.polls = mended.polls


def test_a_transfer_that_fails(mended):
    mended.broken = True
    assert mended.infer(mended.sample)[0] == "TRANSFER"
    assert mended.open() == "TRANSFER"


@pytest.mark.parametrize("patient", [False, True])
def test_inputs_that_nobody_took_are_dropped_by_a_reset(mended, patient):
    """A program that ends at once leaves its input in NetQ and after it, and two more messages after that."""
    mended.send(program_message(TINY, assemble("end")))
    mended.call("settle")
    long, short = (mended.firmware.input_message(np.resize(mended.sample[::-1], (steps, 3))) for steps in (200, 5))
    mended.nnp.polls, before, mended.polls, mended.patient = 100, mended.polls, 100, patient
    assert mended.infer(np.resize(mended.sample, (200, 3)))[0] == ("TRANSFER" if patient else "TIMEOUT")
    for message in (long, short):
        mended.link.send(message)
    assert mended.call("reset") == "OK"
    mended.nnp.polls = mended.polls = before
    mended.patient = True
    assert mended.send(mended.firmware.program_message()) == "OK"
    name, result = mended.infer(mended.sample)
    assert (name, result.tolist()) == ("OK", mended.wanted.tolist())


@pytest.mark.parametrize(("arguments", "result"), [
    ({"steps": 0}, "ARGUMENT"), ({"steps": 65536}, "ARGUMENT"), ({"capacity": 40}, "SPACE")])
def test_numbers_out_of_range(driver, arguments, result):
    assert driver.infer(driver.sample, **arguments)[0] == result
    assert driver.infer(driver.sample)[0] == "OK"


def test_layouts_are_goldens(driver):
    """Random windows, strides, paddings and dilations of random images, and channels at random places."""
    rng = np.random.default_rng(9)
    for number in range(240):
        channels, rows, columns = (int(n) for n in rng.integers(1, 6, 3))
        window, more = geometry(rng, (channels, rows, columns))
        if number >= 200:
            window, more = (1, 1), {"places": runs_of(rng.permutation(2 * channels)[:channels])}
        layout = Layout(channels=channels, rows=rows, columns=columns, window=window, **more,
                        align=TINY.mfu_lanes * int(rng.integers(1, 5)))
        sample = rng.integers(1, 1 << 16, layout.size).astype(np.uint16)
        wanted = input_message(TINY, layout.laid(sample).reshape(-1, TINY.mfu_lanes))
        given = CLayout.of(layout)
        made = Network(b"", layout.size, 1, 0, 0, -1, 0, 1, (c_uint8 * 1)(0), pointer(given), None)
        got, size = (c_uint8 * len(wanted))(), c_size_t()
        assert driver.c.nnp_input(byref(made), sample.ctypes.data_as(POINTER(c_uint16)), 1, got, c_size_t(len(got)),
                                  byref(size)) == 0
        assert bytes(got) == wanted


def test_every_result_has_a_sentence(driver):
    texts = {driver.c.nnp_text(k) for k in range(12)}
    assert len(texts) == 12
    assert all(text.endswith(b".") for text in texts)
    assert driver.c.nnp_text(12) == b"The driver has no such result."


def test_counters(driver):
    driver.c.nnp_clear(ctypes.byref(driver.nnp))
    driver.infer(driver.sample)
    executed = driver.link.read(Register.COUNTERS + 4 * Counter.INSTRUCTIONS)
    assert driver.c.nnp_counter(ctypes.byref(driver.nnp), Counter.INSTRUCTIONS) == executed > 0


def test_binary16_is_numpys(driver):
    """Every binary16 number, and float32 numbers on and beside the middle between two of them."""
    driver.c.nnp_to_float.restype = ctypes.c_float
    driver.c.nnp_from_float.restype = ctypes.c_uint16
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[~np.isnan(halves.view(np.float16))]
    back = np.array([driver.c.nnp_to_float(ctypes.c_uint16(int(bits))) for bits in halves[::7]], np.float32)
    np.testing.assert_array_equal(back, halves[::7].view(np.float16).astype(np.float32))
    numbers = halves.view(np.float16).astype(np.float32)
    middle = (numbers[:-1] / 2 + numbers[1:] / 2)[::5]
    near = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf)),
                           np.float32([65519.996, 65520, 1e30, -1e30, 2**-25, 2**-24, 1e-40, 0.0, -0.0])])
    got = [driver.c.nnp_from_float(ctypes.c_float(value)) for value in near.tolist()]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(np.array(got, np.uint16), near.astype(np.float16).view(np.uint16))


def test_the_opcode_of_loop(driver):
    """The driver changes the number of time steps by one instruction, which is that of the firmware."""
    driver.infer(driver.sample)
    sent = len(driver.sent)
    driver.infer(np.resize(driver.sample, (7, 3)))
    (message,) = (data for data in driver.sent[sent:] if data[0] == 5)
    words = driver.firmware.program(7)
    assert message == program_message(TINY, words[driver.firmware.loop:][:1], driver.firmware.loop)
    assert words[driver.firmware.loop] & 0xFF == Op.LOOP
