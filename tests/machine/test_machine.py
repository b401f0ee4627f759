"""Every paragraph of the meaning of chains, with results worked out by hand."""

import numpy as np
import pytest
from concord.golden.host.messages import bias_message, input_message, packed_message, program_message
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.memories import Mem
from concord.spec.machine.config import preset
from concord.tests.machines import bits, loaded, numbers, outputs, ran, words

TINY = preset("tiny")  # N = 8, M = 2, so that a native vector is 4 words
N = TINY.native_dim


def counted(machine):
    """The counters that are not 0, by name."""
    return {counter.name: value for counter, value in machine.counters.values.items() if value}


def multiplied(text, tiles, *, integer=False, biases=None, stored=11, **kwargs):
    """Run a machine whose first tiles hold mantissas. Stored exponent 11 is E = -4, so that mantissa 1 is 2**-11."""
    machine = loaded(TINY, text, **kwargs)
    tiles = np.asarray(tiles)
    machine.send(packed_message(TINY, tiles, np.full(tiles.shape[:2], stored), integer=integer))
    if biases is not None:
        machine.send(bias_message(TINY, np.asarray(biases).reshape(-1, TINY.mfu_lanes)))
    machine.start()
    machine.run()
    assert machine.read_register(Register.ERROR) == 0
    return machine


def diagonal(*values):
    """A tile with these values on its diagonal."""
    return np.diag(np.pad(np.array(values), (0, N - len(values))))


# Length


def test_a_chain_without_product_sees_rows_and_writes_zero_beyond():
    machine = ran(TINY, "s_wr Rows, 3\nv_rd InitialVrf, 0\nv_wr AddSubVrf0, 1\nend_chain\nend",
                  initial_vrf=[1, 2, 3, 4, 5], addsub_vrf0=[9] * 10)
    assert numbers(machine, Mem.ADDSUB_VRF0, 0, 8) == [9, 9, 1, 2, 3, 0, 9, 9]


def test_every_write_clears_padding_the_value_goes_on():
    text = "s_wr Rows, 1\nv_rd InitialVrf, 0\nv_wr AddSubVrf1, 0\nvv_add0 0\nv_wr NetQ\nend_chain\nend"
    machine = ran(TINY, text, initial_vrf=[1, 7], addsub_vrf0=[2, 2], addsub_vrf1=[5, 5])
    assert numbers(machine, Mem.ADDSUB_VRF1, 0, 2) == [1, 0]
    assert outputs(machine) == [[3, 0]]


def test_a_product_takes_columns_and_gives_rows():
    text = "s_wr Rows, 3\ns_wr Columns, 2\nv_rd NetQ\nmv_mul 0, integer\nv_wr NetQ\nend_chain\nend"
    machine = multiplied(text, [diagonal(1, 2, 3, 4), diagonal(10, 10, 10)], integer=True,
                         inputs=[*range(1, 9), *range(1, 9)])
    assert outputs(machine) == [[11, 24, 39, 0]]


# mv_mul


def test_tiles_lie_row_by_row():
    text = "s_wr Rows, 16\ns_wr Columns, 2\nv_rd NetQ\nmv_mul 0, integer\nv_wr NetQ\nend_chain\nend"
    tiles = [diagonal(1), diagonal(2), diagonal(3), diagonal(4)]
    machine = multiplied(text, tiles, integer=True, inputs=[1, *[0] * 7, 10, *[0] * 7])
    (result,) = outputs(machine)
    assert (result[0], result[8]) == (21, 43)


def test_block_mode_multiplies_real_numbers():
    text = "v_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\nend"
    machine = multiplied(text, [diagonal(64, -64, 32)], inputs=[1, 0.5, 1, 0, 0, 0, 0, 0])
    assert outputs(machine) == [[2.0 ** -5, -(2.0 ** -6), 2.0 ** -6, 0, 0, 0, 0, 0]]


def test_integer_mode_scales_adds_biases_and_takes_unsigned_codes():
    text = "s_wr OutScale, 2\ns_wr Rows, 4\nv_rd NetQ\nmv_mul 0, integer, bias 1{}\nv_wr NetQ\nend_chain\nend"
    biases = [99, 99, 8, -8, 1024, 0]
    signed = multiplied(text.format(""), [diagonal(4, 4, 4, 4)], integer=True, biases=biases,
                        inputs=[1, 2.5, 3.5, -4, 0, 0, 0, 0])
    assert outputs(signed) == [[(4 + 8) / 4, (8 - 8) / 4, (16 + 1024) / 4, -4]]
    # Unsigned codes 0..255 travel as code - 128; the bias puts 128 * sum of weights back.
    unsigned = multiplied(text.format(", unsigned"), [diagonal(4, 4, 4, 4)], integer=True,
                          biases=[99, 99, *[512] * 4], inputs=[200, 300, -5, 0.5, 0, 0, 0, 0])
    assert outputs(unsigned) == [[200, 255, 0, 0]]


def test_an_operand_is_read_before_its_results_are_written():
    text = "v_rd InitialVrf, 0\nmv_mul 0, integer\nv_wr InitialVrf, 0\nend_chain\nend"
    machine = multiplied(text, [np.ones((N, N), int)], integer=True, initial_vrf=[1] * 8)
    assert numbers(machine, Mem.INITIAL_VRF, 0, 8) == [8] * 8


def test_an_iteration_of_a_product_sees_what_the_one_before_wrote():
    text = "s_wr Iterations, 3\nv_rd InitialVrf, 0\nmv_mul 0, integer\nv_wr InitialVrf, 0\nend_chain\nend"
    machine = multiplied(text, [diagonal(2)], integer=True, initial_vrf=[1] * 8)
    assert numbers(machine, Mem.INITIAL_VRF, 0, 2) == [8, 0]


# Point-wise operations and taps


@pytest.mark.parametrize(("operation", "expected"), [
    ("vv_add0 0", 7), ("vv_a_sub_b0 0", 3), ("vv_b_sub_a0 0", -3), ("vv_max0 0", 5), ("vv_mul0 0", 15),
    ("vv_add1 0", 9), ("vv_a_sub_b1 0", 1), ("vv_b_sub_a1 0", -1), ("vv_max1 0", 5), ("vv_mul1 0", 35)])
def test_operations_read_the_memory_of_their_own_unit(operation, expected):
    machine = ran(TINY, f"s_wr Rows, 1\nv_rd NetQ\n{operation}\nv_wr NetQ\nend_chain\nend", inputs=[5],
                  addsub_vrf0=[2], multiply_vrf0=[3], addsub_vrf1=[4], multiply_vrf1=[7])
    assert outputs(machine) == [[expected, 0]]


@pytest.mark.parametrize("unit", [0, 1])
def test_activations(unit):
    text = "s_wr Rows, 2\n" + "".join(f"v_rd InitialVrf, 0\nv_{name}{unit}\nv_wr NetQ\nend_chain\n"
                                      for name in ("relu", "sigm", "tanh")) + "end"
    assert outputs(ran(TINY, text, initial_vrf=[-20, 20])) == [[0, 20], [0, 1], [-1, 1]]


def test_all_stages_in_order_with_taps():
    text = ("s_wr Rows, 1\nv_rd NetQ\nvv_add0 0\nv_relu0\nv_wr InitialVrf, 0\nvv_mul0 0\nvv_a_sub_b1 0\n"
            "v_wr AddSubVrf0, 1\nv_relu1\nvv_mul1 0\nv_wr NetQ\nend_chain\nend")
    machine = ran(TINY, text, inputs=[1], addsub_vrf0=[2], multiply_vrf0=[4], addsub_vrf1=[20], multiply_vrf1=[5])
    assert numbers(machine, Mem.INITIAL_VRF, 0, 1) == [3]
    assert numbers(machine, Mem.ADDSUB_VRF0, 1, 1) == [-8]
    assert outputs(machine) == [[0, 0]]


def test_bypassed_stages_pass_bits_unchanged():
    machine = loaded(TINY, "v_rd NetQ\nv_wr InitialVrf, 0\nend_chain\nend")
    patterns = np.array([0x7C01, 0xFE55, 0x8000, 0x0001, 0x7C00, 0xFC00, 0x7FFF, 0xFFFF], np.uint16).reshape(-1, 2)
    machine.send(input_message(TINY, patterns))
    machine.start()
    machine.run()
    assert (machine.memory.vectors[Mem.INITIAL_VRF][:4] == patterns).all()


def test_arithmetic_emits_one_nan():
    machine = loaded(TINY, "s_wr Rows, 2\nv_rd NetQ\nvv_add0 0\nv_wr InitialVrf, 0\nend_chain\nend")
    machine.send(input_message(TINY, np.array([[0x7C01, 0xFE55]], np.uint16)))
    machine.start()
    machine.run()
    assert machine.memory.vectors[Mem.INITIAL_VRF][0].tolist() == [0x7E00, 0x7E00]


# Iterations


def test_sources_move_along_x_and_y_operands_and_results_by_stride_out():
    text = ("s_wr Rows, 1\nset_iterations 4, 2\ns_wr StrideX, 3\ns_wr StrideY, 10\ns_wr StrideOut, 2\n"
            "v_rd_inc InitialVrf, 1\nvv_add0_inc 5\nvv_add1 0\nv_wr_inc MultiplyVrf0, 20\nv_wr NetQ\nend_chain\nend")
    source, operand = np.zeros((20, 2)), np.zeros((20, 2))
    source[[1, 4, 11, 14], 0] = [1, 2, 3, 4]
    operand[[5, 7, 9, 11], 0] = [10, 20, 30, 40]
    machine = ran(TINY, text, initial_vrf=source, addsub_vrf0=operand, addsub_vrf1=[100])
    assert outputs(machine) == [[111, 0], [122, 0], [133, 0], [144, 0]]
    assert numbers(machine, Mem.MULTIPLY_VRF0, 20, 14)[::4] == [111, 122, 133, 144]


def test_without_inc_addresses_stay():
    text = ("s_wr Rows, 1\nset_iterations 3\ns_wr StrideX, 1\nv_rd InitialVrf, 0\nvv_add0 0\nv_wr AddSubVrf0, 0\n"
            "end_chain\nend")
    machine = ran(TINY, text, initial_vrf=[5, 0, 7, 0], addsub_vrf0=[1])
    assert numbers(machine, Mem.ADDSUB_VRF0, 0, 1) == [16], "each iteration adds to what the one before has written"


# Word by word


def test_a_word_reads_what_an_earlier_word_wrote():
    text = "s_wr Rows, 8\nv_rd InitialVrf, 0\nv_wr InitialVrf, 1\nend_chain\nend"
    machine = ran(TINY, text, initial_vrf=[1, 2, *[0] * 8])
    assert numbers(machine, Mem.INITIAL_VRF, 0, 10) == [1, 2] * 5


def test_a_word_reads_before_a_later_word_writes():
    text = "s_wr Rows, 8\nv_rd InitialVrf, 1\nv_wr InitialVrf, 0\nend_chain\nend"
    machine = ran(TINY, text, initial_vrf=range(10))
    assert numbers(machine, Mem.INITIAL_VRF, 0, 10) == [2, 3, 4, 5, 6, 7, 8, 9, 8, 9]


def test_an_operand_is_read_before_the_words_own_writes():
    text = "s_wr Rows, 4\nv_rd InitialVrf, 0\nv_wr AddSubVrf0, 1\nvv_add0 1\nv_wr NetQ\nend_chain\nend"
    assert outputs(ran(TINY, text, initial_vrf=[1, 2, 3, 4])) == [[1, 2, 3, 4]]
    # One word after the tap: each word adds what the word before it has left there.
    behind = text.replace("vv_add0 1", "vv_add0 0")
    assert outputs(ran(TINY, behind, initial_vrf=[1, 2, 3, 4], addsub_vrf0=[50, 60])) == [[51, 62, 4, 6]]


def test_an_operand_does_not_see_the_tap_of_a_later_word():
    text = "s_wr Rows, 4\nv_rd InitialVrf, 0\nv_wr AddSubVrf0, 0\nvv_add0 1\nv_wr NetQ\nend_chain\nend"
    machine = ran(TINY, text, initial_vrf=[1, 2, 3, 4], addsub_vrf0=[0, 0, 50, 60, 70, 80])
    assert outputs(machine) == [[51, 62, 73, 84]]


# Queues


def test_mvm_queue_feeds_later_chains_in_order():
    push = "v_rd NetQ\nmv_mul 0, integer\nv_wr MvmQ\nend_chain\n"
    text = (f"s_wr Rows, 4\n{push}{push}s_wr Rows, 6\nv_rd MvmQ\nv_relu0\nv_wr NetQ\nend_chain\n"
            "s_wr Rows, 2\nv_rd MvmQ\nv_wr NetQ\nend_chain\nend")
    machine = multiplied(text, [diagonal(1, -1, 1, 1)], integer=True, inputs=[*range(1, 9), *range(11, 19)])
    assert outputs(machine) == [[1, 0, 3, 4, 11, 0], [13, 14]]


def test_start_clears_mvm_queue():
    push = "v_rd NetQ\nmv_mul 0, integer\nv_wr MvmQ\nend_chain\nend"
    machine = multiplied(push, [diagonal(1)], integer=True, inputs=[1] * 8)
    assert len(machine.memory.mvm) == 4
    machine.start()
    assert len(machine.memory.mvm) == 0


def test_each_iteration_is_one_output_message():
    text = "s_wr Rows, 3\nset_iterations 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nend"
    assert outputs(ran(TINY, text, inputs=range(1, 9))) == [[1, 2, 3, 0], [5, 6, 7, 0]]


def test_a_program_waits_for_words_and_goes_on_where_it_was():
    machine = loaded(TINY, "s_wr Rows, 4\nv_rd NetQ\nv_wr InitialVrf, 0\nv_wr NetQ\nend_chain\nend", inputs=[1, 2])
    machine.start()
    assert machine.run() == Status.RUNNING | Status.WAIT_INPUT
    assert numbers(machine, Mem.INITIAL_VRF, 0, 4) == [1, 2, 0, 0]
    assert outputs(machine) == []
    machine.send(input_message(TINY, words(TINY, [3, 4])))
    assert machine.run() == Status.DONE
    assert outputs(machine) == [[1, 2, 3, 4]]


def test_a_program_that_comes_while_another_runs_waits_for_its_end():
    machine = loaded(TINY, "s_wr Rows, 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nend")
    machine.start()
    assert machine.run() == Status.RUNNING | Status.WAIT_INPUT
    machine.send(input_message(TINY, words(TINY, [1, 2])))
    machine.send(program_message(TINY, assemble("end")))
    assert machine.run() == Status.DONE
    assert outputs(machine) == [[1, 2]]
    assert counted(machine)["INSTRUCTIONS"] == 5
    machine.start()
    assert machine.run() == Status.DONE
    assert counted(machine)["INSTRUCTIONS"] == 6


def test_words_beyond_what_a_program_takes_wait_for_the_next():
    machine = ran(TINY, "s_wr Rows, 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nend", inputs=[1, 2, 3, 4])
    machine.start()
    machine.run()
    assert outputs(machine) == [[1, 2], [3, 4]]


# m_rd, m_wr


def test_tiles_are_loaded_from_the_queue():
    text = ("set_iterations 2\nm_rd NetQ\nm_wr MatrixRf, 3, integer\nend_chain\nset_iterations 1\ns_wr Rows, 2\n"
            "s_wr Columns, 2\nv_rd InitialVrf, 0\nmv_mul 3, integer\nv_wr NetQ\nend_chain\nend")
    first, second = np.zeros((N, N)), np.zeros((N, N))
    first[0] = np.arange(8)
    second[1] = 200.4
    machine = ran(TINY, text, inputs=[*first.reshape(-1), *second.reshape(-1)], initial_vrf=[1] * 16)
    assert outputs(machine) == [[28, 8 * 127]]
    assert machine.memory.matrix.modes[2:6] == [False, True, True, False]


def test_a_product_after_a_load_sees_the_new_tile():
    text = ("s_wr Rows, 2\nloop 2\nv_rd InitialVrf, 0\nmv_mul 0\nv_wr NetQ\nend_chain\n"
            "m_rd NetQ\nm_wr MatrixRf, 0\nend_chain\nend_loop\nend")
    machine = ran(TINY, text, inputs=[*[1] * 64, *[2] * 64], initial_vrf=[1] * 8)
    assert outputs(machine) == [[0, 0], [8, 8]]


def test_a_loaded_block_tile_has_an_exponent_for_each_row():
    text = "m_rd NetQ\nm_wr MatrixRf, 0\nend_chain\ns_wr Rows, 4\nv_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\nend"
    tile = np.zeros((N, N))
    tile[:4, 0] = [1, 2.0 ** -10, 1000, 0]
    machine = ran(TINY, text, inputs=[*tile.reshape(-1), 1, *[0] * 7])
    assert outputs(machine) == [[1, 2.0 ** -10, 1000, 0]]


# Loops


def test_loops_repeat_chains_and_nest():
    add = "v_rd AddSubVrf0, 0\nvv_add1 0\nv_wr AddSubVrf0, 0\nend_chain\n"
    text = f"s_wr Rows, 1\nloop 3\nloop 4\n{add}end_loop\nv_rd NetQ\nv_wr NetQ\nend_chain\nend_loop\nend"
    machine = ran(TINY, text, addsub_vrf1=[1], inputs=[1, 0, 2, 0, 3, 0])
    assert numbers(machine, Mem.ADDSUB_VRF0, 0, 1) == [12]
    assert outputs(machine) == [[1, 0], [2, 0], [3, 0]]


# Counters


def test_counters_of_a_product():
    text = "s_wr Rows, 9\ns_wr Columns, 2\nset_iterations 2\nv_rd InitialVrf, 0\nmv_mul 0\nvv_add0 0\nv_sigm0\n"
    text += "v_wr AddSubVrf1, 0\nvv_mul1 0\nv_wr NetQ\nend_chain\nend"
    tiles = np.zeros((4, N, N), int)
    tiles[1, 0, 3], tiles[2, 5, 4] = 1, 1  # The zero marks are 0, 1, 2 and 0 lane groups of 4 lanes.
    machine = multiplied(text, tiles)
    assert counted(machine) == {
        "INSTRUCTIONS": 4 + 8 + 1, "CHAINS": 1, "READ_INITIAL_VRF": 16, "READ_ADDSUB_VRF0": 10,
        "READ_MULTIPLY_VRF1": 10, "WRITE_ADDSUB_VRF1": 10, "WRITE_NET_Q": 10, "ADD0": 10, "ACT0": 10, "MUL1": 10,
        "BEATS": 6, "TILES": 8, "VECTORS": 4}


def test_counters_of_loads_and_queues():
    text = "m_rd NetQ\nm_wr MatrixRf, 0\nend_chain\nv_rd NetQ\nmv_mul 0\nv_wr MvmQ\nend_chain\n"
    text += "v_rd MvmQ\nv_relu1\nv_wr InitialVrf, 0\nend_chain\nloop 2\nend_loop\nend"
    machine = ran(TINY, text, inputs=[1] * (N * N + N))
    assert counted(machine) == {
        "INSTRUCTIONS": 3 + 4 + 4 + 1 + 2 + 1, "CHAINS": 3, "READ_NET_Q": N * 4 + 4, "READ_MVM_Q": 4,
        "WRITE_MVM_Q": 4, "WRITE_INITIAL_VRF": 4, "ACT1": 4, "ROWS_LOADED": N, "BEATS": 2, "TILES": 1, "VECTORS": 1}


def test_counters_of_overflows():
    # 127 * 127 = 16129 does not fit 14 bits signed, and four of them do not fit 15: but the accumulator holds them.
    tile = np.zeros((N, N), int)
    tile[0, :4] = 127
    tile[1, 0] = 64
    text = "s_wr Rows, 2\nv_rd NetQ\nmv_mul 0, integer\nv_wr NetQ\nend_chain\nend"
    machine = multiplied(text, [tile], integer=True, inputs=[127] * 8)
    assert counted(machine)["OVERFLOW_PRODUCT"] == 4
    assert counted(machine)["EXCESS_PRODUCT"] == 1
    assert counted(machine)["OVERFLOW_OUTPUT"] == 1
    assert counted(machine)["EXCESS_OUTPUT"] == 2
    assert "OVERFLOW_PARTIAL" not in counted(machine)


def test_instructions_of_a_chain_that_does_not_run_do_not_count():
    machine = loaded(TINY, "s_wr Rows, 2\nv_rd NetQ\nv_wr NetQ\nend_chain\nv_rd NetQ\nv_wr InitialVrf, 64\nend_chain",
                     inputs=[1, 2, 3, 4])
    machine.start()
    assert machine.run() == Status.DONE
    assert counted(machine)["INSTRUCTIONS"] == 4
    assert outputs(machine) == [[1, 2]]


def test_counters_saturate_and_are_cleared():
    machine = ran(TINY, "v_rd NetQ\nv_wr NetQ\nend_chain\nend", inputs=[1] * 8)
    machine.counters.add(Counter.CHAINS, (1 << 32) - 2)
    machine.counters.add(Counter.CHAINS, 5)
    assert machine.read_register(Register.COUNTERS + 4 * Counter.CHAINS) == (1 << 32) - 1
    machine.clear()
    assert counted(machine) == {}


# Trace


def test_trace_tells_every_value():
    seen = []
    machine = loaded(TINY, "s_wr Rows, 3\nv_rd NetQ\nvv_add0 0\nv_wr NetQ\nend_chain\nend", inputs=[1, 2, 3, 4],
                     addsub_vrf0=[10] * 4)
    machine.executor.trace = lambda chain, address, first, values: seen.append(
        (chain.address, address, first, values.reshape(-1).tolist()))
    machine.start()
    machine.run()
    assert seen == [(1, 1, 0, bits([1, 2, 3, 4]).tolist()), (1, 2, 0, bits([11, 12, 13, 14]).tolist()),
                    (1, 3, 0, bits([11, 12, 13, 0]).tolist())]


# Softmax


SOFTMAX = preset("tiny_softmax")


def test_a_softmax_takes_the_rows_of_each_iteration():
    text = ("s_wr Rows, 3\ns_wr StrideX, 2\nset_iterations 2\nv_rd_inc InitialVrf, 0\nv_wr AddSubVrf0, 0\nv_softmax\n"
            "v_wr NetQ\nend_chain\nend")
    machine = ran(SOFTMAX, text, initial_vrf=[2, 2, 2, 50, 40, 10, -5, 7])
    third = float(np.float16(1 / 3))
    assert outputs(machine) == [[third, third, third, 0], [1, 0, 0, 0]]
    assert numbers(machine, Mem.ADDSUB_VRF0, 0, 4) == [40, 10, -5, 0]  # both iterations write the same words


def test_a_softmax_whose_words_depend_on_each_other_waits_for_the_last_one():
    text = "s_wr Rows, 4\nv_rd InitialVrf, 0\nv_wr InitialVrf, 1\nv_softmax\nv_wr NetQ\nend_chain\nend"
    machine = ran(SOFTMAX, text, initial_vrf=[3, 3, 60, 60])
    assert outputs(machine) == [[0.25, 0.25, 0.25, 0.25]]
    assert counted(machine)["WRITE_NET_Q"] == 2
