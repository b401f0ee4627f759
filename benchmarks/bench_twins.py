"""Speed of software twins beside golden, interleaved in one run: `nox -s bench_twins`.

Golden runs one sample after the other. Every twin computes the batch at once, and must have golden's bits.
"""

import re
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from concord.benchmarks.speed import columns, rows
from concord.benchmarks.tiny_models import quantized
from concord.campaigns.makers import networks
from concord.compiler.network import compile_network
from concord.firmware.firmware import Firmware
from concord.firmware.session import Session
from concord.sim.machines.host import Machine, machine
from concord.spec.machine.config import preset
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import write_twin
from concord.verification.twins import TwinSource
from rich.console import Console
from rich.table import Table

PRESET = "vision_large"
STEPS = 10  #: Time steps of a sequence.
#: Names of events of PyTorch's profiler by kind, of which the last one has all others.
KINDS = {"products": re.compile("mm|conv"), "rounding, quantisers and tables": re.compile("CompiledFxGraph"),
         "calls": re.compile("")}


def lstm(_: Path) -> Firmware:
    """An LSTM of 256 cells on vectors of 64 elements, and 10 results; random weights of 8 bits."""
    config = preset(PRESET)
    model = networks.recurrent(np.random.default_rng(0), config, [64, 256], block=[False], outputs=10)
    return compile_network(model, config).firmware


def resnet(folder: Path) -> Firmware:
    """ResNet-8 of MLPerf Tiny in 8 bits; weights from a seed."""
    return compile_network(quantized("resnet8", folder), preset(PRESET)).firmware


NETWORKS = {"LSTM, 256 cells": lstm, "ResNet-8": resnet}


def main(
    network: Annotated[list[str] | None, typer.Option(help=f"{', '.join(NETWORKS)}. May be repeated.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Samples of a batch. May be repeated.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds in which each call is measured.", min=3)] = 5,
    threads: Annotated[int, typer.Option(help="Threads of PyTorch.")] = 1,
    profile: Annotated[bool, typer.Option("--profile", help="Print what compiled twins spend time on.")] = False,
) -> None:
    """Measure golden, and twins in numpy and PyTorch, eager and compiled."""
    torch.set_num_threads(threads)
    console, shares = Console(), Table("network, batch", *KINDS, title="time of compiled twins, per cent")
    table = columns("network, batch", "machine", f"time of a batch; sequences have {STEPS} time steps", "golden")
    with tempfile.TemporaryDirectory() as folder:
        for name in network or NETWORKS:
            firmware = NETWORKS[name](Path(folder))
            script = recover(firmware)
            with machine("golden", firmware.config) as golden:
                for size in batch or (1, 64):
                    shape = [each or STEPS for each in script.inputs]
                    inputs = np.random.default_rng(1).normal(size=(size, *shape)).astype(np.float16)
                    found = calls(script, Path(folder), golden, firmware, inputs)
                    check(found)
                    rows(table, f"{name}, {size}", found, rounds, "golden")
                    if profile:
                        shares.add_row(f"{name}, {size}", *spent(found["twin, torch, compiled"], rounds))
    console.print(table)
    if profile:
        console.print(shares)


def calls(script, folder: Path, golden: Machine, firmware: Firmware, inputs) -> dict[str, Callable]:
    """What is measured; each call returns uint16[batch, outputs]."""
    session, patterns = Session(golden, firmware), inputs.view(np.uint16)
    samples = list(patterns if firmware.recurrent else patterns.reshape(len(inputs), -1))
    made = {
        "twin, numpy": (Framework.NUMPY, False),
        "twin, torch, eager": (Framework.TORCH, False),
        "twin, torch, compiled": (Framework.TORCH, True),
    }
    twins = {name: TwinSource(write_twin(script, framework, folder, f"twin_{framework}"), framework, compiled=compiled)
             for name, (framework, compiled) in made.items()}
    return {"golden": lambda: np.stack([session.infer(sample) for sample in samples]),
            **{name: partial(twin.infer, patterns) for name, twin in twins.items()}}


def spent(call: Callable, rounds: int) -> list[str]:
    """Per cent of the time of a compiled twin that each of `KINDS` takes."""
    with torch.profiler.profile() as profiler:
        for _ in range(rounds):
            call()
    times = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    parts = [sum(time for name, time in times.items() if pattern.search(name)) for pattern in KINDS.values()]
    total = sum(times.values())
    return [f"{100 * part / total:.0f}" for part in (*parts[:-1], total - sum(parts[:-1]))]


def check(found: dict[str, Callable]):
    """Refuse to measure a twin whose bits differ."""
    wanted = found["golden"]()
    for name, call in found.items():
        if not np.array_equal(call(), wanted):
            raise SystemExit(f"{name} has bits that differ from golden's")


if __name__ == "__main__":
    typer.run(main)
