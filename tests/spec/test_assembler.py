"""Program text: assembling and disassembling are exact, and errors name the line."""

import random

import pytest
from concord.spec.isa.assembler import assemble
from concord.spec.isa.disassembler import disassemble
from concord.spec.isa.instructions import BASES, FIELDS, SPECS, Instruction, Op, OperandKind, Reg, encode
from concord.spec.isa.memories import Mem

TEXT = """\
s_wr Rows, 128
s_wr OutScale, -3
loop 10
v_rd NetQ
v_wr InitialVrf, 12
end_chain
v_rd_inc InitialVrf, 12
mv_mul 3, integer, bias 4, unsigned
vv_add0 8
v_relu0
vv_mul1_inc 9
v_wr_inc AddSubVrf1, 0
v_wr NetQ
end_chain
m_rd NetQ
m_wr MatrixRf, 5, integer
end_chain
v_rd_inc VectorRf, 7
mv_mul 1, integer, window
v_wr_inc VectorRf, 9, integer, unsigned
end_chain
v_rd VectorRf, 2, integer
v_pool_max
v_wr VectorRf, 3
end_chain
v_rd NetQ
v_softmax
v_wr NetQ
end_chain
end_loop
.word 0x0000000000000000
end
"""


def test_canonical_text_round_trips():
    assert disassemble(assemble(TEXT)) == TEXT


def test_text_is_free_in_case_space_and_comments():
    assert assemble("  V_RD   initialvrf ,0x10  # a comment\n\n# nothing\nMV_MUL 2,UNSIGNED,integer") == [
        encode(Instruction(op=Op.V_RD, mem=Mem.INITIAL_VRF, a=16)),
        encode(Instruction(op=Op.MV_MUL, a=2, integer=1, unsigned=1)),
    ]


def test_words_round_trip_whatever_they_are():
    rng = random.Random(1)
    words = [rng.getrandbits(64) for _ in range(200)]
    for op in Op:
        for _ in range(100):
            words.append(encode(Instruction(op=op, **{name: rng.choice((0, 1, rng.randrange(1 << FIELDS[name].width)))
                                                      for name in SPECS[op].fields})))
    assert assemble(disassemble(words)) == words
    assert disassemble(assemble(disassemble(words))) == disassemble(words)


def test_a_word_without_text_stays_a_number():
    queue_with_address = encode(Instruction(op=Op.V_RD, mem=Mem.NET_Q, a=1))
    queue_with_inc = encode(Instruction(op=Op.V_RD, mem=Mem.MVM_Q, inc=1))
    bias_without_flag = encode(Instruction(op=Op.MV_MUL, b=1))
    unknown_memory = encode(Instruction(op=Op.V_RD, mem=77))
    unknown_register = encode(Instruction(op=Op.S_WR, mem=77))
    text = disassemble([queue_with_address, queue_with_inc, bias_without_flag, unknown_memory, unknown_register])
    assert all(line.startswith(".word 0x") for line in text.splitlines())


def test_every_legal_form_has_text():
    for op, spec in SPECS.items():
        mems = spec.mems or {OperandKind.REGISTER: list(Reg), OperandKind.INCREMENT: BASES}.get(spec.kind, (0,))
        for mem in mems:
            assert not disassemble([encode(Instruction(op=op, mem=mem))]).startswith(".word"), (op, mem)


def test_set_iterations():
    assert disassemble(assemble("set_iterations 12, 4")) == "s_wr Iterations, 12\ns_wr IterationsX, 4\n"
    assert disassemble(assemble("set_iterations 12")) == "s_wr Iterations, 12\ns_wr IterationsX, 12\n"


@pytest.mark.parametrize(("line", "sentence"), [
    ("v_read NetQ", "there is no instruction 'v_read'"),
    ("end_inc", "there is no instruction 'end_inc'"),
    ("mv_mul_inc 3", "there is no instruction 'mv_mul_inc'"),
    ("v_rd", "v_rd needs a memory"),
    ("v_rd Sram, 3", "there is no memory 'sram': choose one of InitialVrf, "),
    ("v_rd Dram", "v_rd Dram takes an address and at most the word raw"),
    ("v_rd Dram, 3, integer", "v_rd Dram takes an address and at most the word raw"),
    ("m_rd Dram", "m_rd Dram needs an address"),
    ("m_wr MatrixRf, 3, diagonal, diagonal", "m_wr takes a memory, a tile and, once each"),
    ("v_rd InitialVrf", "v_rd InitialVrf needs one address"),
    ("v_wr InitialVrf, 1, integer", "needs one address, and takes nothing more: integer and unsigned are words for V"),
    ("v_rd InitialVrf, 1 + Rows", "there is no base register 'rows': choose one of Base1, Base2, Base3"),
    ("v_rd InitialVrf, Base1", "'base1' is not a number: a base register stands after a number, as in 8"),
    ("s_add Rows, 3", "there is no base register 'rows'"),
    ("s_add Base1", "s_add takes a base register and a number"),
    ("s_add Base1, 2147483648", r"2147483648 does not lie in -2147483648\.\.2147483647"),
    ("loop 3 + Base1", "is not a number: a base register .* only addresses of words, entries and tiles"),
    ("v_rd NetQ, 3", "NetQ is a queue: it takes neither an address nor _inc"),
    ("v_wr_inc MvmQ", "MvmQ is a queue"),
    ("m_rd NetQ, 3", "m_rd takes one operand, not 2"),
    ("m_wr MatrixRf", "m_wr takes a memory, a tile"),
    ("m_wr MatrixRf, 3, unsigned", "m_wr takes a memory, a tile"),
    ("mv_mul", "mv_mul needs a tile"),
    ("mv_mul 3, bias", "mv_mul takes, once each"),
    ("mv_mul 3, integer, integer", "mv_mul takes, once each"),
    ("mv_mul 3, signed", "mv_mul takes, once each"),
    ("vv_add0", "vv_add0 takes one operand, not 0"),
    ("v_relu0 3", "v_relu0 takes no operand"),
    ("s_wr Rows", "s_wr takes a register and a value"),
    ("s_wr Row, 3", "there is no register 'row': choose one of Rows, "),
    ("s_wr Rows, -1", r"-1 does not lie in 0\.\.65535"),
    ("s_wr OutScale, 40000", r"40000 does not lie in -32768\.\.32767"),
    ("loop ten", "'ten' is not a number"),
    ("loop 65536", r"65536 does not lie in 0\.\.65535"),
    ("set_iterations 1, 2, 3", "set_iterations takes a count"),
    (".word 0x10000000000000000", "does not lie in"),
])
def test_errors_are_sentences_that_name_the_line(line, sentence):
    with pytest.raises(ValueError, match=f"^line 3: .*{sentence}"):
        assemble(f"end\n\n{line}\n")
