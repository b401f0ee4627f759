"""The table of what the source documents ask for: its items, and the page that is made of their commands."""

import pytest

pytest.importorskip("torch", reason="PyTorch trains the networks of the commands")
from concord.campaigns import sources
from concord.campaigns.makers import source_files
from concord.campaigns.sources import SourceItem


def item(**fields) -> SourceItem:
    return SourceItem(**{"number": "9.1", "paragraph": "[1]", "asks": "a thing", **fields})


def test_every_item_is_shown_answered_or_says_what_is_not_there():
    found = sources.items()
    numbers = [one.number for one in found]
    assert len(set(numbers)) == len(numbers)
    assert {number.partition(".")[0] for number in numbers} <= sources.documents().keys()
    made = {f"{name}.{end}" for name in source_files.NETWORKS for end in ("onnx", "npz")}
    for one in found:
        for command in one.commands:
            for word in command.split():
                assert not word.endswith((".onnx", ".npz")) or word in made, command


@pytest.mark.parametrize(("fields", "state"), [
    ({"commands": ("true",), "prints": "x"}, "shown"), ({"answer": "so"}, "answered"), ({"lacks": "all"}, "missing"),
    ({"commands": ("true",), "prints": "x", "lacks": "some"}, "in part"), ({"waits": "memory"}, "waits")])
def test_states(fields, state):
    assert item(**fields).state == state


@pytest.mark.parametrize("fields", [{}, {"commands": ("true",)}, {"prints": "x"}])
def test_items_that_say_nothing_are_refused(fields):
    with pytest.raises(ValueError, match=r"sources.toml, item 9.1"):
        item(**fields)


def test_commands_run_once_and_failures_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "OUT", tmp_path)
    shown = item(number="0.1", commands=("echo one >> log; cat log; echo other",), prints="one")
    first, again = sources.shown(shown), sources.shown(shown)
    assert first[0].output == again[0].output == ("one", "other")
    assert not list(sources.problems(shown, first))
    assert "    $ echo one >> log; cat log; echo other\n    one\n" in sources.page([(shown, first)])
    failing = item(commands=("echo no; false", "echo never"), prints="no")
    (result,) = sources.shown(failing)
    assert list(sources.problems(failing, [result])) == ["9.1: `echo no; false` ended with exit code 1: no"]
    silent = item(commands=("echo something",), prints="else")
    assert list(sources.problems(silent, sources.shown(silent))) == ["9.1: no line of the output matches 'else'"]
    assert "\nNot there: all\n" in sources.page([(item(number="0.2", lacks="all"), [])])
