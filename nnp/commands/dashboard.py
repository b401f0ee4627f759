"""`nnp dashboard`: pages in a browser that bring networks, watch and steer their training, and verify them."""

from pathlib import Path
from typing import Annotated

import typer
from concord.lib.processes import CORES
from concord.nnp.lib.options import Scheduler


def dashboard(
    port: Annotated[int, typer.Option("--port", help="TCP port; 0 for any that is free.", min=0, max=65535)] = 8420,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    runs: Annotated[Path, typer.Option("--runs", metavar="FOLDER", help="Folder of all runs.")] = Path("runs"),
    root: Annotated[
        list[Path] | None,
        typer.Option(
            "--root",
            metavar="FOLDER",
            show_default=False,
            help="Folder below which users may name files on this computer; may be repeated.",
        ),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", help="Number of runs at once.", min=1)] = CORES,
    scheduler: Scheduler = "",
    upload: Annotated[int, typer.Option("--upload", metavar="MB", help="Largest upload.", min=1)] = 512,
    name: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="HOST",
            show_default=False,
            help="Further name by which browsers reach this server; may be repeated.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File that holds a token of your own.",
            show_default="a token is made, and kept beside the runs",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="PEM file of a certificate, for TLS.", show_default=False),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="PEM file of its key.", show_default=False)
    ] = None,
):
    """Serve pages in a browser: bring a network, watch and steer its training, verify and download it.

    It prints the address to open, whose token lets in whoever has it. Runs are processes of their own, which go on when
    the server or a browser ends.
    """
    from concord.dashboard.settings import Settings, listening, token_of
    from concord.lib.extras import needing
    from concord.lib.files import check_writable

    serve = needing("dashboard", "concord.dashboard.serving").serve
    check_writable(runs, folder=True)
    if scheduler:
        needing("cluster", "concord.lib.cluster").check_answer(scheduler)
    if (certificate is None) != (key is None):
        raise ValueError("TLS needs both files: --certificate and --key")
    tls = None if certificate is None or key is None else (certificate, key)
    token = token_of(runs, token_file, host, tls is not None)
    with listening(host, port) as socket:
        settings = Settings(
            runs=runs.resolve(),
            token=token,
            host=host,
            port=socket.getsockname()[1],
            names=tuple(name or ()),
            roots=tuple(folder.resolve() for folder in root or ()),
            workers=workers,
            scheduler=scheduler,
            upload=upload * 2**20,
            certificate=tls,
        )
        typer.echo(f"Open {settings.url}\nRuns are kept in {settings.runs}; Ctrl-C ends the server, not the runs.")
        serve(settings, socket)
