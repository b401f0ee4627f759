"""`nnp run`: firmware on a machine."""

from pathlib import Path
from typing import Annotated

import typer
from concord.nnp.lib.options import First, Machine, MachineKind, Samples


def run(
    firmware: Annotated[Path, typer.Argument(metavar="FIRMWARE", help="From `nnp compile`.", show_default=False)],
    samples: Samples = "10",
    first: First = 0,
    machine: Machine = MachineKind.GOLDEN,
    inputs: Annotated[
        Path | None, typer.Option("--inputs", help="A .npy of real inputs instead of the test set.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", help="Write the outputs as .npy of binary16.")] = None,
    waves: Annotated[Path | None, typer.Option("--waves", help="Write a waveform (VCD).")] = None,
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Samples are parts of one sequence: go on from the last one's states.")
    ] = False,
    preset: Annotated[str, typer.Option("--preset", help="The machine that shall run it; its own, if not given.")] = "",
):
    """Run firmware on inputs and print what comes out."""
    import io

    import numpy as np
    from concord.golden.host.firmware_file import load_firmware
    from concord.model import network
    from concord.nnp.lib.files import write_all
    from concord.nnp.verify.inputs import read_inputs
    from concord.nnp.verify.session import Session
    from concord.sim.machines import host
    from concord.spec import config

    loaded = load_firmware(firmware, config.preset(preset) if preset else None)
    if waves and machine == MachineKind.GOLDEN:
        raise ValueError("--waves needs a simulated machine: --machine library or cocotb")
    loaded.program(keep_state=keep_state)  # refuses before anything runs
    chosen = read_inputs(loaded, inputs, samples, first)
    options = {"trace": waves} if waves else {}
    results = []
    if machine != MachineKind.GOLDEN:
        typer.echo("nnp: starting the simulated machine; building it takes minutes where it is not cached", err=True)
    with host.machine(machine, loaded.config, **options) as made:
        session = Session(made, loaded)
        for index, sample in chosen:
            results.append(session.infer(sample, keep_state=keep_state and bool(results)))
            kind = int(network.classes(results[-1]))
            name = f" {loaded.classes[kind]}" if loaded.classes else ""
            values = " ".join(f"{value:.4g}" for value in results[-1].view(np.float16))
            typer.echo(f"{index}: {kind}{name}: {values}")
    if output:
        stream = io.BytesIO()
        np.save(stream, np.stack(results).view(np.float16))
        write_all(output.parent, {output.name: stream.getvalue()})
