"""Every paragraph on VectorRf, windows and pooling, with results worked out by hand or by plain loops over an image."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.host.messages import entries_message, entries_of, input_message, packed_message, read_message
from concord.spec.host.messages import Message, MessageKind, pack, unpack
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.machines import bits, loaded, outputs, ran, words

TINY = preset("tiny")  # N = 8, M = 2, so that a native vector is 4 words; unsigned codes have the zero point 128
N = TINY.native_dim


def entry(machine, address):
    """Mantissas and stored exponent of an entry."""
    entries = machine.memory.entries
    return entries.mantissas[address].tolist(), int(entries.exponents[address])


def filled(text, mantissas, *, stored=0, tiles=None, integer=True, config=TINY, **kwargs):
    """Run a machine whose VectorRf holds mantissas [n, N] from entry 0 on, and whose first tiles hold `tiles`."""
    machine = loaded(config, text, **kwargs)
    mantissas = np.asarray(mantissas)
    machine.send(entries_message(config, mantissas, np.broadcast_to(stored, len(mantissas))))
    if tiles is not None:
        machine.send(packed_message(config, np.asarray(tiles), np.zeros((len(tiles), N), int), integer=integer))
    machine.start()
    machine.run()
    assert machine.read_register(Register.ERROR) == 0
    return machine


# Writing


@pytest.mark.parametrize(("mode", "padding"), [(", integer", 0), (", integer, unsigned", -128)])
def test_padding_is_zero_before_the_quantizer(mode, padding):
    text = f"s_wr Rows, 11\nv_rd NetQ\nv_wr VectorRf, 3{mode}\nend_chain\nend"
    machine = ran(TINY, text, inputs=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 99])
    zero = -padding
    assert entry(machine, 3) == ([k - zero for k in range(1, 9)], 0)
    assert entry(machine, 4) == ([9 - zero, 10 - zero, 11 - zero] + [padding] * 5, 0)
    assert machine.counters.values[Counter.VECTORS] == machine.counters.values[Counter.WRITE_VECTOR_RF] == 2


def test_a_block_has_the_exponent_of_its_largest_element_padding_included():
    machine = ran(TINY, "s_wr Rows, 3\nv_rd NetQ\nv_wr VectorRf, 0\nend_chain\nend", inputs=[0.75, -3, 0.5, 100])
    assert entry(machine, 0) == ([24, -96, 16, 0, 0, 0, 0, 0], 2 + 15)  # E = 2: one unit is 2**-5


def test_what_goes_on_is_not_quantized():
    machine = ran(TINY, "s_wr Rows, 2\nv_rd NetQ\nv_wr VectorRf, 0, integer\nv_wr NetQ\nend_chain\nend",
                  inputs=[0.25, 7.75])
    assert entry(machine, 0)[0][:2] == [0, 8]
    assert outputs(machine) == [[0.25, 7.75]]


def test_strides_step_over_borders():
    text = ("s_wr Rows, 8\nset_iterations 6, 3\ns_wr StrideVec, 2\ns_wr SkipVec, 5\nv_rd NetQ\n"
            "v_wr_inc VectorRf, 1, integer\nend_chain\nend")
    machine = ran(TINY, text, inputs=np.repeat(np.arange(1, 7), 8))
    found = machine.memory.entries.mantissas[:, 0].tolist()
    assert [(address, value) for address, value in enumerate(found) if value] == [
        (1, 1), (3, 2), (5, 3), (12, 4), (14, 5), (16, 6)]


def test_an_entry_without_inc_keeps_the_last_iteration():
    machine = ran(TINY, "set_iterations 3\nv_rd NetQ\nv_wr VectorRf, 4, integer\nend_chain\nend",
                  inputs=np.repeat([1, 2, 3], 8))
    assert entry(machine, 4)[0] == [3] * 8


def test_the_flag_of_invalid_numbers_is_set_by_lanes_that_are_written():
    text = "s_wr Rows, {}\nv_rd InitialVrf, 0\nv_wr VectorRf, 0\nend_chain\nend"
    for rows, flag in ((3, Status(0)), (4, Status.INVALID_VECTOR)):
        machine = ran(TINY, text.format(rows), initial_vrf=[1, 1, 1, np.inf])
        assert machine.status & Status.INVALID_VECTOR == flag
    assert entry(machine, 0)[0][:4] == [0, 0, 0, 127]  # 65504 has the exponent 16, and 1 is below half a unit


def test_a_reset_loses_the_words_of_an_unfinished_entry():
    machine = loaded(TINY, "v_rd NetQ\nv_wr VectorRf, 0, integer\nend_chain\nend", inputs=[9] * 6)
    machine.start()
    assert machine.run() & Status.WAIT_INPUT
    machine.reset()
    machine.send(input_message(TINY, words(TINY, range(1, 9))))
    machine.start()
    machine.run()
    assert entry(machine, 0)[0] == list(range(1, 9))


# Reading


def test_entries_as_numbers():
    modes = ("", ", integer", ", integer, unsigned")
    text = "".join(f"v_rd VectorRf, 1{mode}\nv_wr NetQ\nend_chain\n" for mode in modes)
    machine = filled(text + "end", [[0] * 8, [1, -128, 0, 127, 3, -4, 5, 6]], stored=[0, 15 + 3])
    block, integers, codes = outputs(machine)
    assert block == [1 / 16, -8, 0, 127 / 16, 3 / 16, -1 / 4, 5 / 16, 3 / 8]
    assert integers == [1, -128, 0, 127, 3, -4, 5, 6]
    assert codes == [129, 0, 128, 255, 131, 124, 133, 134]
    assert machine.counters.values[Counter.READ_VECTOR_RF] == 12


def test_strides_of_numbers_count_entries():
    text = "s_wr Rows, 3\nset_iterations 4, 2\ns_wr StrideX, 2\ns_wr StrideY, 5\nv_rd_inc VectorRf, 1, integer\n"
    machine = filled(text + "v_wr NetQ\nend_chain\nend", np.arange(12)[:, None] + 10 * np.arange(8))
    assert outputs(machine) == [[k, k + 10, k + 20, 0] for k in (1, 3, 6, 8)]


# Products


def convolved(image, weights, stride, dilation=1):
    """Sums [outputs, rows, columns] of an image [channels, rows, columns] that has its border, by loops."""
    outputs_, _, *size = weights.shape
    rows, columns = ((extent - dilation * (k - 1) - 1) // stride + 1 for extent, k in zip(
        image.shape[1:], size, strict=True))
    sums = np.zeros((outputs_, rows, columns), int)
    for o, y, x in np.ndindex(sums.shape):
        for i, j in np.ndindex(*size):
            sums[o, y, x] += weights[o, :, i, j] @ image[:, y * stride + i * dilation, x * stride + j * dilation]
    return sums


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_a_window_is_a_convolution(stride, dilation):
    config, rng = replace(TINY, vector_rf=96), np.random.default_rng(stride)
    image, weights = rng.integers(-9, 10, (16, 6, 7)), rng.integers(-9, 10, (8, 16, 2, 3))
    want = convolved(image, weights, stride, dilation)
    rows, columns = want.shape[1:]
    # Two entries a pixel, so a row of the image has 14; tile (y, x, u) holds channels 8 u to 8 u + 7.
    tiles = weights.reshape(8, 2, 8, 2, 3).transpose(3, 4, 1, 0, 2).reshape(12, 8, 8)
    text = (f"s_wr Rows, 8\ns_wr Columns, 12\ns_wr WindowVectors, 2\ns_wr WindowX, 3\ns_wr WindowY, 2\n"
            f"s_wr WindowStep, {2 * dilation}\ns_wr WindowPitch, {14 * dilation}\n"
            f"set_iterations {rows * columns}, {columns}\ns_wr StrideX, {2 * stride}\ns_wr StrideY, {14 * stride}\n"
            "v_rd_inc VectorRf, 0\nmv_mul 0, integer, window\nv_wr NetQ\nend_chain\nend")
    entries = image.transpose(1, 2, 0).reshape(-1, 8)
    machine = filled(text, entries, tiles=tiles, config=config)
    assert np.array(outputs(machine)).tolist() == want.transpose(1, 2, 0).reshape(-1, 8).tolist()
    assert machine.counters.values[Counter.READ_VECTOR_RF] == 12 * rows * columns
    assert machine.counters.values[Counter.VECTORS] == 0


def test_row_tiles_of_a_depthwise_convolution_see_their_own_channels():
    rng = np.random.default_rng(3)
    image, weights = rng.integers(-9, 10, (16, 2, 5)), rng.integers(-9, 10, (16, 3))
    tiles = np.zeros((2, 3, 8, 8), int)
    for channel, x in np.ndindex(16, 3):
        tiles[channel // 8, x, channel % 8, channel % 8] = weights[channel, x]
    text = ("s_wr Rows, 16\ns_wr Columns, 3\ns_wr WindowX, 3\ns_wr WindowStep, 2\ns_wr WindowGroup, 1\n"
            "set_iterations 6, 3\ns_wr StrideX, 2\ns_wr StrideY, 10\n"
            "v_rd_inc VectorRf, 0\nmv_mul 0, integer, window\nv_wr NetQ\nend_chain\nend")
    machine = filled(text, image.transpose(1, 2, 0).reshape(-1, 8), tiles=tiles.reshape(6, 8, 8))
    want = [[int(weights[c] @ image[c, y, x:x + 3]) for c in range(16)] for y in range(2) for x in range(3)]
    assert outputs(machine) == want


def test_an_average_is_a_product_with_identity_tiles():
    machine = filled("s_wr Columns, 4\ns_wr WindowX, 2\ns_wr WindowY, 2\ns_wr WindowPitch, 3\nv_rd VectorRf, 0\n"
                     "mv_mul 0, integer, window\nvv_mul0 0\nv_wr NetQ\nend_chain\nend",
                     np.arange(5)[:, None] * 10 + np.arange(8), tiles=[np.eye(8, dtype=int)] * 4,
                     multiply_vrf0=[0.25] * 8)
    assert outputs(machine) == [[(0 + 10 + 30 + 40 + 4 * k) / 4 for k in range(8)]]


def test_columns_without_window_follow_each_other_and_are_many():
    columns = TINY.operand_columns + 3
    machine = filled(f"s_wr Columns, {columns}\ns_wr WindowX, 0\nv_rd VectorRf, 2\nmv_mul 0, integer\nv_wr NetQ\n"
                     "end_chain\nend", np.arange(columns + 2)[:, None] + 0 * np.arange(8),
                     tiles=[np.eye(8, dtype=int)] * columns)
    assert outputs(machine) == [[sum(range(2, columns + 2))] * 8]


# Pooling


def test_pooling_of_words_with_overlapping_windows():
    text = ("s_wr Rows, 3\ns_wr WindowX, 2\ns_wr WindowY, 2\ns_wr WindowStep, 2\ns_wr WindowPitch, 6\n"
            "set_iterations 2\ns_wr StrideX, 2\nv_rd_inc InitialVrf, 0\nv_pool_max\nv_wr NetQ\nend_chain\nend")
    image = np.array([[[1, -5, 3], [4, -2, 2], [0, 9, -9]], [[2, -7, 8], [-1, -3, 1], [5, 0, 0]]])
    padded = np.pad(image, ((0, 0), (0, 0), (0, 1)))  # a pixel has two words
    machine = ran(TINY, text, initial_vrf=padded)
    assert outputs(machine) == [[4, -2, 8, 0], [5, 9, 2, 0]]
    assert machine.counters.values[Counter.POOL] == 4
    assert machine.counters.values[Counter.READ_INITIAL_VRF] == 16


def test_pooling_of_codes_and_of_blocks():
    text = "s_wr WindowX, 3\n" + "".join(
        f"v_rd VectorRf, 0{mode}\nv_pool_max\nv_wr VectorRf, {8 + k}{mode}\nv_wr NetQ\nend_chain\n"
        for k, mode in enumerate(("", ", integer, unsigned"))) + "end"
    codes = [[-128, 5, 0, 1, 2, 3, 4, 5], [7, -128, 0, 0, 0, 0, 0, 0], [-3, 6, -128, 100, -100, 0, 1, 127]]
    machine = filled(text, codes, stored=[15, 14, 16])
    block, pooled = outputs(machine)
    assert block == [7 / 256, 12 / 128, 0, 200 / 128, 2 / 128, 3 / 128, 4 / 128, 254 / 128]
    largest = [7, 6, 0, 100, 2, 3, 4, 127]
    assert pooled == [128 + each for each in largest]
    assert entry(machine, 9) == (largest, 0)


def test_a_window_of_one_pixel_keeps_every_pattern():
    patterns = np.array([0x7C01, 0xFE00, 0x8000, 0xFC00, 0x0001, 0x7E00, 0x7C00, 0xFFFF], np.uint16).view(np.float16)
    machine = ran(TINY, "v_rd InitialVrf, 0\nv_pool_max\nv_wr MultiplyVrf0, 0\nend_chain\nend", initial_vrf=patterns)
    assert (machine.memory.vectors[Mem.MULTIPLY_VRF0][:4].ravel() == bits(patterns)).all()


# Messages


def test_entries_are_written_and_read_by_messages():
    rng, machine = np.random.default_rng(1), loaded(TINY, "end")
    mantissas, stored = rng.integers(-128, 128, (5, 8)), rng.integers(0, 32, 5)
    machine.send(entries_message(TINY, mantissas, stored, 43))
    machine.send(read_message(TINY, Mem.VECTOR_RF, 4, 44))
    reply = unpack(TINY, machine.receive()[0], to_machine=False)
    assert (reply.kind, reply.memory, reply.address, reply.count) == (MessageKind.READ, Mem.VECTOR_RF, 44, 4)
    for got, want in zip(entries_of(TINY, reply), (mantissas, stored), strict=True):
        assert (got == want[1:]).all()


@pytest.mark.parametrize(("size", "address"), [(48, 48), (0, 0)])
def test_messages_beyond_the_last_entry_are_refused(size, address):
    config = replace(TINY, vector_rf=size)
    machine = loaded(config, "end")
    machine.send(pack(config, Message(kind=MessageKind.READ, memory=Mem.VECTOR_RF, address=address, count=1)))
    assert machine.read_register(Register.ERROR) == 10
