"""The `nnp` command. Each of its commands has a file, which imports most modules only when the command runs."""

from importlib.metadata import version
from typing import Annotated

import typer
from concord.nnp.commands.asm import asm
from concord.nnp.commands.compare import compare
from concord.nnp.commands.compile import compile_model
from concord.nnp.commands.disasm import disasm
from concord.nnp.commands.doctor import doctor
from concord.nnp.commands.export import export
from concord.nnp.commands.handover import handover
from concord.nnp.commands.import_network import import_network
from concord.nnp.commands.overflow import overflow
from concord.nnp.commands.predict import predict
from concord.nnp.commands.presets import presets
from concord.nnp.commands.quantize import quantize
from concord.nnp.commands.run import run
from concord.nnp.commands.train import app as train
from concord.nnp.commands.twin import twin
from concord.nnp.commands.verify import verify
from concord.nnp.commands.verilog import verilog
from concord.nnp.lib.errors import sentences

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, command in (
    ("import", import_network),
    ("verify", verify),
    ("compile", compile_model),
    ("run", run),
    ("quantize", quantize),
    ("compare", compare),
    ("predict", predict),
    ("overflow", overflow),
    ("export", export),
    ("verilog", verilog),
    ("handover", handover),
    ("twin", twin),
    ("asm", asm),
    ("disasm", disasm),
    ("presets", presets),
    ("doctor", doctor),
):
    app.command(name)(sentences(command))
app.add_typer(train, name="train")


def show_version(asked: bool):
    """Print the version and exit."""
    if asked:
        typer.echo(f"nnp {version('concord-nnp')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
):
    """Concord: trained networks on a block floating point neural network processor, equal to the bit."""


def main():
    """Entry point of the `nnp` script."""
    app()


if __name__ == "__main__":
    main()
