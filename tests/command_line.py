"""The command line in this process, as a terminal of 200 columns shows it."""

from collections.abc import Mapping
from pathlib import Path

from concord.nnp.main import app
from typer.testing import CliRunner, Result


def nnp(*words) -> Result:
    """Run a command."""
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def done(*words) -> str:
    """The stdout of a command that must succeed."""
    result = nnp(*words)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*words) -> str:
    """The one sentence on stderr of a command that must be refused."""
    result = nnp(*words)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("nnp: ")
    assert "Traceback" not in result.output
    return result.stderr


def compiled(folder: Path, networks: Mapping[str, str]) -> dict[str, Path]:
    """Firmware files of shipped networks by name; `networks` has the preset of each."""
    files = {name: folder / f"{name}.safetensors" for name in networks}
    for name, file in files.items():
        done("compile", f"data/models/{name}.safetensors", "--preset", networks[name], "-o", file)
    return files
