"""Measures of tasks, held to their definitions."""

import numpy as np
import pytest
from concord.datasets.measures import MEASURES, NAMES, measure, remark, text
from concord.datasets.samples import UNLABELLED, Samples, Task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def samples(labels, inputs=None) -> Samples:
    inputs = np.zeros((len(labels), 3)) if inputs is None else inputs
    return Samples(inputs=np.asarray(inputs, np.float16).view(np.uint16), lengths=None, labels=np.asarray(labels),
                   classes=())


def test_the_largest_output_is_the_class():
    outputs = np.array([[1, 3, 3], [2.0, 1, 0], [0, 0, 1]])
    assert measure(Task.CLASSIFICATION, outputs, samples([1, 1, 2])) == {"accuracy": 2 / 3}


def test_regression_of_several_outputs():
    targets, outputs = np.array([[1.0, 10], [2, 20], [3, 30]]), np.array([[1.0, 13], [2, 20], [4, 30]])
    found = measure(Task.REGRESSION, outputs, samples(targets.astype(np.float32)))
    assert found["RMSE"] == pytest.approx(np.sqrt((9 + 1) / 6))
    assert found["R2"] == pytest.approx((0.5 + (1 - 9 / 200)) / 2)


def test_targets_that_are_all_equal():
    flat = samples(np.ones((4, 1), np.float32))
    assert measure(Task.REGRESSION, np.ones((4, 1)), flat) == {"RMSE": 0.0}
    assert measure(Task.REGRESSION, np.zeros((4, 1)), flat) == {"RMSE": 1.0}
    assert "all targets are equal in all 4 samples, so that R2 is not defined" in remark(Task.REGRESSION, flat)
    half = samples(np.array([[1, 1], [1, 2]], np.float32))
    assert measure(Task.REGRESSION, np.array([[0, 1], [1, 2]]), half) == {"RMSE": 0.5, "R2": 1.0}
    assert "the targets of output 0 are equal in all 2 samples" in remark(Task.REGRESSION, half)
    assert remark(Task.REGRESSION, samples(np.array([[1], [2]], np.float32))) == ""
    assert "all 2 samples are normal, so that AUC is not defined" in remark(Task.ANOMALY, samples(np.array([0, 0])))
    assert "all 2 samples are anomalies" in remark(Task.ANOMALY, samples(np.array([1, 1])))
    assert remark(Task.ANOMALY, samples(np.array([0, 1]))) == ""


def test_samples_without_any_class():
    none = samples(np.full((2, 3), UNLABELLED, np.int32))
    assert np.isnan(measure(Task.CLASSIFICATION, np.zeros((2, 6)), none)["accuracy"])
    assert "no time step or pixel of all 2 samples has a class" in remark(Task.CLASSIFICATION, none)
    assert remark(Task.CLASSIFICATION, samples(np.array([[UNLABELLED, 1]], np.int32))) == ""


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_order(pairs):
    scores, labels = map(list, zip(*pairs, strict=True))
    found = measure(Task.ANOMALY, np.array(scores, float)[:, None], samples(np.array(labels, int)))["AUC"]
    high = [score for score, anomalous in pairs if anomalous]
    low = [score for score, anomalous in pairs if not anomalous]
    if not high or not low:
        assert np.isnan(found)
        return
    won = sum((a > b) + (a == b) / 2 for a in high for b in low)
    assert found == pytest.approx(won / len(high) / len(low))


def test_an_autoencoder_is_scored_by_its_distance_from_the_input():
    inputs = np.array([[0, 0, 0], [1, 1, 1], [2, 2, 2.0]])
    marked = samples([0, 0, 1], inputs)
    assert measure(Task.ANOMALY, inputs + [[0.1], [0.2], [1]], marked) == {"AUC": 1.0}
    assert measure(Task.ANOMALY, inputs + [[2], [0.2], [1]], marked) == {"AUC": 0.5}


def test_without_labels_there_is_no_measure():
    bare = Samples(inputs=np.zeros((2, 3), np.uint16))
    assert all(measure(task, np.zeros((2, 3)), bare) == {} for task in Task)


@pytest.mark.parametrize(("task", "labels", "sentence"), [
    (Task.CLASSIFICATION, [0, 2], "a sample has class 2, but the network has 2 outputs"),
    (Task.REGRESSION, np.zeros((2, 3), np.float32), "each sample has 3 targets, but the network has 2 outputs"),
    (Task.ANOMALY, [0, 1], "or by as many as the 3 inputs, which they restore; the network has 2 outputs"),
])
def test_outputs_that_do_not_fit_the_labels(task, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        measure(task, np.zeros((2, 2)), samples(labels))


def test_every_task_with_labels_has_a_measure_and_its_name():
    assert MEASURES.keys() == {*Task} - {Task.NONE}
    assert NAMES.keys() == {*Task}
    for task, function in MEASURES.items():
        labels = np.zeros((2, 1), np.float32) if task is Task.REGRESSION else np.array([0, 0])
        assert next(iter(function(np.zeros((2, 1)), samples(labels), labels))) == NAMES[task]
    assert (text("accuracy", 0.5), text("AUC", 0.75)) == ("50.00%", "0.75")
