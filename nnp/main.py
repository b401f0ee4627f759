"""The `nnp` command. The file of each command imports most modules only when the command runs."""

import ast
from collections.abc import MutableMapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import concord
import typer
from concord.nnp.lib.errors import STOPPED, sentences
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class Commands(TyperGroup):
    """The commands, each of which is imported when it is asked for."""

    commands: MutableMapping

    def resolve_command(self, ctx, args: list[str]):
        """The command of the first word. An error proposes a command that is spelled like it."""
        if args and args[0] not in concord.COMMANDS:
            for name in concord.COMMANDS:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx):
        """Names of the commands, in the order of the help."""
        return list(concord.COMMANDS)

    def get_command(self, ctx, cmd_name: str):
        """The command of a name; None if there is none."""
        if cmd_name not in concord.COMMANDS:
            return None
        if cmd_name not in self.commands:
            file, name = concord.COMMANDS[cmd_name]
            found = getattr(import_module(f"concord.{file}"), name)
            if not isinstance(found, typer.Typer):
                alone = typer.Typer(add_completion=False)
                alone.command(cmd_name)(sentences(found))
                found = alone
            self.commands[cmd_name] = get_command(found)
            self.commands[cmd_name].name = cmd_name  # a group has none of its own
        return self.commands[cmd_name]

    def format_help(self, ctx, formatter):
        """The help of all commands, which are read in their files: importing them would take most of its time."""
        imported = self.commands
        self.commands = {name: TyperCommand(name, help=_help(*module)) for name, module in concord.COMMANDS.items()}
        super().format_help(ctx, formatter)
        self.commands = imported


def _help(file: str, name: str) -> str:
    """The docstring of a command, or of the callback of a group, without importing its file."""
    path = Path(concord.__file__).parent.joinpath(*file.split(".")).with_suffix(".py")
    return next(ast.get_docstring(node) or "" for node in ast.parse(path.read_text(encoding="utf-8")).body
                if isinstance(node, ast.FunctionDef)
                and (node.name == name or f"{name}.callback()" in map(ast.unparse, node.decorator_list)))


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    """Entry point of the `nnp` script. Ctrl-C ends it with a sentence."""
    try:
        app()
    except SystemExit as end:
        if end.code == STOPPED:
            typer.echo("nnp: stopped; no file is left half written", err=True)
        raise


if __name__ == "__main__":
    main()
