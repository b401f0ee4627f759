"""Memory outside the chip in golden: tiles, entries, integers and numbers move as the spec says; chains are checked."""

from dataclasses import replace

import numpy as np
import pytest
from concord.golden.machine import Machine
from concord.golden.mvm.quantizer import quantize
from concord.golden.schedule.dram import pack, pack_tile, unpack, unpack_tile
from concord.spec.host.messages import Message, MessageKind
from concord.spec.host.messages import pack as pack_message
from concord.spec.host.messages import unpack as unpack_message
from concord.spec.host.registers import Counter, Register, Status
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.dram import entries_words, tile_words
from concord.spec.isa.instructions import Error
from concord.spec.isa.memories import Mem
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import Config, preset

FAR = 70_000  #: An address of more than 16 bits.


def outside(name: str) -> Config:
    """A preset with 100,000 words of Dram."""
    return replace(preset(name), dram_words=100_000, dram_bus=8)


TINY = outside("tiny")


def words_of(rng, config, count):
    """Random words of finite numbers."""
    return rng.normal(size=(count, config.mfu_lanes)).astype(np.float16).view(np.uint16)


def ready(config, text, dram=()) -> Machine:
    """A machine with a program, and words of Dram from addresses up, as messages bring them."""
    machine = Machine(config)
    for address, words in dram:
        machine.send(pack_message(config, Message(
            kind=MessageKind.WRITE, memory=Mem.DRAM, address=address, count=len(words), payload=words.tobytes())))
    program = np.array(assemble(text), "<u8")
    machine.send(pack_message(config, Message(kind=MessageKind.PROGRAM, count=len(program), payload=program.tobytes())))
    return machine


def run(config, text, dram=()) -> Machine:
    """The machine after a program that ends."""
    machine = ready(config, text, dram)
    machine.start()
    assert machine.run() & Status.DONE
    assert machine.read_register(Register.ERROR) == Error.NONE
    return machine


def refused(text, config=TINY) -> Violation:
    """Why a program stops, which the walk of all passes says, too."""
    words = assemble(text)
    found = check(words, config)
    with pytest.raises(Violation) as walked:
        list(Sequencer(config, words, [False] * config.matrix_tiles).walk())
    assert str(found) == str(walked.value)
    return found


def test_messages_write_and_read_any_address():
    words = words_of(np.random.default_rng(0), TINY, 5)
    machine = ready(TINY, "end", [(FAR, words)])
    machine.send(pack_message(TINY, Message(kind=MessageKind.READ, memory=Mem.DRAM, address=FAR + 1, count=3)))
    reply = unpack_message(TINY, *machine.receive(), to_machine=False)
    assert (reply.memory, reply.address, reply.payload) == (Mem.DRAM, FAR + 1, words[1:4].tobytes())
    machine.send(pack_message(TINY, Message(kind=MessageKind.READ, memory=Mem.DRAM, address=99_999, count=2)))
    assert machine.read_register(Register.ERROR) == Error.MESSAGE


@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "tiny_float"])
@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("diagonal", [False, True])
def test_tiles_are_loaded(name, integer, diagonal):
    """Three tiles that lie one after the other far away, by a base register."""
    config, rng = outside(name), np.random.default_rng(1)
    n, count = config.native_dim, tile_words(config, integer=integer, diagonal=diagonal)
    numbers = rng.normal(scale=0.5 if not integer else 2, size=(3, n, n)).astype(np.float16).view(np.uint16)
    tiles = [quantize(one, config.weights, integer=integer) for one in numbers]
    tiles = [(np.diag(np.diagonal(mantissas)) if diagonal else mantissas, exponents) for mantissas, exponents in tiles]
    packed = [pack_tile(config, *tile, integer=integer, diagonal=diagonal) for tile in tiles]
    assert {len(words) for words in packed} == {count}
    modes = ", integer" * integer + ", diagonal" * diagonal
    machine = run(config, f"s_wr Base2, {FAR}\nset_iterations 3\nm_rd_inc Dram, 7 + Base2\n"
                          f"m_wr MatrixRf, 4{modes}\nend_chain\nend", [(FAR + 7, np.concatenate(packed))])
    for k, (mantissas, exponents) in enumerate(tiles, 4):
        np.testing.assert_array_equal(machine.memory.matrix.mantissas[k], mantissas)
        np.testing.assert_array_equal(machine.memory.matrix.exponents[k], 0 if integer else exponents)
        assert machine.memory.matrix.modes[k] == integer
        used = (mantissas.reshape(n, config.groups, config.lanes) != 0).any((0, 2))
        assert machine.memory.matrix.marks[k] == (np.nonzero(used)[0] + 1).max(initial=0)
    assert machine.counters.values[Counter.READ_DRAM] == 3 * count
    assert machine.counters.values[Counter.ROWS_LOADED] == 0


def test_a_load_without_inc_reads_the_same_tile_again():
    config, tile = TINY, np.arange(64).reshape(8, 8) - 30
    words = pack_tile(config, tile, np.zeros(8, int), integer=True)
    machine = run(config, "set_iterations 2\nm_rd Dram, 3\nm_wr MatrixRf, 0, integer\nend_chain\nend", [(3, words)])
    np.testing.assert_array_equal(machine.memory.matrix.mantissas[:3], [tile, tile, 0 * tile])


@pytest.mark.parametrize("name", ["tiny", "serial", "wide", "tiny_float"])
@pytest.mark.parametrize("integer", [False, True])
def test_entries_go_out_and_come_back(name, integer):
    """Two iterations of an odd number of entries; what comes back is what was there, though numbers would round."""
    config, rng = outside(name), np.random.default_rng(2)
    n, mode = config.native_dim, ", integer" * integer
    rows = 2 * n + 1  # three entries
    size = entries_words(config, 3, integer=integer)
    x = words_of(rng, config, 6 * config.vector_words)
    machine = run(config, f"""
        s_wr Rows, {6 * n}
        v_rd Dram, 5
        v_wr VectorRf, 0{mode}
        end_chain
        s_wr Rows, {rows}
        s_wr StrideX, 3
        s_wr StrideOut, {size}
        set_iterations 2
        v_rd_inc VectorRf, 0{mode}
        v_wr_inc Dram, {FAR - 60_000}, raw
        end_chain
        s_wr StrideX, {size}
        s_wr StrideVec, 3
        v_rd_inc Dram, {FAR - 60_000}, raw
        v_wr_inc VectorRf, 7{mode}
        end_chain
        end""", [(5, x)])
    mantissas, exponents = machine.memory.entries.operands(np.arange(13))
    assert mantissas[:6].any()
    np.testing.assert_array_equal(mantissas[7:], mantissas[:6])
    np.testing.assert_array_equal(exponents[7:], exponents[:6])
    first = machine.memory.vectors[Mem.DRAM][FAR - 60_000:][:size]
    codes, stored = unpack(config, config.activations, first, 3 * n, 0 if integer else 3)
    np.testing.assert_array_equal(codes, mantissas[:3].reshape(-1))
    np.testing.assert_array_equal(stored, exponents[:0 if integer else 3])
    values = machine.counters.values
    assert (values[Counter.WRITE_DRAM], values[Counter.READ_DRAM]) == (2 * size, 2 * size + len(x))
    assert values[Counter.WRITE_VECTOR_RF] == 12
    assert values[Counter.READ_VECTOR_RF] == 6 * config.vector_words


def test_integers_go_to_bias_rf():
    """Two words of Dram are one of BiasRf, which keeps the low bits."""
    config = outside("serial")
    biases = np.random.default_rng(3).integers(-1 << 31, 1 << 31, (3, config.mfu_lanes)).astype("<i4")
    machine = run(config, f"s_wr Rows, {3 * config.mfu_lanes}\nv_rd Dram, 9, raw\nv_wr BiasRf, 2\nend_chain\nend",
                  [(9, biases.view(np.uint16).reshape(-1, config.mfu_lanes))])
    wanted = (biases.astype(np.int64) + (1 << 15)) % (1 << 16) - (1 << 15)
    np.testing.assert_array_equal(machine.memory.biases[1:6], [[0] * 4, *wanted, [0] * 4])


def test_numbers_pass_through_operations_and_taps():
    config, rng = TINY, np.random.default_rng(4)
    x, y = words_of(rng, config, 4), words_of(rng, config, 4)
    machine = run(config, f"""
        s_wr Rows, 8
        v_rd Dram, 0
        v_wr AddSubVrf0, 0
        end_chain
        s_wr Base1, {FAR}
        v_rd Dram, 4
        v_wr Dram, 9 + Base1
        vv_add0 0
        v_wr NetQ
        end_chain
        v_rd Dram, 9 + Base1
        v_wr Dram, 20
        end_chain
        end""", [(0, np.concatenate([x, y]))])
    dram = machine.memory.vectors[Mem.DRAM]
    np.testing.assert_array_equal(dram[FAR + 9:FAR + 13], y)
    np.testing.assert_array_equal(dram[20:24], y)
    (message,) = machine.receive()
    got = np.frombuffer(unpack_message(config, message, to_machine=False).payload, np.float16)
    np.testing.assert_array_equal(got, (x.view(np.float16) + y.view(np.float16)).reshape(-1))


def test_a_loop_moves_a_base_register_beyond_16_bits():
    """Equal to walking all passes; the last pass reaches the last word."""
    text = "s_wr Rows, 2\nloop 1000\nv_rd Dram, 99 + Base3\nv_wr Dram, {}\nend_chain\ns_add Base3, 100\nend_loop\nend"
    assert check(assemble(text.format(0)), TINY) is None
    far = text.replace("99 + Base3", "100 + Base3").format(0)
    assert refused(far).error == Error.RANGE
    assert "address 100000 of Dram, whose last address is 99999" in refused(far).sentence
    meets = refused(text.format(60_099))
    assert (meets.error, meets.address) == (Error.RANGE, 3)
    assert "writes 60099 to 60099 of Dram, and the chain reads 60099 to 60099" in meets.sentence


@pytest.mark.parametrize(("text", "error", "sentence"), [
    ("v_rd Dram, 0\nmv_mul 0\nv_wr NetQ", Error.ILLEGAL, "mv_mul must follow v_rd, and neither of MvmQ nor of Dram"),
    ("v_rd Dram, 0\nv_pool_max\nv_wr NetQ", Error.ILLEGAL, "v_pool_max must follow v_rd, and neither of a queue nor"),
    ("v_rd Dram, 0, raw\nv_wr NetQ", Error.ILLEGAL, "only v_wr VectorRf and v_wr BiasRf may follow v_rd Dram, raw"),
    ("v_rd Dram, 0, raw\nv_relu0\nv_wr VectorRf, 0", Error.ILLEGAL, "only v_wr VectorRf and v_wr BiasRf may follow"),
    ("v_rd Dram, 0, raw\nv_wr VectorRf, 0, unsigned, integer", Error.ILLEGAL, "leave out unsigned"),
    ("v_rd Dram, 0, raw\nv_wr VectorRf, 0\nv_wr NetQ", Error.ILLEGAL, "only end_chain may follow the write of what"),
    ("v_rd NetQ\nv_wr Dram, 0, raw", Error.ILLEGAL, "v_wr Dram, raw must follow v_rd VectorRf"),
    ("v_rd VectorRf, 0\nv_wr NetQ\nv_wr Dram, 0, raw", Error.ILLEGAL, "what moves raw is written right after it was"),
    ("v_rd NetQ\nv_wr BiasRf, 0", Error.ILLEGAL, "v_wr BiasRf must follow v_rd Dram, raw"),
    ("m_rd NetQ\nm_wr MatrixRf, 0, diagonal", Error.ILLEGAL, "diagonal is for tiles from Dram"),
    ("m_rd Dram, 99983\nm_wr MatrixRf, 0", Error.RANGE, "it goes up to address 100000 of Dram"),
    ("v_rd Dram, 0, raw\nv_wr BiasRf, 29", Error.RANGE, "it goes up to address 32 of BiasRf"),
    ("v_rd VectorRf, 0\nv_wr Dram, 99998, raw", Error.RANGE, "it goes up to address 100000 of Dram"),
    ("v_rd InitialVrf, 0\nvv_add0 0\nv_wr Dram, 99998\nv_wr NetQ", Error.RANGE, "up to address 100001 of Dram"),
    ("s_wr Base1, 4294967295\ns_add Base1, 1\nv_rd NetQ\nv_wr NetQ", Error.RANGE, "holds 0 to 4294967295"),
])
def test_chains_that_are_refused(text, error, sentence):
    text = text.replace("99983", "34447 + Base2").replace("99998", "34462 + Base2")
    found = refused(f"s_wr Base2, 65536\n{text}\nend_chain\nend")
    assert (found.error, sentence in found.sentence) == (error, True), found


@pytest.mark.parametrize(("text", "sentence"), [
    ("v_rd Dram, 0\nv_wr NetQ", "there is no memory 11: this machine has no Dram, because its dram_words is 0"),
    ("m_rd Dram, 4\nm_wr MatrixRf, 0", "m_rd takes an address on machines with Dram only, and dram_words is 0"),
    ("s_wr Base1, 65536", "s_wr takes a number of more than 16 bits on machines with Dram only"),
    ("s_add Base1, 32768", "s_add takes a number of more than 16 bits on machines with Dram only"),
    ("m_rd NetQ\nm_wr MatrixRf, 0, diagonal", "m_wr takes diagonal on machines with Dram only"),
    ("v_rd NetQ\nv_wr BiasRf, 0", "v_wr does not take BiasRf"),
])
def test_machines_without_dram(text, sentence):
    assert sentence in refused(f"{text}\nend_chain\nend", preset("tiny")).sentence


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"dram_words": 100}, "dram_bus = 0 must be 4 or 8 or 16 or 32 or 64 with dram_words = 100"),
    ({"dram_bus": 8}, "dram_bus = 8 must be 0 with dram_words = 0"),
    ({"dram_words": 1 << 30, "dram_bus": 8, "mfu_lanes": 4, "native_dim": 8},
     "dram_words = 1073741824 is too large: 536870912 words of 4 lanes are 4,294,967,296 bytes"),
])
def test_impossible_memories(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        replace(preset("tiny"), **changes)


def test_what_is_packed_is_unpacked():
    """Tiles and entries of every preset, at the ends of their ranges, too."""
    rng = np.random.default_rng(5)
    for name in ("tiny", "serial", "wide", "ulx3s", "vision", "tiny_float"):
        config = outside(name)
        n, fmt = config.native_dim, config.weights
        tile = rng.choice([fmt.lowest, 0, 1, fmt.highest], (n, n))
        exponents = rng.choice([0, fmt.e_max - fmt.e_min], n)
        mantissas, stored = unpack_tile(config, pack_tile(config, tile, exponents))
        np.testing.assert_array_equal(mantissas, tile)
        np.testing.assert_array_equal(stored, exponents)
        assert len(pack(config, fmt, tile[0], [])) == -(-n * fmt.code_bits // (16 * config.mfu_lanes))
