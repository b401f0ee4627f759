"""The `nnp` command: one file for each of its commands; each imports what it needs only when it runs."""

import typer

from nnp.asm import asm
from nnp.compare import compare
from nnp.compile import compile_model
from nnp.disasm import disasm
from nnp.doctor import doctor
from nnp.errors import sentences
from nnp.export import export
from nnp.overflow import overflow
from nnp.predict import predict
from nnp.quantize import quantize
from nnp.run import run
from nnp.train import app as train
from nnp.verify import verify
from nnp.verilog import verilog

app = typer.Typer(
    help="Concord: trained networks on a block floating point neural network processor, equal to the bit.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, command in (
    ("verify", verify),
    ("compile", compile_model),
    ("run", run),
    ("quantize", quantize),
    ("compare", compare),
    ("predict", predict),
    ("overflow", overflow),
    ("export", export),
    ("verilog", verilog),
    ("asm", asm),
    ("disasm", disasm),
    ("doctor", doctor),
):
    app.command(name)(sentences(command))
app.add_typer(train, name="train")


def main():
    """Entry point of the `nnp` script."""
    app()
