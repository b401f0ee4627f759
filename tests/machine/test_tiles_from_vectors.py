"""Tiles of vectors in golden: what lies where, against numpy; attention of several heads; chains that are refused."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.machine import Machine
from concord.golden.mvm.quantizer import quantize
from concord.spec.host.messages import Message, MessageKind, pack, unpack
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import MEMORY_NAMES, VRFS, Mem, depth
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import preset

TINY = replace(preset("tiny"), dram_words=1000, dram_bus=8)  # N = 8, M = 2


def ready(config, text, memories=()) -> Machine:
    """A machine with a program, and words in memories from address 0 on."""
    machine = Machine(config)
    for mem, words in dict(memories).items():
        machine.send(pack(config, Message(kind=MessageKind.WRITE, memory=mem, count=len(words),
                                          payload=words.tobytes())))
    program = np.array(assemble(text), "<u8")
    machine.send(pack(config, Message(kind=MessageKind.PROGRAM, count=len(program), payload=program.tobytes())))
    return machine


def run(config, text, memories=()) -> Machine:
    """The machine after a program that ends."""
    machine = ready(config, text, memories)
    machine.start()
    assert machine.run() & Status.DONE
    assert machine.read_register(Register.ERROR) == Error.NONE
    return machine


def words_of(rng, config, count):
    """Random words of finite numbers."""
    return rng.normal(size=(count, config.mfu_lanes)).astype(np.float16).view(np.uint16)


def refused(text, config=TINY) -> tuple[Error, int]:
    """Error and address of a program that stops, which the walk of all passes says, too."""
    words = assemble(text)
    found = check(words, config)
    with pytest.raises(Violation) as walked:
        list(Sequencer(config, words, [False] * config.matrix_tiles).walk())
    assert str(found) == str(walked.value)
    return found.error, found.address


@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "tiny_float"])
@pytest.mark.parametrize("mem", VRFS)
@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_tile_has_a_vector_in_each_row_or_column_and_zeros_elsewhere(name, mem, integer, transposed):
    config = replace(preset(name), dram_words=1000, dram_bus=8)
    n, size = config.native_dim, config.vector_words
    rng = np.random.default_rng([n, mem, integer, transposed])
    words = words_of(rng, config, depth(config, mem))
    if integer:
        words = rng.integers(-9, 9, words.shape).astype(np.float16).view(np.uint16)
    room = len(words) // size  # native vectors
    count = min(n - 1, room // 2)
    first = size // 2  # the tile's vectors begin in the middle of a native one
    rows = (size - first) * config.mfu_lanes - (config.mfu_lanes > 1)
    modes = ", integer" * integer + ", transposed" * transposed
    machine = run(config, f"s_wr Rows, {rows}\nset_iterations {2 * count}, {count}\ns_wr StrideX, {size}\n"
                          f"s_wr StrideY, {size * (room - count)}\nm_rd_inc {MEMORY_NAMES[mem]}, {first}\n"
                          f"m_wr MatrixRf, 3{modes}\nend_chain\nend", {mem: words})
    matrix = machine.memory.matrix
    for tile in range(2):
        expected = np.zeros((n, n), np.uint16)
        for v in range(count):
            vector = words[(v + tile * (room - count)) * size:][:size].reshape(-1).copy()
            vector[:first * config.mfu_lanes] = 0
            vector[first * config.mfu_lanes + rows:] = 0
            expected[v] = vector
        mantissas, exponents = quantize(expected.T if transposed else expected, config.weights, integer=integer)
        assert (matrix.mantissas[3 + tile] == mantissas).all()
        assert (matrix.exponents[3 + tile] == exponents).all()
        assert (matrix.marks[3 + tile], matrix.modes[3 + tile]) == (config.groups, integer)
    assert machine.counters.values[Counter[f"READ_{mem.name}"]] == 2 * count * config.words_of(rows)
    assert machine.counters.values[Counter.ROWS_LOADED] == 2 * n


def test_without_inc_all_vectors_are_the_same_one():
    words = words_of(np.random.default_rng(1), TINY, 8)
    machine = run(TINY, "set_iterations 2, 2\nm_rd InitialVrf, 4\nm_wr MatrixRf, 0\nend_chain\nend",
                  {Mem.INITIAL_VRF: words})
    mantissas, _ = quantize(words[4:].reshape(1, -1), TINY.weights, integer=False)
    assert (machine.memory.matrix.mantissas[0, :2] == mantissas).all()
    assert not machine.memory.matrix.mantissas[0, 2:].any()


@pytest.mark.parametrize(("value", "flagged"), [(0x7C00, True), (0x7E00, True), (0x7BFF, False)])
@pytest.mark.parametrize("lane", [5, 6])
def test_flags_look_at_the_elements_of_the_tile(value, flagged, lane):
    words = np.zeros((4, 2), np.uint16)
    words.reshape(-1)[lane] = value
    machine = run(TINY, "s_wr Rows, 6\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain\nend", {Mem.INITIAL_VRF: words})
    assert bool(machine.status & Status.INVALID_MATRIX) == (flagged and lane < 6)


def test_tiles_of_loads_and_products_move_with_bases():
    """Three tiles are loaded and multiplied in loops, and give what one product of all of them gives."""
    words = words_of(np.random.default_rng(2), TINY, 64)
    load = ("set_iterations 8, 8\ns_wr StrideX, 4\nloop 2\nm_rd_inc InitialVrf, 0 + Base1\nm_wr MatrixRf, 1 + Base2\n"
            "end_chain\ns_add Base1, 32\ns_add Base2, 1\nend_loop\nset_iterations 1\n")
    loops = ("s_wr Base3, 0\nloop 2\nv_rd InitialVrf, 8\nmv_mul 1 + Base3\nv_wr NetQ\nend_chain\ns_add Base3, 1\n"
             "end_loop\nend")
    whole = "s_wr Rows, 16\nv_rd InitialVrf, 8\nmv_mul 1\nv_wr NetQ\nend_chain\nend"
    parts, at_once = (run(TINY, load + text, {Mem.INITIAL_VRF: words}).receive() for text in (loops, whole))
    assert len(parts) == 2
    assert b"".join(unpack(TINY, one, to_machine=False).payload for one in parts) == unpack(
        TINY, *at_once, to_machine=False).payload


@pytest.mark.parametrize(("text", "error", "address"), [
    ("s_wr Rows, 9\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.SIZE, 1),
    ("set_iterations 9, 9\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.SIZE, 2),
    ("s_wr IterationsX, 0\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.SIZE, 1),
    ("set_iterations 3, 2\nm_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.WINDOW, 2),
    ("m_rd InitialVrf, 1\nm_wr MatrixRf, 0\nend_chain", Error.ALIGN, 0),
    ("s_wr Rows, 5\nm_rd InitialVrf, 2\nm_wr MatrixRf, 0\nend_chain", Error.ALIGN, 1),
    ("s_wr StrideX, 3\nm_rd_inc InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.ALIGN, 1),
    ("s_wr StrideY, 2\nm_rd_inc InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain", Error.ALIGN, 1),
    ("set_iterations 2, 2\ns_wr StrideX, 4\nm_rd_inc InitialVrf, 60\nm_wr MatrixRf, 0\nend_chain", Error.RANGE, 3),
    ("set_iterations 4, 2\nm_rd InitialVrf, 0\nm_wr MatrixRf, 31\nend_chain", Error.RANGE, 3),
    ("s_wr Base1, 31\nm_rd InitialVrf, 0\nm_wr MatrixRf, 1 + Base1\nend_chain", Error.RANGE, 2),
    ("s_wr Base1, 4294967295\nv_rd NetQ\nmv_mul 1 + Base1\nv_wr NetQ\nend_chain", Error.RANGE, 2),
    ("m_rd NetQ\nm_wr MatrixRf, 0, transposed\nend_chain", Error.ILLEGAL, 1),
    ("m_rd Dram, 0\nm_wr MatrixRf, 0, transposed\nend_chain", Error.ILLEGAL, 1),
    ("m_rd InitialVrf, 0\nm_wr MatrixRf, 0, diagonal\nend_chain", Error.ILLEGAL, 1),
    ("m_rd InitialVrf, 0\nv_wr NetQ\nend_chain", Error.ILLEGAL, 1),
    ("m_rd InitialVrf, 0\nm_wr MatrixRf, 0, integer\nend_chain\nv_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain",
     Error.FORMAT, 4)])
def test_what_is_refused(text, error, address):
    assert refused(text + "\nend") == (error, address)


@pytest.mark.parametrize("text", [
    "m_rd InitialVrf, 0\nm_wr MatrixRf, 0\nend_chain\nend", "v_rd NetQ\nmv_mul 0 + Base1\nv_wr NetQ\nend_chain\nend",
    "m_rd NetQ\nm_wr MatrixRf, 0 + Base1\nend_chain\nend"])
def test_other_machines_have_neither(text):
    assert refused(text, preset("tiny"))[0] == Error.ILLEGAL


@pytest.mark.parametrize(("heads", "positions"), [(1, 8), (2, 11), (4, 5)])
def test_attention_of_several_heads_is_that_of_its_tiles(heads, positions):
    """Heads share native vectors, and their tiles are zero outside of them; all numbers and sums here are exact."""
    config, n = TINY, TINY.native_dim
    rng, tiles, size = np.random.default_rng([heads, positions]), -(-positions // n), n // heads
    queries, keys, values = (rng.integers(-3, 4, (positions, n)).astype(np.float16) for _ in range(3))
    weights = np.zeros((heads, tiles * n), np.float16)
    weights[:, :positions] = rng.integers(0, 5, (heads, positions)) / 4
    text = f"s_wr Rows, {size}\ns_wr StrideX, 4\n"
    for first, begin, flag in ((0, 0, ""), (heads * tiles, 4 * positions, ", transposed")):
        for head in range(heads):
            for tile in range(tiles):
                address = head * size // config.mfu_lanes + begin + 4 * n * tile
                count = min(n, positions - n * tile)
                text += (f"set_iterations {count}\nm_rd_inc InitialVrf, {address}\n"
                         f"m_wr MatrixRf, {first + head * tiles + tile}{flag}\nend_chain\n")
    text += (f"set_iterations 1\ns_wr Rows, {heads * tiles * n}\nv_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\n"
             f"s_wr Rows, {n}\ns_wr Columns, {heads * tiles}\nv_rd AddSubVrf0, 0\nmv_mul {heads * tiles}\nv_wr NetQ\n"
             "end_chain\nend")
    large = replace(config, initial_vrf=128, accumulator_rows=128, addsub_vrf=64, operand_columns=8)
    machine = ready(large, text, {
        Mem.INITIAL_VRF: np.concatenate([keys, values]).view(np.uint16).reshape(-1, 2),
        Mem.ADDSUB_VRF0: weights.view(np.uint16).reshape(-1, 2)})
    machine.send(pack(large, Message(kind=MessageKind.INPUT, count=4, payload=queries[:1].tobytes())))
    machine.start()
    assert machine.run() & Status.DONE
    scores, mixed = (np.frombuffer(unpack(large, one, to_machine=False).payload, np.float16)
                     for one in machine.receive())
    scores = scores.reshape(heads, tiles * n)
    assert not scores[:, positions:].any()
    parts = (queries[0] * keys).reshape(positions, heads, size).sum(-1)
    assert np.array_equal(scores[:, :positions].T, parts)
    expected = np.einsum("hp,phs->hs", weights[:, :positions].astype(float),
                         values.reshape(positions, heads, size).astype(float)).reshape(-1)
    assert (mixed == expected).all()
