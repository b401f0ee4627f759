"""The instruction word: every field fits, every word means one instruction or none."""

import random

import pytest
from concord.spec.isa import FIELDS, SPECS, WORD, Instruction, Kind, Mem, Op, Reg, Stage, decode, encode, out_scale


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


def test_each_unit_has_six_operations_in_three_stages():
    pointwise = {op: spec for op, spec in SPECS.items() if spec.stage is not None}
    assert [SPECS[op].stage for op in sorted(pointwise)] == sorted(spec.stage for spec in pointwise.values())
    assert len(pointwise) == 16
    assert {spec.stage for spec in pointwise.values()} == set(Stage)
    for op, spec in pointwise.items():
        assert (spec.operand is not None) == (spec.kind is Kind.OPERAND)
        if spec.operand:
            assert spec.operand.name.endswith(op.name[-1]), "an operation reads the memory of its own unit"


def test_out_scale_is_twos_complement():
    assert [out_scale(value) for value in (0, 31, 0xFFFF, 0xFFE0)] == [0, 31, -1, -32]


def test_codes_are_what_firmware_files_hold():
    assert [*Mem] == list(range(1, 10))
    assert [*Reg] == list(range(1, 9))
