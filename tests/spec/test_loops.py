"""Base registers and loops: what they mean, and the first violation in closed form against a walk of all passes."""

import random
import time
from collections import Counter
from dataclasses import replace

import pytest
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.instructions import FIELDS, LOOP_DEPTH, Error, Instruction, Op, Reg, encode
from concord.spec.isa.loops import _hits
from concord.spec.isa.memories import Mem
from concord.spec.isa.rules import Violation
from concord.spec.machine.config import preset

TINY = preset("tiny")  # N = 8, M = 2: 4 words a native vector; 64 words of InitialVrf, 48 entries of VectorRf
LARGE = replace(TINY, initial_vrf=4096, addsub_vrf=4096, vector_rf=4096)
OUTSIDE = replace(TINY, dram_words=80, dram_bus=4)
ONE_WORD = "s_wr Rows, 2\n"
COPY = "v_rd InitialVrf, {}\nv_wr AddSubVrf0, {}\nend_chain\n"


def walked(program, config=TINY, constants=0):
    """The sentence of the first violation, from a walk through all passes, or None."""
    try:
        for _ in Sequencer(config, program, [False] * config.matrix_tiles, constants).walk():
            pass
    except Violation as violation:
        return str(violation)
    return None


def found(text, config=TINY):
    """The error and the address of the first violation of a program, which the walk finds too."""
    program = assemble(text)
    violation = check(program, config)
    assert (violation and str(violation)) == walked(program, config)
    return violation and (violation.error, violation.address)


def test_bases_are_added_to_addresses():
    text = (f"{ONE_WORD}s_wr Base1, 3\ns_wr Base3, 40\ns_add Base3, -4\nv_rd InitialVrf, 1 + Base1\nvv_add0 2 + Base3\n"
            "v_wr InitialVrf, 0\nv_wr VectorRf, 4 + Base1, integer\nend_chain\nend")
    (chain,) = Sequencer(TINY, assemble(text), [False] * 32).walk()
    assert [instruction.a for instruction in chain.instructions] == [4, 38, 0, 7]
    assert all(instruction.base == 0 for instruction in chain.instructions)


def test_bases_move_in_loops_and_are_zero_at_the_start():
    text = f"{ONE_WORD}loop 3\n{COPY.format('0 + Base1', '5')}s_add Base1, 2\nend_loop\nend"
    sequencer = Sequencer(TINY, assemble(text), [False] * 32)
    for _ in range(2):
        assert [chain.source.a for chain in sequencer.walk()] == [0, 2, 4]


@pytest.mark.parametrize(("text", "error", "address"), [
    ("v_rd NetQ\ns_add Base1, 1", Error.ILLEGAL, 1),
    ("s_add Base2, -1", Error.RANGE, 0),
    ("s_wr Base1, 65535\ns_add Base1, 0\ns_add Base1, 1", Error.RANGE, 2),
    ("s_wr Base1, 40000\ns_add Base1, -32768\ns_add Base1, -7233", Error.RANGE, 2),
    ("s_wr Base1, 60\nv_rd InitialVrf, 1 + Base1\nv_wr NetQ\nend_chain", Error.RANGE, 1),
    ("s_wr Base1, 65535\nv_rd InitialVrf, 65535 + Base1\nv_wr NetQ\nend_chain", Error.RANGE, 1),
    ("s_wr Base1, 1\nv_rd InitialVrf, 0 + Base1\nmv_mul 0\nv_wr NetQ\nend_chain", Error.ALIGN, 1),
    ("s_wr Base1, 4\nv_rd VectorRf, 0 + Base1\nv_wr VectorRf, 4\nend_chain", Error.RANGE, 2),
    ("loop 1\n" * (LOOP_DEPTH + 1), Error.LOOP, LOOP_DEPTH),
])
def test_wrong_bases(text, error, address):
    assert found(text) == (error, address)


@pytest.mark.parametrize("word", [
    encode(Instruction(op=Op.V_RD, mem=Mem.NET_Q, base=1)), encode(Instruction(op=Op.S_ADD, mem=Reg.ROWS)),
    encode(Instruction(op=Op.S_ADD, mem=99)), encode(Instruction(op=Op.MV_MUL)) | FIELDS["base"].put(1)])
def test_what_names_no_base(word):
    violation = check([word], TINY)
    assert (violation.error, violation.address) == (Error.ILLEGAL, 0)


def test_the_pass_that_leaves_the_memory():
    body = f"{ONE_WORD}loop {{}}\nv_rd InitialVrf, 10 + Base2\nv_wr NetQ\nend_chain\ns_add Base2, 3\nend_loop\nend"
    assert found(body.format(18)) is None
    assert found(body.format(19)) == (Error.RANGE, 2)


def test_the_first_of_several_failing_instructions():
    text = (f"{ONE_WORD}loop 100\nv_rd InitialVrf, 0 + Base1\nvv_add0 3 + Base2\nv_wr NetQ\nend_chain\n"
            "s_add Base1, 1\ns_add Base2, 2\nend_loop\nend")
    assert found(text) == (Error.RANGE, 3)


def test_a_register_that_the_body_sets_moves_once():
    text = (f"{ONE_WORD}s_wr Base1, 60\nloop 9\nv_rd InitialVrf, 0 + Base1\nv_wr NetQ\nend_chain\n"
            "s_wr Base1, {}\nend_loop\nend")
    assert found(text.format(63)) is None
    assert found(text.format(64)) == (Error.RANGE, 3)


def test_a_write_that_meets_the_source_in_an_inner_loop():
    text = (f"{ONE_WORD}s_wr Base2, 20\nloop 6\nloop 3\nv_rd VectorRf, 0 + Base1\nv_wr VectorRf, 2 + Base2\nend_chain\n"
            "s_add Base1, 1\nend_loop\ns_add Base2, -2\nend_loop\nend")
    assert found(text) == (Error.RANGE, 5)


@pytest.mark.parametrize(("constants", "legal"), [(11, True), (12, False), (20, False), (44, False)])
def test_the_pass_that_writes_constants(constants, legal):
    """Nine passes write the words 43, 39, ... 11 of Dram; the last case is the first pass, which is walked."""
    text = (f"{ONE_WORD}s_wr Base1, 40\nloop 9\nv_rd NetQ\nv_wr Dram, 3 + Base1\nend_chain\n"
            "s_add Base1, -4\nend_loop\nend")
    violation = check(assemble(text), OUTSIDE, constants=constants)
    assert (violation and str(violation)) == walked(assemble(text), OUTSIDE, constants)
    assert (violation is None) == legal


def _body(rng, depth, lines, chain):
    """Append random chains, movements and loops to `lines`."""
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        base = f"Base{rng.randint(1, 3)}"
        if kind < 0.3 and depth:
            lines.append(f"loop {rng.choice((1, 2, 3, 5, 7))}")
            _body(rng, depth - 1, lines, chain)
            lines.append("end_loop")
        elif kind < 0.6:
            lines.append(f"s_add {base}, {rng.choice((1, 1, 2, 3, 4, 4, 8, 16, -1, -2, -4, -7))}")
        elif kind < 0.65:
            lines.append(f"s_wr {base}, {rng.choice((0, 4, 12, 20))}")
        else:
            lines += chain(rng)


def _address(rng, most):
    return f"{4 * rng.randint(0, most // 4)}" + rng.choice((" + Base1", " + Base2", " + Base3", ""))


def _outside_chain(rng):
    """A chain that reads or writes Dram."""
    read, written = _address(rng, 40), _address(rng, 40)
    return rng.choice((
        [f"v_rd Dram, {read}", f"v_wr Dram, {written}", "end_chain"], [f"v_rd Dram, {read}", "v_wr NetQ", "end_chain"],
        [f"v_rd_inc Dram, {read}, raw", "v_wr VectorRf, 0", "end_chain"],
        ["v_rd VectorRf, 0, integer", f"v_wr_inc Dram, {written}, raw", "end_chain"],
        [f"m_rd_inc Dram, {read}", "m_wr MatrixRf, 0, diagonal", "end_chain"],
        ["v_rd NetQ", "vv_add0 0", f"v_wr Dram, {written}", "v_wr NetQ", "end_chain"],
        [f"v_rd Dram, {read}, raw", "v_wr BiasRf, 3", "end_chain"], ["s_wr Rows, 8"], ["s_wr Rows, 2"],
        ["set_iterations 2"], ["set_iterations 1"]))


def _tile_chain(rng):
    """A chain that loads tiles, of vectors and from Dram, or a product; their tiles move with base registers."""
    tile, mode = rng.choice(("0", "2", "0 + Base1", "0 + Base2", "3 + Base3", "30")), rng.choice(("", "", ", integer"))
    read = _address(rng, 16) if rng.random() < 0.8 else f"1 + {rng.choice(('Base1', 'Base2'))}"
    return rng.choice((
        [f"m_rd InitialVrf, {read}", f"m_wr MatrixRf, {tile}{mode}", "end_chain"],
        [f"m_rd_inc InitialVrf, {read}", f"m_wr MatrixRf, {tile}{mode}, transposed", "end_chain"],
        [f"m_rd Dram, {read}", f"m_wr MatrixRf, {tile}{mode}, diagonal", "end_chain"],
        ["m_rd NetQ", f"m_wr MatrixRf, {tile}{mode}", "end_chain"],
        ["v_rd NetQ", f"mv_mul {tile}{mode}", "v_wr NetQ", "end_chain"],
        ["v_rd NetQ", f"mv_mul {tile}, integer, bias 15", "v_wr NetQ", "end_chain"],
        ["s_wr Rows, 2"], ["s_wr Rows, 7"], ["s_wr Rows, 8"], ["s_wr StrideX, 4"],
        ["s_wr StrideX, 2"], ["set_iterations 4, 2"], ["set_iterations 1"]))


def _chain(rng):
    def address(most):
        return _address(rng, most)

    end = ["v_wr NetQ", "end_chain"]
    return rng.choice((
        [f"v_rd InitialVrf, {address(16)}", *end], [f"v_rd InitialVrf, {address(16)}", "mv_mul 0", *end],
        [f"v_rd VectorRf, {address(12)}", f"v_wr VectorRf, {address(40)}", "end_chain"],
        [f"v_rd VectorRf, {address(40)}", "mv_mul 0", f"v_wr VectorRf, {address(12)}", *end],
        [f"v_rd InitialVrf, {address(40)}", "v_pool_max", f"v_wr InitialVrf, {address(8)}", *end],
        ["v_rd NetQ", "mv_mul 0", "v_wr MvmQ", "end_chain", "v_rd MvmQ", *end],
        ["v_rd NetQ", f"vv_mul1 {address(30)}", *end], ["s_wr Rows, 5"], ["s_wr Rows, 2"]))


def test_closed_form_and_walk_find_the_same_violation():
    rng, counts = random.Random(7), Counter()
    for _ in range(1500):
        lines = ["s_wr Rows, 2", f"s_wr Base1, {rng.randint(0, 6) * 4}", f"s_wr Base2, {rng.randint(0, 6) * 4}"]
        for _ in range(2):
            _body(rng, LOOP_DEPTH, lines, _chain)
        config, program = rng.choice((TINY, TINY, LARGE)), assemble("\n".join([*lines, "end"]))
        violation = check(program, config)
        assert (violation and str(violation)) == walked(program, config), lines
        kinds = ("it goes up to", "it writes", "would be", "moves in native vectors", "None")
        counts.update(kind for kind in kinds if kind in str(violation))
    assert min(counts.values()) > 20, counts
    assert len(counts) == len(kinds), counts


def test_closed_form_and_walk_find_the_same_violation_in_dram():
    rng, counts = random.Random(8), Counter()
    for _ in range(1500):
        lines = ["s_wr Rows, 2", f"s_wr Base1, {rng.randint(0, 9) * 4}", f"s_wr Base2, {rng.randint(0, 9) * 4}"]
        for _ in range(2):
            _body(rng, LOOP_DEPTH, lines, _outside_chain)
        program, constants = assemble("\n".join([*lines, "end"])), rng.choice((0, 6, 24))
        violation = check(program, OUTSIDE, constants=constants)
        assert (violation and str(violation)) == walked(program, OUTSIDE, constants), lines
        kinds = ("it goes up to", "and the chain reads", "constants of the firmware", "would be", "None")
        counts.update(kind for kind in kinds if kind in str(violation))
    assert min(counts.values()) > 20, counts
    assert len(counts) == len(kinds), counts


@pytest.mark.parametrize(("text", "error", "address"), [
    (("m_rd NetQ\nm_wr MatrixRf, 5, integer\nend_chain\nloop 9\nv_rd NetQ\nmv_mul 0 + Base1\nv_wr NetQ\nend_chain\n"
     "s_add Base1, 1\nend_loop\nend"), Error.FORMAT, 5),
    (("m_rd NetQ\nm_wr MatrixRf, 9, integer\nend_chain\nloop 8\nv_rd NetQ\nmv_mul 0 + Base1\nv_wr NetQ\nend_chain\n"
     "s_add Base1, 1\nend_loop\nend"), None, 0),
    ("s_wr Rows, 6\nloop 2\nm_rd InitialVrf, 0 + Base1\nm_wr MatrixRf, 0\nend_chain\ns_add Base1, 1\nend_loop\nend",
     None, 0),
    ("s_wr Rows, 6\nloop 3\nm_rd InitialVrf, 0 + Base1\nm_wr MatrixRf, 0\nend_chain\ns_add Base1, 1\nend_loop\nend",
     Error.ALIGN, 2),
    (("loop 4\nm_rd NetQ\nm_wr MatrixRf, 0 + Base1, integer\nend_chain\nv_rd NetQ\nmv_mul 0 + Base1, integer, bias "
     f"{TINY.bias_words - TINY.vector_words}\nv_wr NetQ\nend_chain\ns_add Base1, 1\nend_loop\nend"), None, 0)])
def test_tiles_that_move_have_modes_and_alignment_and_biases_stay(text, error, address):
    assert found(text, OUTSIDE) == ((error, address) if error else None)


def test_closed_form_and_walk_find_the_same_violation_where_tiles_move():
    """Tiles have modes, and vectors of tiles lie within native vectors: such passes are walked."""
    rng, counts = random.Random(9), Counter()
    for _ in range(4000):
        lines = ["s_wr Rows, 2", f"s_wr Base1, {rng.randint(0, 6)}", f"s_wr Base2, {rng.randint(0, 6) * 4}"]
        if rng.random() < 0.5:
            lines += ["m_rd NetQ", f"m_wr MatrixRf, {rng.randint(0, 12)}, integer", "end_chain"]
        for _ in range(2):
            _body(rng, LOOP_DEPTH, lines, _tile_chain)
        program = assemble("\n".join([*lines, "end"]))
        violation = check(program, OUTSIDE)
        assert (violation and str(violation)) == walked(program, OUTSIDE), lines
        kinds = ("of MatrixRf", "of InitialVrf", "the other mode", "in one native vector", "from each other", "None")
        counts.update(kind for kind in kinds if kind in str(violation))
    assert min(counts.values()) > 20, counts
    assert len(counts) == len(kinds), counts


def test_millions_of_chains_are_checked_at_once():
    text = (f"{ONE_WORD}s_wr Base1, 1\nloop 65535\nloop 60\nloop 2\nloop 60000\nv_rd InitialVrf, 0 + Base1\n"
            "vv_add0 1\nv_wr NetQ\nend_chain\nend_loop\ns_add Base1, 1\nend_loop\ns_add Base1, -2\nend_loop\n"
            "{}end_loop\nend")
    start = time.perf_counter()
    assert check(assemble(text.format("")), TINY) is None
    violation = check(assemble(text.format("s_add Base1, 1\n")), TINY)
    assert (violation.error, violation.address) == (Error.RANGE, 6)
    assert time.perf_counter() - start < 1


def test_hits_are_those_of_all_passes():
    rng = random.Random(3)
    for _ in range(300):
        inner = [(rng.randint(1, 5), rng.randint(-9, 9)) for _ in range(rng.randint(0, 3))]
        low = rng.randint(-20, 20)
        high = low + rng.randint(0, 6)
        sums = {0}
        for count, speed in inner:
            sums = {total + k * speed for total in sums for k in range(count + 1)}
        hits = _hits(inner, low, high)
        for distance in range(-120, 121):
            assert hits(distance) == any(low <= distance + total <= high for total in sums)
