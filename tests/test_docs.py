"""The documents are current, and their links lead to existing files."""

import importlib.util
import re
import runpy
from pathlib import Path

import pytest
from concord import COMMANDS
from concord.compiler.support import KINDS
from concord.net.layers.recurrent import Recurrent
from concord.spec.host.registers import Counter, Register
from concord.spec.isa.instructions import Op

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("data/*.md")])


def script(name: str):
    """Import a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = script("generate").pages()


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_current(name):
    assert (ROOT / "docs" / name).read_text() == GENERATED[name], f"docs/{name} is old: run `nox -s docs`"


def test_the_page_of_twins_counts_the_lines_that_it_shows():
    page = (ROOT / "docs" / "twins.md").read_text()
    shown = page.partition("<!-- source:")[2].partition("```python\n")[2].partition("```\n")[0]
    assert f"twins/vowels_lstm_w8_numpy.py: {len(shown.splitlines())} lines" in page


def test_the_picture_is_current(tmp_path):
    script("machine").main(tmp_path / "machine.svg")
    assert (tmp_path / "machine.svg").read_text() == (ROOT / "docs" / "machine.svg").read_text()


def test_the_instruction_page_names_every_opcode():
    assert all(f"`{op.name.lower()}`" in GENERATED["isa.md"] for op in Op)


def test_the_host_page_names_every_register_and_counter():
    assert all(f"| {member.name} |" in GENERATED["host.md"] for member in [*Register, *Counter])


def test_the_page_of_commands_names_every_command():
    """A command is named in the first column, with a word before its arguments: `nnp verilog --preset P`."""
    page = (ROOT / "docs" / "commands.md").read_text()
    table = page.partition("## Commands")[2].partition("\n## ")[0]
    first_column = " ".join(line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`nnp (\w+)", first_column)) == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", ["architecture.md", "trainer.md", "accelerator.md", "formats.md", "import.md"])
def test_files_that_pages_name_are_there(page):
    """A page may leave out the room that it is about: `plan/waves.py`."""
    rooms = [room for room in ROOT.iterdir() if (room / "__init__.py").exists() and room.name != "concord"]
    found = (path for room in (*rooms, ROOT / "docs", ROOT / "tests") for path in room.rglob("*.py"))
    there = {f"/{path.relative_to(ROOT)}" for path in (*found, *(ROOT / "concord").glob("*.py"))}
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.py)`", (ROOT / "docs" / page).read_text()):
        assert any(path.endswith(f"/{name}") for path in there), name


def test_contributing_lists_the_sessions_of_the_noxfile():
    functions = re.findall(r"@nox\.session.*\n(?:@.*\n)*def (\w+)", (ROOT / "noxfile.py").read_text())
    sessions = [*functions, *runpy.run_path(str(ROOT / "noxfile.py"))["PROGRAMS"]]
    page = (ROOT / "CONTRIBUTING.md").read_text()
    table = page[page.index("## Sessions") :]
    first_column = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert set(sessions) == set(re.findall(r"`(\w+)`", " ".join(first_column)))


def test_the_architecture_page_names_every_kind_of_layer():
    text = (ROOT / "docs" / "architecture.md").read_text()
    titles = [layer.title for layer in KINDS if not issubclass(layer, Recurrent)]
    titles += [f"recurrent, {arithmetic}" for arithmetic in ("integer", "block floating point")]
    assert [title for title in titles if f"| {title} |" not in text] == []
