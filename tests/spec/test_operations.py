"""The table of point-wise operations: every room has its column for every row."""

import numpy as np
import pytest
from concord.golden.lib.float16 import is_nan, to_bits, to_real
from concord.golden.mfu.multifunction import CURVES, FUNCTIONS, compute, compute_real
from concord.hw.mfu import activation, adder, multiplier
from concord.net.ops import pointwise
from concord.spec.isa.operations import ACTIVATIONS, Operation, Stage, code_bits, codes, implemented, operations
from concord.spec.numbers.activation import Activation
from concord.twin.source.frameworks import FORMS, UNQUANTISED
from concord.twin.source.vocabulary import vocabulary

POINTWISE = [operation for operation in Operation if not operation.reduces]
KINDS = set(Activation) - {Activation.NONE}


@pytest.mark.parametrize("stage", Stage)
def test_the_codes_of_a_stage_are_different(stage):
    for more in False, True:
        found = codes(stage, more=more)
        assert len(set(found)) == len(found) == 1 + len(operations(stage, more=more))
        assert max(found) < 1 << code_bits(stage, more=more)


def test_the_codes_of_more_functions_need_no_more_bits_but_in_the_activation_stage():
    assert {each.name for each in Operation if each.more} == {
        "V_EXP", "V_RECIP", "V_RSQRT", "V_SQRT", "V_LARGEST", "V_SUM"}
    assert [(code_bits(stage), code_bits(stage, more=True)) for stage in Stage] == [(3, 3), (2, 3), (1, 1)]


def test_an_operation_without_a_function_is_refused():
    with pytest.raises(ValueError, match="the ADD stage has no function for vv_max: write it"):
        implemented(dict.fromkeys(set(Operation) - {Operation.VV_MAX}), Stage.ADD)


def test_every_operation_has_functions_in_golden_and_gates():
    assert set(FUNCTIONS) == {*adder.USES, *activation.FUNCTIONS, *multiplier.EXCEPTIONS} == set(POINTWISE)


@pytest.mark.parametrize("operation", POINTWISE)
def test_the_bits_of_an_operation_are_its_real_result_rounded(operation):
    """Functions of the activation stage but relu are within one unit in the last place, others rounded to nearest."""
    value, operand = np.random.default_rng(operation.code).integers(0, 1 << 16, (2, 200_000)).astype(np.uint16)
    with np.errstate(all="ignore"):
        wanted = to_bits(compute_real(operation, to_real(value), to_real(operand)))
    found = compute(operation, value, operand)
    numbers = ~(is_nan(value) | is_nan(operand)) & ~is_nan(wanted)
    units = np.abs(wanted[numbers].astype(int) - found[numbers])
    zeros = (wanted[numbers] | found[numbers]) & 0x7FFF == 0
    assert units[~zeros].max() <= (operation.stage is Stage.ACT and operation is not Operation.V_RELU)


@pytest.mark.parametrize("framework", FORMS)
def test_every_operation_has_a_function_in_every_vocabulary(framework):
    names = {operation.function for operation in POINTWISE}
    assert names <= vocabulary(framework).names | set(FORMS[framework].curves)
    assert names <= vocabulary(framework, unquantized=True).names | set(UNQUANTISED[framework].curves)


def test_every_operation_has_nodes_of_onnx():
    pytest.importorskip("onnx", reason="onnx is in the dependency group `front`")
    from concord.twin.source.onnx_functions import Functions

    assert all(hasattr(Functions, operation.function) for operation in POINTWISE)


def test_every_activation_function_has_an_operation_and_a_place_in_networks():
    assert set(ACTIVATIONS) == set(CURVES) - {Activation.NONE} == KINDS
    assert {each.activation for each in pointwise.Pointwise.__subclasses__()} >= KINDS


def test_every_activation_function_can_be_trained():
    pytest.importorskip("torch", reason="PyTorch is in the dependency group `train`")
    from concord.train.lib import curves

    assert set(curves.CURVES) == KINDS
