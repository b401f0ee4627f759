"""What a page gets of a run: all of it when it comes, then what is new, and never more for a longer run."""

import json
import sqlite3

import pytest
from concord.dashboard.live import BUCKETS, Reader, curve, database, history, widths
from concord.tests.dashboard.folders import add, filled
from concord.train.live.changes import SteeringChange


def test_a_curve_keeps_the_smallest_and_the_largest_of_its_parts(tmp_path):
    filled(tmp_path, 10_000)
    with sqlite3.connect(tmp_path / "live.db") as db:
        db.execute("UPDATE steps SET loss = 99 WHERE step = 7777")
        db.execute("UPDATE steps SET loss = -9 WHERE step = 3333")
    db.close()
    with database(tmp_path) as db:
        steps, values = curve(db, "loss", -1)
    assert len(steps) <= 2 * BUCKETS
    assert steps == sorted(set(steps))
    assert (steps[values.index(99)], steps[values.index(-9)]) == (7777, 3333)


def test_what_is_sent_does_not_grow_with_the_length_of_the_run(tmp_path):
    sizes = []
    for steps in 1000, 10_000:
        reader = Reader(filled(tmp_path / str(steps), steps, tuple(f"layer{index}" for index in range(20))))
        first = len(json.dumps(reader.changes()))
        with sqlite3.connect(tmp_path / str(steps) / "live.db") as db:
            add(db, range(steps + 1, steps + 11), ("layer0",), over=False)
        db.close()
        sizes.append((first, len(json.dumps(reader.changes()))))
        assert reader.changes() == {}
    assert max(first for first, _ in sizes) < 40_000
    assert sizes[1][1] < 1.2 * sizes[0][1]


def test_a_look_takes_as_much_after_a_thousand_steps_as_after_ten(tmp_path):
    reader, sizes = Reader(filled(tmp_path, 10_000)), []
    reader.changes()
    for steps in range(10_001, 10_011), range(10_011, 11_011):
        with sqlite3.connect(tmp_path / "live.db") as db:
            add(db, steps, ("one",), over=False)
            db.execute("UPDATE steps SET loss = loss / 3 WHERE step > 10000")
        db.close()
        sizes.append(len(json.dumps(reader.changes())))
    assert sizes[1] < 1.5 * sizes[0]


def test_only_what_is_new_comes_until_the_run_goes_on_from_a_checkpoint(tmp_path):
    reader = Reader(filled(tmp_path, 100))
    first = reader.changes()
    assert first["loss"][0][-1] == 100
    assert [layer["layer"] for layer in first["layers"]] == ["one", "two"]
    assert first["layers"][0]["sum_events"] == 17
    assert first["layers"][0]["histogram"]["14"] == 1
    assert first["log"][0]["text"] == "training begins"
    with sqlite3.connect(tmp_path / "live.db") as db:
        add(db, range(101, 104), ("one",), over=False)
        db.execute("INSERT INTO what_if VALUES ('q', 103, '{\"one\": {\"sum_events\": 5}}')")
    db.close()
    news = reader.changes()
    assert news["loss"][0] == [101, 102, 103]
    assert news["answers"] == [{"id": "q", "step": 103, "answer": {"one": {"sum_events": 5}}}]
    assert "log" not in news
    with sqlite3.connect(tmp_path / "live.db") as db:
        db.execute("DELETE FROM steps WHERE step > 50")
    db.close()
    again = reader.changes()
    assert again["again"]
    assert again["loss"][0][-1] == 50


def test_a_run_without_a_database_or_with_a_new_one_has_nothing_to_say(tmp_path):
    assert Reader(tmp_path).changes() == {} == history(tmp_path, "one")
    sqlite3.connect(tmp_path / "live.db").close()
    assert Reader(tmp_path).changes() == {}


def test_the_history_of_a_layer(tmp_path):
    found = history(filled(tmp_path, 100), "one")
    assert found["sum_events"] == [list(range(10, 101, 10)), [17] * 10]
    assert found["excess"][1][0] == 2
    assert history(tmp_path, "' OR 1=1 --")["bits"] == [[], []]


@pytest.mark.parametrize(("changes", "accumulator"), [
    ([], 12),
    ([SteeringChange(step=1, what="accumulator", value=14), SteeringChange(step=2, what="rate", value=1)], 14)])
def test_widths_are_those_of_the_machine_to_come(changes, accumulator):
    assert widths(["train", "x", "--accumulator", "12"], changes) == {
        "accumulator": accumulator, "product_bits": None, "output_bits": None}
