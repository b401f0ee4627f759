"""Every row of the error table, in the order in which the machine checks, with the address of the violation."""

import time
from dataclasses import replace

import pytest
from concord.spec.isa.assembler import assemble
from concord.spec.isa.check import Sequencer, check
from concord.spec.isa.instructions import Error
from concord.spec.machine.config import preset

TINY = preset("tiny")  # N = 8, M = 2: 4 words a native vector; 64 words a VRF, 32 of MvmQ, 32 tiles
COPY = "v_rd NetQ\nv_wr NetQ\nend_chain\n"
PUSH = "v_rd NetQ\nmv_mul 0\nv_wr MvmQ\nend_chain\n"
#: Two iterations of a window of two rows of two pixels of two entries, for two row tiles: 46 entries from the first on.
WINDOW = ("s_wr Rows, 16\ns_wr Columns, 8\ns_wr WindowVectors, 2\ns_wr WindowX, 2\ns_wr WindowY, 2\n"
          "s_wr WindowStep, 3\ns_wr WindowPitch, 17\ns_wr WindowGroup, 21\nset_iterations 2\ns_wr StrideX, 3\n"
          "s_wr StrideVec, 0\n")
POOL = "s_wr WindowX, 3\ns_wr WindowY, 2\ns_wr WindowStep, 4\ns_wr WindowPitch, 8\n"  # 17 positions
POP = "v_rd MvmQ\nv_wr NetQ\nend_chain\n"


def found(text, config=TINY, **kwargs):
    """Error and address of the first violation of a program."""
    violation = check(assemble(text), config, **kwargs)
    return violation and (violation.error, violation.address)


def chain(*operations, before=""):
    return before + "".join(f"{operation}\n" for operation in operations) + "end_chain\nend\n"


LEGAL = {
    "copy": COPY + "end",
    "every stage of both units": chain("v_rd InitialVrf, 0", "mv_mul 0", "vv_add0 0", "v_relu0", "vv_mul0 0",
                                       "vv_max1 0", "v_tanh1", "vv_mul1 0", "v_wr NetQ"),
    "taps": chain("v_rd InitialVrf, 0", "v_wr InitialVrf, 4", "vv_add0 0", "v_wr AddSubVrf0, 8", "v_wr NetQ"),
    "tall product": PUSH + PUSH + POP + POP + "end",
    "words left in MvmQ": PUSH + "end",
    "full MvmQ, emptied": "set_iterations 8\n" + PUSH + POP + "end",
    "load": chain("m_rd NetQ", "m_wr MatrixRf, 31"),
    "load and multiply": "m_rd NetQ\nm_wr MatrixRf, 0, integer\nend_chain\n"
                         + chain("v_rd NetQ", "mv_mul 0, integer, bias 3, unsigned", "v_wr NetQ"),
    "nested loops": f"loop 3\nloop 4\n{COPY}end_loop\nend_loop\nend",
    "last words": chain("v_rd InitialVrf, 60", "vv_add0 60", "v_wr MultiplyVrf1, 60"),
    "iterations": chain("v_rd_inc InitialVrf, 0", "v_wr_inc AddSubVrf0, 0",
                        before="s_wr Rows, 5\ns_wr StrideX, 3\ns_wr StrideY, 20\ns_wr StrideOut, 3\n"
                               "set_iterations 12, 4\n"),
    "largest product": chain("v_rd NetQ", "mv_mul 0", "v_wr NetQ", before="s_wr Rows, 32\ns_wr Columns, 8\n"),
    "OutScale": "s_wr OutScale, -32\ns_wr OutScale, 31\nend",
    "last entries": chain("v_rd_inc VectorRf, 2", "mv_mul 0, window", "v_wr_inc VectorRf, 0", before=WINDOW),
    "entries of many columns": chain("v_rd VectorRf, 0", "mv_mul 0", "v_wr NetQ", before="s_wr Columns, 32\n"),
    "entries as numbers": chain("v_rd VectorRf, 46, integer, unsigned", "v_relu0", "v_wr VectorRf, 44",
                                before="s_wr Rows, 16\n"),
    "every mode of a write": "".join(chain("v_rd NetQ", f"v_wr VectorRf, 47{mode}")[:-4] for mode in (
        "", ", integer", ", integer, unsigned")) + "end",
    "pool of words": chain("v_rd InitialVrf, 46", "v_pool_max", "v_wr NetQ", before="s_wr Rows, 4\n" + POOL),
    "pool of entries": chain("v_rd VectorRf, 31, integer", "v_pool_max", "v_wr VectorRf, 0", before=POOL),
    "pool that writes beside": chain("v_rd InitialVrf, 4", "v_pool_max", "v_wr InitialVrf, 0"),
    "windows of the size 0, not used": chain("v_rd VectorRf, 0", "v_wr NetQ", before="s_wr WindowX, 0\n"),
}

ILLEGAL = {
    "erased memory": ("", 0),
    "unknown opcode": (".word 0xff", 0),
    "field that the opcode does not take": (".word 0x10000001a", 0),
    "unused bits": (".word 0x1000000000801a", 0),
    "memory that v_rd does not take": (".word 0x80001", 0),
    "memory that m_rd does not take": ("m_rd InitialVrf, 0", 0),
    "memory that m_wr does not take": ("m_rd NetQ\nm_wr InitialVrf, 0", 1),
    "queue with an address": (".word 0x100060001", 0),
    "queue with _inc": (".word 0x60101", 0),
    "unknown register": (".word 0x140017", 0),
    "OutScale": ("s_wr OutScale, 32", 0),
    "OutScale, negative": ("s_wr OutScale, -33", 0),
    "operation outside a chain": ("v_relu0", 0),
    "product outside a chain": ("mv_mul 0", 0),
    "write outside a chain": ("v_wr NetQ", 0),
    "end_chain outside a chain": ("end_chain", 0),
    "source inside a chain": ("v_rd NetQ\nv_rd NetQ", 1),
    "matrix source inside a chain": ("v_rd NetQ\nm_rd NetQ", 1),
    "s_wr inside a chain": ("v_rd NetQ\ns_wr Rows, 1", 1),
    "loop inside a chain": ("v_rd NetQ\nloop 0", 1),
    "end_loop inside a chain": ("v_rd NetQ\nend_loop", 1),
    "end inside a chain": ("v_rd NetQ\nend", 1),
    "product not after its source": ("v_rd NetQ\nv_wr InitialVrf, 0\nmv_mul 0", 2),
    "product of MvmQ": ("v_rd MvmQ\nmv_mul 0", 1),
    "two products": ("v_rd NetQ\nmv_mul 0\nmv_mul 0", 2),
    "stages out of order": ("v_rd NetQ\nv_relu0\nvv_add0 0", 2),
    "units out of order": ("v_rd NetQ\nvv_mul1 0\nvv_mul0 0", 2),
    "stage twice": ("v_rd NetQ\nvv_add1 0\nv_wr NetQ\nvv_max1 0", 3),
    "four writes": ("v_rd NetQ\nv_wr InitialVrf, 0\nv_wr AddSubVrf0, 0\nv_wr AddSubVrf1, 0\nv_wr NetQ", 4),
    "one memory twice": ("v_rd NetQ\nv_wr NetQ\nv_relu0\nv_wr NetQ", 3),
    "push without product": ("v_rd NetQ\nv_wr MvmQ", 1),
    "push after an operation": ("v_rd NetQ\nmv_mul 0\nv_relu0\nv_wr MvmQ", 3),
    "push after a tap": ("v_rd NetQ\nmv_mul 0\nv_wr NetQ\nv_wr MvmQ", 3),
    "tap after a push": ("v_rd NetQ\nmv_mul 0\nv_wr MvmQ\nv_wr NetQ", 3),
    "operation after a push": ("v_rd NetQ\nmv_mul 0\nv_wr MvmQ\nv_relu0", 3),
    "m_wr of a vector": ("v_rd NetQ\nm_wr MatrixRf, 0", 1),
    "v_wr of a tile": ("m_rd NetQ\nv_wr NetQ", 1),
    "operation on a tile": ("m_rd NetQ\nv_relu0", 1),
    "product of a tile": ("m_rd NetQ\nmv_mul 0", 1),
    "two m_wr": ("m_rd NetQ\nm_wr MatrixRf, 0\nm_wr MatrixRf, 1", 2),
    "operation after m_wr": ("m_rd NetQ\nm_wr MatrixRf, 0\nv_relu0", 2),
    "chain without operation": ("v_rd NetQ\nend_chain", 1),
    "load without write": ("m_rd NetQ\nend_chain", 1),
    "chain that ends with no write": ("v_rd NetQ\nv_wr NetQ\nv_relu0\nend_chain", 3),
    "BiasRf address without bias": ("v_rd NetQ\n.word 0x0001000000000203", 1),
    "order before format": ("v_rd MvmQ\nmv_mul 0, unsigned", 1),
    "operand before order": ("v_rd NetQ\nv_wr NetQ\n.word 0x100060014", 2),
}

OTHERS = {
    "unknown memory": (Error.RANGE, ".word 0x4d0001", 0),
    "memory 0": (Error.RANGE, ".word 0x1", 0),
    "unknown memory, out of order": (Error.RANGE, ".word 0x4d0014", 0),
    "unsigned without integer": (Error.FORMAT, "v_rd NetQ\nmv_mul 0, unsigned", 1),
    "bias without integer": (Error.FORMAT, "v_rd NetQ\nmv_mul 0, bias 0", 1),
    "loop of none": (Error.LOOP, "loop 0", 0),
    "fifth loop": (Error.LOOP, "loop 1\n" * 5, 4),
    "end_loop alone": (Error.LOOP, "end_loop", 0),
    "end inside a loop": (Error.LOOP, "loop 1\nend", 1),
    "Rows 0": (Error.SIZE, "s_wr Rows, 0\n" + COPY, 1),
    "Columns 0, without product": (Error.SIZE, "s_wr Columns, 0\n" + COPY, 1),
    "Iterations 0": (Error.SIZE, "s_wr Iterations, 0\n" + COPY, 1),
    "IterationsX 0": (Error.SIZE, "s_wr IterationsX, 0\n" + COPY, 1),
    "Rows 0, of a load": (Error.SIZE, "s_wr Rows, 0\nm_rd NetQ\nm_wr MatrixRf, 0\nend_chain", 1),
    "accumulator rows": (Error.SIZE, "s_wr Rows, 65\n" + PUSH, 1),
    "operand columns": (Error.SIZE, "s_wr Columns, 9\n" + PUSH, 1),
    "window": (Error.WINDOW, "set_iterations 12, 5\n" + COPY, 2),
    "source": (Error.ALIGN, chain("v_rd InitialVrf, 2", "mv_mul 0", "v_wr NetQ"), 0),
    "source, StrideX": (Error.ALIGN, chain("v_rd_inc InitialVrf, 0", "mv_mul 0", "v_wr NetQ",
                                           before="s_wr StrideX, 5\n"), 1),
    "source, StrideY": (Error.ALIGN, chain("v_rd_inc InitialVrf, 0", "mv_mul 0", "v_wr NetQ",
                                           before="s_wr StrideY, 2\n"), 1),
    "vector source": (Error.RANGE, chain("v_rd InitialVrf, 61", "v_wr NetQ"), 0),
    "product source": (Error.RANGE, chain("v_rd InitialVrf, 60", "mv_mul 0", "v_wr NetQ",
                                          before="s_wr Columns, 2\ns_wr Rows, 1\n"), 2),
    "source, along x": (Error.RANGE, chain("v_rd_inc InitialVrf, 0", "v_wr NetQ",
                                           before="set_iterations 4\ns_wr StrideX, 21\n"), 3),
    "source, along y": (Error.RANGE, chain("v_rd_inc InitialVrf, 0", "v_wr NetQ",
                                           before="set_iterations 4, 2\ns_wr StrideY, 61\n"), 3),
    "tiles": (Error.RANGE, chain("v_rd NetQ", "mv_mul 29", "v_wr NetQ", before="s_wr Rows, 9\ns_wr Columns, 2\n"), 3),
    "biases": (Error.RANGE, chain("v_rd NetQ", "mv_mul 0, integer, bias 29", "v_wr NetQ"), 1),
    "operand": (Error.RANGE, chain("v_rd NetQ", "v_relu0", "vv_mul0 61", "v_wr NetQ"), 2),
    "operand, moving": (Error.RANGE, chain("v_rd NetQ", "vv_add1_inc 53", "v_wr NetQ", before="set_iterations 3\n"), 3),
    "write": (Error.RANGE, chain("v_rd NetQ", "v_wr AddSubVrf1, 61"), 1),
    "write, moving": (Error.RANGE, chain("v_rd NetQ", "v_wr_inc AddSubVrf1, 57", before="set_iterations 2\n"), 3),
    "m_wr": (Error.RANGE, chain("m_rd NetQ", "m_wr MatrixRf, 30", before="set_iterations 3\n"), 3),
    "mode of tiles": (Error.FORMAT, chain("v_rd NetQ", "mv_mul 0, integer", "v_wr NetQ"), 1),
    "mode of the last tile": (Error.FORMAT, "s_wr Columns, 2\nm_rd NetQ\nm_wr MatrixRf, 2, integer\nend_chain\n"
                              + chain("v_rd NetQ", "mv_mul 1", "v_wr NetQ"), 5),
    "WindowVectors 0": (Error.SIZE, chain("v_rd VectorRf, 0", "mv_mul 0, window", "v_wr NetQ",
                                          before="s_wr WindowVectors, 0\n"), 1),
    "WindowX 0 of a pool": (Error.SIZE, chain("v_rd InitialVrf, 0", "v_pool_max", "v_wr NetQ",
                                              before="s_wr WindowX, 0\n"), 1),
    "WindowY 0": (Error.SIZE, chain("v_rd VectorRf, 0", "v_pool_max", "v_wr NetQ", before="s_wr WindowY, 0\n"), 1),
    "SIZE before WINDOW": (Error.SIZE, chain("v_rd VectorRf, 0", "mv_mul 0, window", "v_wr NetQ",
                                             before="set_iterations 12, 5\ns_wr WindowY, 0\n"), 3),
    "window of other than Columns": (Error.WINDOW, chain("v_rd VectorRf, 0", "mv_mul 0, window", "v_wr NetQ",
                                                         before="s_wr WindowX, 2\n"), 1),
    "WINDOW before RANGE": (Error.WINDOW, chain("v_rd VectorRf, 48", "mv_mul 0, window", "v_wr NetQ",
                                                before="s_wr WindowX, 2\n"), 1),
    "source in VectorRf": (Error.RANGE, chain("v_rd VectorRf, 47", "mv_mul 0", "v_wr NetQ",
                                              before="s_wr Columns, 2\n"), 1),
    "window beyond the last entry": (Error.RANGE, chain("v_rd_inc VectorRf, 3", "mv_mul 0, window", "v_wr NetQ",
                                                        before=WINDOW), 12),
    "numbers beyond the last entry": (Error.RANGE, chain("v_rd VectorRf, 47", "v_wr NetQ",
                                                         before="s_wr Rows, 9\n"), 1),
    "pool beyond the last word": (Error.RANGE, chain("v_rd InitialVrf, 47", "v_pool_max", "v_wr NetQ",
                                                     before="s_wr Rows, 4\n" + POOL), 5),
    "pool beyond the last entry": (Error.RANGE, chain("v_rd VectorRf, 32", "v_pool_max", "v_wr NetQ", before=POOL), 4),
    "write of VectorRf": (Error.RANGE, chain("v_rd NetQ", "v_relu0", "v_wr VectorRf, 48"), 2),
    "write of VectorRf, moving": (Error.RANGE, chain(
        "v_rd NetQ", "v_wr_inc VectorRf, 33", before="s_wr StrideVec, 4\ns_wr SkipVec, 3\nset_iterations 4, 2\n"), 5),
    "write of what a product reads": (Error.RANGE, chain("v_rd VectorRf, 4", "mv_mul 0", "v_wr NetQ",
                                                         "v_wr VectorRf, 4"), 3),
    "write between what a product reads": (Error.RANGE, chain(
        "v_rd_inc VectorRf, 2", "mv_mul 0, window", "v_wr VectorRf, 46", before=WINDOW), 14),
    "write of what numbers are read from": (Error.RANGE, chain("v_rd VectorRf, 4", "v_wr VectorRf, 4"), 1),
    "write of what a pool reads": (Error.RANGE, chain("v_rd InitialVrf, 3", "v_pool_max", "v_wr InitialVrf, 0"), 2),
    "ranges before overlaps": (Error.RANGE, chain("v_rd VectorRf, 4", "v_wr VectorRf, 4", "v_wr InitialVrf, 61"), 2),
    "overlap before the mode of tiles": (Error.RANGE, chain(
        "v_rd VectorRf, 4", "mv_mul 0, integer", "v_wr VectorRf, 4"), 2),
    "unsigned codes of VectorRf": (Error.FORMAT, "v_rd VectorRf, 0\nmv_mul 0, integer, unsigned", 1),
    "unsigned numbers without integer": (Error.FORMAT, ".word 0xa0801", 0),
    "unsigned write without integer": (Error.FORMAT, "v_rd NetQ\n.word 0xa0814", 1),
    "mode of tiles of a product of VectorRf": (Error.FORMAT, chain(
        "v_rd VectorRf, 0", "mv_mul 0, integer", "v_wr NetQ"), 1),
    "product of VectorRf while MvmQ holds words": (Error.QUEUE, PUSH + chain("v_rd VectorRf, 0", "mv_mul 0",
                                                                          "v_wr NetQ"), 5),
    "pop of nothing": (Error.QUEUE, POP, 0),
    "pop of a word too much": (Error.QUEUE, PUSH + "s_wr Rows, 9\n" + POP, 5),
    "push of a word too much": (Error.QUEUE, "set_iterations 7\n" + PUSH + "s_wr Iterations, 1\ns_wr IterationsX, 1\n"
                                "s_wr Rows, 9\n" + PUSH, 11),
    "pop of too much": (Error.QUEUE, PUSH + "set_iterations 2\n" + POP, 6),
    "product past MvmQ": (Error.QUEUE, PUSH + chain("v_rd NetQ", "mv_mul 0", "v_wr NetQ"), 5),
    "push of too much": (Error.QUEUE, "set_iterations 9\n" + PUSH, 4),
    "push on top of too much": (Error.QUEUE, "set_iterations 5\n" + PUSH + PUSH, 8),
    "push in a loop": (Error.QUEUE, f"loop 9\n{PUSH}end_loop\nend", 3),
    "pop in a loop": (Error.QUEUE, f"{PUSH}loop 2\n{POP}end_loop\nend", 5),
}

#: Programs with two errors, of which the machine reports the one that it checks first.
FIRST = {
    "SIZE before WINDOW": (Error.SIZE, "s_wr Rows, 65\nset_iterations 3, 2\n" + PUSH, 3),
    "WINDOW before ALIGN": (Error.WINDOW, chain("v_rd InitialVrf, 1", "mv_mul 0", "v_wr NetQ",
                                                before="set_iterations 3, 2\n"), 2),
    "ALIGN before RANGE": (Error.ALIGN, chain("v_rd InitialVrf, 63", "mv_mul 0", "v_wr NetQ"), 0),
    "RANGE before FORMAT": (Error.RANGE, chain("v_rd NetQ", "mv_mul 0, integer", "v_wr InitialVrf, 61"), 2),
    "RANGE of tiles before biases": (Error.RANGE, chain("v_rd InitialVrf, 0", "mv_mul 32, integer, bias 32",
                                                        "v_wr InitialVrf, 64"), 1),
    "FORMAT before QUEUE": (Error.FORMAT, PUSH + chain("v_rd NetQ", "mv_mul 0, integer", "v_wr NetQ"), 5),
    "order before SIZE": (Error.ILLEGAL, "s_wr Rows, 0\nv_rd NetQ\nend_chain", 2),
    "first chain": (Error.RANGE, chain("v_rd NetQ", "v_wr InitialVrf, 64") + "v_relu0", 1),
}


@pytest.mark.parametrize("name", LEGAL)
def test_legal(name):
    assert found(LEGAL[name]) is None


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal(name):
    text, address = ILLEGAL[name]
    assert found(text) == (Error.ILLEGAL, address)


@pytest.mark.parametrize("name", OTHERS)
def test_error(name):
    error, text, address = OTHERS[name]
    assert found(text) == (error, address)


@pytest.mark.parametrize("name", FIRST)
def test_first_error_wins(name):
    error, text, address = FIRST[name]
    assert found(text) == (error, address)


def test_end():
    assert found("s_wr Rows, 8\n" * TINY.instructions) == (Error.END, TINY.instructions)
    assert found("s_wr Rows, 8\n" * (TINY.instructions - 1) + "v_rd NetQ") == (Error.END, TINY.instructions)
    with pytest.raises(ValueError, match="the program has 513 instructions, the machine holds 512"):
        check([0] * 513, TINY)


def test_errors_are_sentences():
    violation = check(assemble("s_wr Rows, 65\n" + PUSH), TINY)
    assert str(violation) == "instruction 1: register Rows is 65: a product has 64 at most (SIZE)"


SENTENCES = {
    chain("v_rd VectorRf, 4", "v_wr VectorRf, 4"):
        "instruction 1: it writes 4 to 4 of VectorRf, and the chain reads 4 to 4 there (RANGE)",
    chain("v_rd VectorRf, 47", "mv_mul 0", "v_wr NetQ", before="s_wr Columns, 2\n"):
        "instruction 1: it goes up to address 48 of VectorRf, whose last address is 47 (RANGE)",
    chain("v_rd VectorRf, 0", "mv_mul 0, window", "v_wr NetQ", before="s_wr WindowX, 3\n"):
        "instruction 1: WindowVectors * WindowX * WindowY is 3, and Columns is 1: they must be equal (WINDOW)",
    chain("v_rd InitialVrf, 0", "v_pool_max", "v_wr NetQ", before="s_wr WindowY, 0\n"):
        "instruction 1: register WindowY is 0 (SIZE)",
    "v_rd VectorRf, 0, integer\nmv_mul 0, integer":
        "instruction 1: the v_rd of VectorRf before mv_mul takes no mode: mv_mul says integer itself (ILLEGAL)",
    "v_rd InitialVrf, 0\nmv_mul 0, window":
        "instruction 1: window needs a v_rd of VectorRf before mv_mul (ILLEGAL)",
    "v_rd NetQ\nv_pool_max": "instruction 1: v_pool_max must follow v_rd, and neither of a queue nor of Dram (ILLEGAL)",
    "v_rd NetQ\n.word 0x10214":
        "instruction 1: InitialVrf holds binary16 numbers: integer and unsigned are for VectorRf (ILLEGAL)",
    "v_rd VectorRf, 0\nmv_mul 0, integer, unsigned":
        "instruction 1: the codes of VectorRf were made unsigned when they were written: leave out unsigned (FORMAT)",
    ".word 0xa0801": "instruction 0: bias and unsigned need integer mode (FORMAT)",
    "s_wr Base1, 3\ns_add Base1, -4":
        "instruction 1: Base1 would be -1, and a register holds 0 to 65535 (RANGE)",
}


@pytest.mark.parametrize("text", SENTENCES)
def test_sentences_of_entries_and_windows(text):
    assert str(check(assemble(text), TINY)) == SENTENCES[text]


@pytest.mark.parametrize("text", ["v_rd VectorRf, 0", "v_rd NetQ\nv_wr VectorRf, 0", "v_rd InitialVrf, 0\nv_pool_max"])
def test_a_machine_without_entries(text):
    violation = check(assemble(text), replace(TINY, vector_rf=0))
    assert (violation.error, violation.address) == (Error.RANGE, text.count("\n"))
    assert "this machine has neither VectorRf nor a pooling unit" in str(violation)


SOFTMAX = {
    "v_softmax": "instruction 0: v_softmax stands outside a chain (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nv_relu0": "instruction 2: only v_wr NetQ may follow v_softmax (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nv_wr InitialVrf, 0": "instruction 2: only v_wr NetQ may follow v_softmax (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nv_softmax": "instruction 2: only v_wr NetQ may follow v_softmax (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nend_chain": "instruction 2: a chain must end with a write (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nv_wr NetQ\nv_wr InitialVrf, 0":
        "instruction 3: only end_chain may follow the v_wr NetQ after v_softmax (ILLEGAL)",
    "v_rd NetQ\nv_softmax\nv_wr NetQ\nv_softmax":
        "instruction 3: only end_chain may follow the v_wr NetQ after v_softmax (ILLEGAL)",
    "v_rd NetQ\nv_wr NetQ\nv_softmax\nv_wr NetQ": "instruction 3: the chain has written NetQ already (ILLEGAL)",
    "v_rd NetQ\nv_wr InitialVrf, 0\nv_wr AddSubVrf0, 0\nv_wr AddSubVrf1, 0\nv_softmax\nv_wr NetQ":
        "instruction 5: a chain writes 3 times at most (ILLEGAL)",
    "m_rd NetQ\nv_softmax": "instruction 1: v_softmax does not take what m_rd reads (ILLEGAL)",
    "v_rd NetQ\nmv_mul 0\nv_wr MvmQ\nv_softmax": "instruction 3: only end_chain may follow the write of MvmQ (ILLEGAL)",
    "s_wr Rows, 13\nv_rd NetQ\nv_softmax\nv_wr NetQ\nend_chain":
        "instruction 1: v_softmax would take 7 words, and this machine's softmax_words is 6 (SIZE)",
    "s_wr Rows, 0\nv_rd NetQ\nv_softmax\nv_wr NetQ\nend_chain": "instruction 1: register Rows is 0 (SIZE)",
}


@pytest.mark.parametrize("text", SOFTMAX)
def test_the_place_and_size_of_a_softmax(text):
    assert str(check(assemble(text), preset("tiny_softmax"))) == SOFTMAX[text]


@pytest.mark.parametrize("text", [
    chain("v_rd NetQ", "v_softmax", "v_wr NetQ", before="s_wr Rows, 12\nset_iterations 4\n"),
    chain("v_rd NetQ", "mv_mul 0", "vv_mul1 0", "v_wr InitialVrf, 0", "v_wr VectorRf, 0", "v_softmax", "v_wr NetQ"),
    PUSH + chain("v_rd MvmQ", "v_softmax", "v_wr NetQ"),
    chain("v_rd InitialVrf, 0", "v_pool_max", "v_softmax", "v_wr NetQ"),
])
def test_a_softmax_ends_any_chain_on_its_way_to_the_host(text):
    assert found(text, preset("tiny_softmax")) is None
    violation = check(assemble(text), TINY)
    assert violation.sentence == "this machine has no softmax unit, because its softmax_words is 0"
    assert violation.error == Error.ILLEGAL


@pytest.mark.parametrize("name", ["v_exp1", "v_recip0", "v_rsqrt1", "v_sqrt0"])
def test_more_functions_are_legal_where_a_machine_has_them(name):
    text = chain("v_rd NetQ", name, "v_wr NetQ")
    assert found(text, preset("tiny_vector")) is None
    violation = check(assemble(text), TINY)
    assert violation.sentence == (
        f"this machine has no {name}, because its more_functions is false: the preset tiny_vector has it")
    assert violation.error == Error.ILLEGAL


def test_tiles_may_hold_a_mode_before_the_program():
    text = chain("v_rd NetQ", "mv_mul 3, integer", "v_wr NetQ")
    modes = [False] * TINY.matrix_tiles
    modes[3] = True
    assert found(text, modes=modes) is None
    assert found(text) == (Error.FORMAT, 1)


def test_a_load_changes_the_mode_for_the_next_pass_of_a_loop():
    product = "v_rd NetQ\nmv_mul 0\nv_wr NetQ\nend_chain\n"
    load = "m_rd NetQ\nm_wr MatrixRf, 0, integer\nend_chain\n"
    assert found(f"loop 1\n{product}{load}end_loop\nend") is None
    assert found(f"loop 2\n{product}{load}end_loop\nend") == (Error.FORMAT, 2)


def test_registers_persist_through_loops_and_not_through_starts():
    text = f"loop 2\n{COPY}s_wr Rows, 0\nend_loop\nend"
    assert found(text) == (Error.SIZE, 1)
    assert found(text.replace("loop 2", "loop 1")) is None


def test_long_loops_are_checked_at_once():
    start = time.perf_counter()
    assert found(f"loop 65535\nloop 65535\n{PUSH}{POP}{COPY}end_loop\nend_loop\nend") is None
    assert time.perf_counter() - start < 1


def test_the_walk_repeats_loops_and_counts_instructions():
    sequencer = Sequencer(TINY, assemble(f"loop 3\nloop 2\n{COPY}end_loop\nend_loop\nend"), [False] * 32)
    assert [chain.address for chain in sequencer.walk()] == [2] * 6
    assert sequencer.executed == 1 + 3 * (1 + 2 * 4 + 1) + 1


def test_what_a_chain_resolves_to():
    text = "s_wr Rows, 13\ns_wr Columns, 3\nset_iterations 6, 3\ns_wr StrideX, 4\ns_wr StrideY, 20\n"
    text += chain("v_rd_inc InitialVrf, 4", "mv_mul 2", "vv_add0_inc 1", "v_wr NetQ")
    (chain_,) = Sequencer(TINY, assemble(text), [False] * 32).walk()
    assert (chain_.source_words, chain_.result_words, chain_.row_tiles, chain_.last_lanes) == (12, 7, 2, 1)
    assert chain_.tiles == range(2, 8)
    assert [chain_.source_offset(t) for t in range(6)] == [0, 4, 8, 20, 24, 28]
    assert [chain_.offset(chain_.instructions[2], t) for t in range(3)] == [0, 4, 8]
    assert [chain_.offset(chain_.instructions[3], t) for t in range(3)] == [0, 0, 0]
