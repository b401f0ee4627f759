"""Results of single samples in the report of `nnp verify`."""

import csv
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from concord.datasets.samples import Samples, Task
from concord.firmware.layer_costs import WAITS, LayerCost
from concord.spec.host.registers import TIMES, Counter
from concord.spec.machine.config import preset
from concord.verification import charts, sample_results, tables
from concord.verification.error_split import ALONE, OUTPUT, PARTS, ErrorSplit
from concord.verification.report import _shown, cost_record, table_names
from concord.verification.tables import cost_rows, cost_table, split_table, verify_table, without_costs
from rich.console import Console


def outputs(values) -> SimpleNamespace:
    """An outcome with these outputs, given as numbers."""
    return SimpleNamespace(outputs=np.array(values, np.float16).view(np.uint16))


#: Three samples of three classes, numbered from 5; the machine differs in one output, which changes a class.
VERIFIED = SimpleNamespace(
    golden=outputs([[3, 1, 2], [0, 5, 1], [1, 2, 3]]),
    other=outputs([[3, 1, 2], [0, 5, 1], [1, 4, 3]]),
    samples=Samples(inputs=np.zeros((3, 1), np.uint16), lengths=None, labels=np.array([0, 1, 2], np.uint8),
                    classes=("bag", "boot", "coat")),
    predictions={"FP32": np.arange(10) % 3, "quantised": np.arange(10) % 3},
    first=6,
    task=Task.CLASSIFICATION,
    own=True,
    results=(),
    comparison=None,
    compared=True,
)


def test_differing_values():
    (value,) = sample_results.differing_values(VERIFIED)
    assert (value.sample, value.output, value.golden, value.other, value.bits) == (8, 1, 2.0, 4.0, (0x4000, 0x4400))


def test_confusion():
    assert sample_results.confusion(VERIFIED).tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert sample_results.class_names(VERIFIED) == ["bag", "boot", "coat"]


def test_results_without_labels():
    unlabelled = SimpleNamespace(**{**vars(VERIFIED), "samples": replace(VERIFIED.samples, labels=None)})
    assert sample_results.confusion(unlabelled).tolist() == []
    assert "label" not in sample_results.table(unlabelled)


def test_a_line_for_each_sample():
    rows = list(csv.DictReader(sample_results.table(VERIFIED).splitlines()))
    assert [row["sample"] for row in rows] == ["6", "7", "8"]
    assert rows[2] == {
        "sample": "8", "label": "2", "FP32 class": "2", "quantised class": "2", "golden class": "2",
        "machine class": "1", "differing bits": "1", "output 0": "1.0", "output 1": "4.0", "output 2": "3.0"}


def test_an_output_may_have_the_name_of_another_column():
    """As `golden`: golden's numbers, and those of its other outputs, stay where their columns say."""
    targets = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    regression = SimpleNamespace(**vars(VERIFIED) | {
        "golden": outputs([[3, 1], [0, 5], [1, 2]]), "other": outputs([[3, 1], [0, 5], [1, 4]]), "predictions": {},
        "samples": replace(VERIFIED.samples, labels=targets), "task": Task.REGRESSION,
        "results": (("target", 1), ("golden", 1))})
    rows = list(csv.DictReader(sample_results.table(regression).splitlines()))
    assert rows[2] == {
        "sample": "8", "target 0": "5.0", "target 1": "6.0", "golden 0": "1.0", "golden 1": "2.0",
        "differing bits": "1", "output target 0": "1.0", "output golden 0": "4.0"}


def test_golden_alone_has_no_differing_bits():
    alone = SimpleNamespace(**vars(VERIFIED) | {"compared": False})
    assert "differing bits" in sample_results.table(VERIFIED)
    assert "differing bits" not in sample_results.table(alone)


def with_labels(task: Task, labels, values) -> SimpleNamespace:
    """A verification of one output for each sample."""
    samples = replace(VERIFIED.samples, labels=np.array(labels))
    return SimpleNamespace(**vars(VERIFIED) | {"task": task, "samples": samples, "other": outputs(values)})


def test_answers_are_drawn_beside_labels():
    regression = with_labels(Task.REGRESSION, np.float32([[1, 2], [2, 3], [4, 5]]), [[1, 2], [3, 4], [4, 6]])
    assert "output 1</text>" in charts.answers(regression)
    anomaly = with_labels(Task.ANOMALY, [0, 1, 1], [[0.1], [0.3], [0.3]])
    assert "anomalies found" in charts.answers(anomaly)
    assert charts.answers(VERIFIED) == ""
    assert charts.answers(with_labels(Task.ANOMALY, [0, 0, 0], [[0.1], [0.3], [0.3]])) != ""


def test_measures_that_are_not_finite_are_not_drawn():
    found = SimpleNamespace(measures={"FP32": {"R2": -np.inf}, "golden": {"R2": 0.5}},
                            request=SimpleNamespace(path=SimpleNamespace(stem="net")))
    text = charts.measures([found], "R2")
    assert "golden 0.5" in text
    assert "FP32" not in text
    assert charts.measures([SimpleNamespace(measures={"golden": {"R2": np.nan}})], "R2") == ""


def test_measures_of_several_tasks_have_rows_of_their_own():
    classes, numbers, bare = (SimpleNamespace(measures=found, comparison=None) for found in (
        {"golden": {"accuracy": 0.5}, "RTL": {"accuracy": 0.25}}, {"golden": {"RMSE": 3.0, "R2": 0.5}}, {}))
    assert tables.measure_names([classes, numbers, bare]) == ["accuracy", "RMSE", "R2"]
    assert tables.measure_names([bare]) == ["accuracy"]
    assert [tables._measure(v, "accuracy", "RTL") for v in (classes, numbers, bare)] == ["25.00%", "", "no labels"]
    assert [tables._measure(v, "RMSE", "FP32") for v in (classes, numbers)] == ["", "not known"]


def test_a_confusion_matrix_of_very_many_classes_is_left_out():
    many = with_labels(Task.CLASSIFICATION, [0, 1, 100], np.zeros((3, 101)))
    assert len(sample_results.confusion(many)) == 0
    assert sample_results.class_names(many) == []


def test_formats_of_a_configuration_are_text():
    shown = _shown(CONFIG)
    assert shown["weights"].startswith(f"bits {CONFIG.weights.bits}, symmetric True, e_min ")
    assert shown["native_dim"] == str(CONFIG.native_dim)
    assert not any(mark in text for text in shown.values() for mark in "{<")


def test_models_of_one_name_have_tables_of_their_own():
    def names(*stems):
        return table_names([SimpleNamespace(request=SimpleNamespace(path=SimpleNamespace(stem=stem)))
                            for stem in stems])

    assert names("a", "b", "a") == ["a-1.csv", "b.csv", "a-2.csv"]
    assert names("a", "a-1", "a", "a-3", "a") == ["a-2.csv", "a-1.csv", "a-4.csv", "a-3.csv", "a-5.csv"]


def counted(name: str) -> SimpleNamespace:
    """A verification on a preset whose counters are all 100."""
    return SimpleNamespace(
        cycles=300.0, samples=VERIFIED.samples, other=SimpleNamespace(counters=(dict.fromkeys(Counter, 100),)),
        parts=(SimpleNamespace(config=preset(name)),))


def test_the_picture_has_a_row_for_each_unit_of_the_machine():
    for name, gathers in ("vision", True), ("speech", False):
        text = charts.cycles(counted(name))
        shown = [unit for unit in charts.UNITS if f"{unit}</text>" in text]
        assert shown == [unit for unit in charts.UNITS if gathers or unit != "gather unit"]


def test_every_counter_of_cycles_of_a_unit_is_drawn():
    """A conflict of banks is a reason for which tile engines wait, and no state of its own."""
    drawn = {counter for counters in charts.UNITS.values() for counter in counters if counter is not None}
    assert drawn == {*TIMES} - {Counter.CYCLES, Counter.MVM_CONFLICT}


def test_the_legend_covers_no_bar(monkeypatch):
    """The legend lies completely outside of the axes."""
    drawn = []
    monkeypatch.setattr(charts, "_svg", lambda figure: drawn.append(figure) or "")
    charts.cycles(counted("vision"))
    (figure,) = drawn
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())


CONFIG = preset("vision_large")


def cost(*layers: str, **counters: int) -> LayerCost:
    """The cost of layers with these counters; all others are 0."""
    return LayerCost(layers=layers, counters={counter: counters.get(counter.name, 0) for counter in Counter})


def with_costs(*costs: LayerCost, bits: int = 0) -> SimpleNamespace:
    """A verification with these costs."""
    request = SimpleNamespace(path=SimpleNamespace(stem="net"))
    return SimpleNamespace(costs=costs, bits=bits, streamed=None, cores=1, first=6,
                           parts=(SimpleNamespace(config=CONFIG),), request=request)


COSTED = with_costs(cost(CYCLES=100, MFU_WAIT_OPERAND=20), cost("a", CYCLES=300, BEATS=300, MFU_WAIT_OPERAND=30),
                    cost("lstm0", "lstm1", CYCLES=1600, BEATS=80, MVM_CONFLICT=7))


def test_costs_of_layers_have_a_total_and_only_waits_that_occur():
    assert CONFIG.tile_engines == 2
    assert cost_rows(COSTED) == [
        ["layer", "cycles", "MVM utilisation", "mfu wait operand", "mvm conflict"],
        ["input, output", "100", "0.00%", "20", "0"],
        ["a", "300", "50.00%", "30", "0"],
        ["lstm0, lstm1", "1,600", "2.50%", "0", "7"],
        ["all", "2,000", "9.50%", "50", "7"],
    ]
    console = Console(width=120)
    with console.capture() as shown:
        console.print(cost_table(COSTED))
    assert "layers of net, sample 6" in shown.get()
    assert all(word in shown.get() for row in cost_rows(COSTED) for cell in row for word in cell.split())


def test_no_heading_is_cut_at_80_columns():
    errors = dict.fromkeys((*PARTS, ALONE), 1.23456e-5)
    split = ErrorSplit(samples=4, layers={"/stack2/body/conv1/Conv_output": errors, OUTPUT: errors})
    console = Console(width=80)
    with console.capture() as shown:
        console.print(split_table(SimpleNamespace(request=SimpleNamespace(path=Path("net.onnx")), split=split)))
    assert all(part in shown.get() for part in (*PARTS, ALONE, "0.00123%"))
    assert "…" not in shown.get()


def test_costs_of_layers_in_json():
    made = cost_record(COSTED.costs[1], CONFIG)
    assert made["layers"] == ["a"]
    assert (made["cycles"], made["mvm_utilisation"]) == (300, 0.5)
    assert made["products"] == 300 * CONFIG.native_dim * CONFIG.lanes
    assert made["waits"] == {counter.name: made["counters"][counter.name] for counter in WAITS}
    assert made["waits"]["MFU_WAIT_OPERAND"] == 30


def test_without_costs_the_report_says_why():
    for bits, reason in (0, "the golden machine has no clock"), (3, "bits of the machine differ from golden"):
        bare = with_costs(bits=bits)
        assert cost_rows(bare) == []
        assert charts.layers(bare) == ""
        assert reason in without_costs(bare)


def test_the_picture_names_every_layer():
    text = charts.layers(COSTED)
    assert all(made.title in text for made in COSTED.costs)


KERAS = "StatefulPartitionedCall/model_1/block_7_depthwise_separable_convolution_with_a_long_name_{}/Conv2D"


def test_long_names_leave_room_for_bars(recwarn):
    errors = {KERAS.format(number): 0.1 * number for number in range(1, 9)}
    drawn = charts.errors(SimpleNamespace(errors=errors))
    assert KERAS.format(1) not in drawn
    assert f"{KERAS[:13]}\u2026" in drawn
    figures = {"golden": {"accuracy": 0.5}}
    drawn = charts.measures([SimpleNamespace(
        measures=figures, request=SimpleNamespace(path=SimpleNamespace(stem=KERAS)))], "accuracy")
    assert "Conv2D</text>" in drawn
    assert not recwarn.list
    assert charts.shortened("conv1") == "conv1"
    assert len(charts.shortened(KERAS)) == charts.LONGEST


def test_columns_of_models_keep_their_whole_names(monkeypatch):
    names = [f"fashion-mlp-{kind}" for kind in ("integer-vision", "bfp-brainwave", "lazy", "lazy-2")]
    monkeypatch.setattr("concord.verification.tables.verify_rows", lambda done: {"samples": ["200"] * len(done)})
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(verify_table([SimpleNamespace(request=SimpleNamespace(path=Path(f"{name}.onnx"))) for name in names]))
    text = console.export_text()
    assert "\u2026" not in text
    columns = ["".join(line.split("\u2503")[index + 2].strip() for line in text.splitlines()
                       if line.startswith("\u2503")) for index in range(len(names))]
    assert columns == names
