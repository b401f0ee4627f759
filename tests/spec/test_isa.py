"""The instruction word: every field fits, every word means one instruction or none."""

import random

import pytest
from concord.spec.host.registers import Counter
from concord.spec.isa.instructions import (
    FIELDS,
    SPECS,
    STAGES,
    WORD,
    Instruction,
    Op,
    OperandKind,
    Reg,
    decode,
    encode,
    opcode,
    out_scale,
)
from concord.spec.isa.operations import MFUS, Operation

#: Names of the opcodes in the order of their codes, from 1 on; programs in files depend on these codes.
OPCODES = (
    "V_RD", "M_RD", "MV_MUL",
    "VV_ADD0", "VV_A_SUB_B0", "VV_B_SUB_A0", "VV_MAX0", "V_RELU0", "V_SIGM0", "V_TANH0", "VV_MUL0",
    "VV_ADD1", "VV_A_SUB_B1", "VV_B_SUB_A1", "VV_MAX1", "V_RELU1", "V_SIGM1", "V_TANH1", "VV_MUL1",
    "V_WR", "M_WR", "END_CHAIN", "S_WR", "LOOP", "END_LOOP", "END", "V_POOL_MAX", "S_ADD", "V_SOFTMAX",
)


def test_fields_do_not_overlap():
    taken = [bit for field in FIELDS.values() for bit in range(field.lo, field.lo + field.width)]
    assert len(taken) == len(set(taken))
    assert max(taken) < WORD


def test_every_opcode_has_a_row():
    assert set(SPECS) == set(Op)
    assert 0 not in list(Op), "erased memory is an error"


@pytest.mark.parametrize("op", Op)
def test_encode_and_decode_round_trip(op):
    rng = random.Random(op)
    for _ in range(50):
        fields = {name: rng.randrange(1 << FIELDS[name].width) for name in SPECS[op].fields}
        instruction = Instruction(op=op, **fields)
        assert decode(encode(instruction)) == instruction


@pytest.mark.parametrize("op", Op)
def test_a_field_that_the_opcode_does_not_take_is_refused(op):
    for name in FIELDS.keys() - {"op", *SPECS[op].fields}:
        with pytest.raises(ValueError, match=f"does not take {name}"):
            encode(Instruction(op=op, **{name: 1}))
        assert decode(FIELDS["op"].put(op) | FIELDS[name].put(1)) is None


def test_a_value_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="does not fit in 16 bits"):
        encode(Instruction(op=Op.LOOP, a=1 << 16))


def test_unknown_opcodes_and_unused_bits_are_none():
    unused = [bit for bit in range(WORD) if not any(f.lo <= bit < f.lo + f.width for f in FIELDS.values())]
    assert all(decode(1 << bit | Op.END) is None for bit in unused)
    assert all(decode(op) is None for op in range(256) if op not in list(Op))


def test_every_unit_has_every_operation():
    pointwise = {op: spec for op, spec in SPECS.items() if spec.operation}
    assert [op.name for op in pointwise] == [f"{each.name}{mfu}" for mfu in range(MFUS) for each in Operation]
    assert all(opcode(spec.operation, spec.mfu) == op for op, spec in pointwise.items())
    assert {spec.position for spec in pointwise.values()} == set(range(STAGES))
    for op, spec in pointwise.items():
        assert Counter[spec.stage_name] - Counter.ADD0 == spec.position, "counters are in the order of the stages"
        assert (spec.operand is not None) == (spec.kind is OperandKind.OPERAND)
        if spec.operand:
            assert spec.operand.name.endswith(op.name[-1]), "an operation reads the memory of its own unit"


def test_out_scale_is_twos_complement():
    assert [out_scale(value) for value in (0, 31, 0xFFFF, 0xFFE0)] == [0, 31, -1, -32]


def test_codes_are_what_firmware_files_hold():
    assert [*Reg] == list(range(1, 20))
    assert {op: op.name for op in Op if op <= 29} == dict(enumerate(OPCODES, 1))
