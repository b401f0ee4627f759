"""What can be done with a model: commands of `nnp` in the folder of its run, and their files to download."""

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from concord.dashboard.run_folder import RunFolder
from concord.dashboard.work_queue import WorkQueue
from concord.firmware.firmware_file import load_firmware
from concord.spec.machine.config import preset_name
from concord.train.live.changes import MODEL, STEERING

FIRMWARE = "jobs/firmware/firmware.safetensors"
MACHINE = "jobs/fit/machine.toml"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelJob:
    """A command on the model of a run.

    Attributes:
        title:  What the page calls it, as a verb.
        words:  Function of the machine, or "", and the data that gives the words of the command after `nnp`.
        gives:  File or folder that it writes, below the folder of the run.
        after:  Job whose files it needs, or "".
    """

    title: str
    words: Callable[[str, str], list[str]]
    gives: str
    after: str = ""


def _machine(machine: str) -> list[str]:
    return ["--preset", machine] if machine else []


JOBS = {
    "fit": ModelJob(
        title="Fit a machine", gives=MACHINE, words=lambda machine, data: ["presets", "--fit", MODEL, "-o", MACHINE]),
    "golden": ModelJob(
        title="Verify on golden",
        gives="jobs/golden/report",
        words=lambda machine, data: [
            "verify", MODEL, *data_words(data), "--machine", "golden", "--report", "jobs/golden/report",
            *_machine(machine)],
    ),
    "verify": ModelJob(
        title="Verify on simulated hardware",
        gives="jobs/verify/report",
        words=lambda machine, data: [
            "verify", MODEL, *data_words(data), "--samples", "20", "--report", "jobs/verify/report",
            *_machine(machine)],
    ),
    "firmware": ModelJob(
        title="Firmware", gives=FIRMWARE,
        words=lambda machine, data: ["compile", MODEL, "-o", FIRMWARE, *_machine(machine)]),
    "verilog": ModelJob(
        title="Verilog", gives="jobs/verilog/files", after="firmware",
        words=lambda machine, data: ["verilog", "-o", "jobs/verilog/files", *_machine(machine)]),
    "handover": ModelJob(
        title="Handover package", gives="jobs/handover/files", after="firmware",
        words=lambda machine, data: ["handover", FIRMWARE, *data_words(data), "-o", "jobs/handover/files"]),
    "twin": ModelJob(
        title="Twin in numpy", gives="jobs/twin/files", after="firmware",
        words=lambda machine, data: ["twin", FIRMWARE, "-o", "jobs/twin/files"]),
}


def data_words(data: str) -> list[str]:
    """The option that names data, if there are some."""
    return ["--data", data] if data else []


def machine_of(run: RunFolder) -> str:
    """The machine of a run: one that was fitted, or that of its command; "" for the smallest that takes the model."""
    if (run.path / MACHINE).is_file():
        return MACHINE
    command = run.request["command"]
    found = dict(zip(command, command[1:], strict=False)).get("--preset", "")
    if found:
        return found
    firmware = run.path / FIRMWARE  # knows the machine that `nnp compile` has chosen
    return (preset_name(load_firmware(firmware).config) or "") if firmware.is_file() else ""


def command_of(run: RunFolder, job: str) -> list[str]:
    """The words of a job after `nnp`."""
    return JOBS[job].words(machine_of(run), run.request.get("data", ""))


def begin(run: RunFolder, job: str, queue: WorkQueue):
    """Put a job into the queue.

    Raises:
        ValueError: there is no model yet, or files of another job are missing.
    """
    if job not in JOBS:
        raise ValueError(f"{job}: there is no such job; choose one of {', '.join(JOBS)}")
    if not (run.path / MODEL).is_file():
        raise ValueError(f"{run.title}: there is no model yet; wait for the end of training, or stop and keep it")
    if run.request.get("fit") and job != "fit" and not (run.path / MACHINE).is_file():
        raise ValueError(f"{JOBS[job].title} needs the machine that is fitted to the model: fit a machine first")
    before = JOBS[job].after
    if before and run.status(before).get("exit") != 0:
        raise ValueError(f"{JOBS[job].title} needs {JOBS[before].title.lower()}: make that first")
    (run.path / "jobs" / job).mkdir(parents=True, exist_ok=True)
    queue.submit(run.path, job, command_of(run, job))


def downloads(run: RunFolder) -> dict[str, Path]:
    """What can be downloaded now, by its name in URLs."""
    files = {name: run.path / name for name in (MODEL, STEERING, "run.json", "inputs")}
    for name, job in JOBS.items():
        if run.status(name).get("exit") == 0 or name in ("golden", "verify") and run.status(name).get("exit") == 1:
            files[name] = run.path / job.gives
    return {name: path for name, path in files.items() if path.exists()}


def content(path: Path) -> tuple[str, bytes]:
    """The name and the bytes of a download; a folder becomes a zip file, whose bytes do not depend on the date."""
    if path.is_file():
        return path.name, path.read_bytes()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            archive.writestr(zipfile.ZipInfo(str(file.relative_to(path))), file.read_bytes(), zipfile.ZIP_DEFLATED)
    return f"{path.parent.name}.zip", made.getvalue()


def measured(run: RunFolder, job: str) -> dict[str, Any]:
    """Figures of the report of a verification; empty where there is none."""
    try:
        report = json.loads((run.path / "jobs" / job / "report" / "verify.json").read_text())[0]
        return {
            name: report[name]
            for name in (
                "preset", "machine", "samples", "mismatching_bits", "accuracy", "cycles_per_inference", "equal")
        }
    except (OSError, ValueError, LookupError, TypeError):
        return {}
