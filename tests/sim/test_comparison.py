"""The messages of a failing testbench."""

import numpy as np
import pytest
from concord.sim.drivers.bench import assert_equal
from concord.spec.isa.operations import Stage, Tap

A = np.array([0x3C00, 0x4000, 0xC200], np.uint16)
B = np.array([0x3C00, 0x3800, 0x0001], np.uint16)


def difference(*words, **inputs) -> list[str]:
    with pytest.raises(AssertionError) as failure:
        assert_equal(*words, **inputs)
    return str(failure.value).splitlines()


def test_equal_values_pass():
    assert_equal("o", [1, 2], np.array([1, 2]))
    assert_equal("o", [1, 2], [1, 3], where=[True, False])
    assert_equal("o", {"a": [1, 2], "b": 3, "unread": 4}, {"a": np.array([1, 2]), "b": 3})


def test_operation_operands_expected_and_got():
    got = [0x4000, 0x4100, 0xC200]
    assert difference("o", got, np.array([0x4000, 0x4080, 0xC201], np.uint16),
                      operation=(np.array([1, 2, 4]), Stage.ADD), a=A, b=B) == [
        "o differs in 2 of 3 elements; the first is [1]",
        "  expected   0x4080 (2.25)",
        "  got        0x4100 (2.5)",
        "  operation  VV_A_SUB_B (2)",
        "  a          0x4000 (2.0)",
        "  b          0x3800 (0.5)",
    ]


def test_the_seed_of_a_simulation_is_told(monkeypatch):
    monkeypatch.setenv("COCOTB_RANDOM_SEED", "7")
    assert difference("count", 3, 4, case="a block of zeros") == [
        "count differs in 1 of 1 elements; seed 7", "  expected  4 (0x4)", "  got       3 (0x3)",
        "  case      a block of zeros"]


def test_inputs_share_the_leading_axes():
    """For a word of three lanes, the message shows the lane of an operand, the word of a scale, and all taps."""
    expected = np.zeros((2, 3), int)
    got = expected.copy()
    got[1, 2] = -5
    operand, taps = np.arange(6).reshape(2, 3), (np.array([[0, 0], [1, 0]]), Tap)
    assert difference("o", got, expected, operand=operand, scale=[10, 20], taps=taps)[2:] == [
        "  got       -5 (-0x5)", "  operand   5 (0x5)", "  scale     20 (0x14)",
        f"  taps      [{Tap(1).name} (1), {Tap(0).name} (0)]"]


def test_integers_of_any_size_are_exact():
    """numpy alone would turn a list of these integers into floats."""
    values = [(1 << 63) + 1, -1]
    assert_equal("o", np.array(values, object), values)
    assert difference("o", np.array(values, object), [1 << 63, -1])[1:] == [
        "  expected  9223372036854775808 (0x8000000000000000)", "  got       9223372036854775809 (0x8000000000000001)"]


def test_shapes_and_fields_differ():
    assert difference("o", [1, 2], [1, 2, 3]) == ["o has the shape (2,), not (3,)"]
    assert difference("o", {"a": 1}, {"a": 1, "b": 2}) == ["o has a, not a, b"]
    assert difference("o", {"a": [1, 0]}, {"a": [1, 2]})[0] == "o[a] differs in 1 of 2 elements; the first is [1]"
