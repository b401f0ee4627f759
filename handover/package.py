"""All files of a hand-over: what brings a compiled network onto a board, and shows that it answers as golden does."""

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version

import numpy as np
from concord.firmware.accelerator_session import accelerator_of
from concord.firmware.check import require_single
from concord.firmware.firmware import Firmware, ReadDirection
from concord.handover.accelerator_driver import driver_files
from concord.handover.accelerator_registers import accelerator_register_files
from concord.handover.registers import copied, machine_name, register_files, rendered
from concord.handover.streams import Inference, Stream, golden_runs, load_messages
from concord.lib.extras import DISTRIBUTION
from concord.spec.host.registers import Control, Register, Status
from concord.spec.machine.config import preset_name

#: Each file, what it is, and the order of the page README.md.
FILES = {
    "README.md": "this page",
    "manifest.json": "the network, the machine, the examples, and the SHA-256 digest of every file",
    "load.bin": "the messages that load the firmware, one after the other: memories, then the program",
    "load.json": "first byte, end and header of each message of load.bin; TLAST belongs to its last beat",
    "load.hex": "the beats of load.bin for `$readmemh`: TLAST, TKEEP, TDATA",
    "input.bin": "the messages that the examples send",
    "input.json": "the index of input.bin",
    "input.hex": "the beats of input.bin",
    "output.bin": "the messages that the golden model answers, which the machine must answer bit for bit",
    "output.json": "the index of output.bin",
    "output.hex": "the beats of output.bin",
    "runs.hex": "for each example: beats before the start, beats after the start, beats of the answer",
    "table.npy": "the table of the embedding in front of the network, binary16 [token numbers, size of a vector]",
    "nnp_testbench.v": "a testbench that plays these beats into `nnp.v` and compares the answers",
    "nnp.rdl": "the registers in SystemRDL",
    "nnp.xml": "the registers in IP-XACT (IEEE 1685-2014)",
    "nnp_machine.h": "registers, codes, messages and sizes of the machine, for C",
    "nnp.h": "the driver: registers, messages, start and end of a program",
    "nnp.c": "the driver",
    "nnp_infer.h": "whole inferences, and binary16",
    "nnp_infer.c": "whole inferences, and binary16",
    "nnp_accelerator.rdl": "the registers of the accelerator in SystemRDL",
    "nnp_accelerator.xml": "the same in IP-XACT (IEEE 1685-2014)",
    "nnp_accelerator.h": "registers, commands and sizes of the accelerator, for C",
    "nnp_commands.h": "the driver of the command processor: lists of commands",
    "nnp_commands.c": "the driver of the command processor",
    "nnp_cores.h": "whole inferences on all cores",
    "nnp_cores.c": "whole inferences on all cores",
    "network.h": "the network, its firmware and its examples",
    "network.c": "sizes and layouts of the network",
    "firmware.c": "load.bin as an array",
    "examples.c": "samples and results of the examples",
    "example.c": "a program that loads the firmware, runs the examples and compares the results",
    "platform.h": "what example.c asks of a platform",
    "platform_linux.c": "Linux: registers through UIO, streams through a character device",
    "platform_simulation.c": "the Verilated machine",
    "example_cores.c": "a program that loads the firmware into all cores, runs the examples and compares the results",
    "platform_cores.h": "what example_cores.c asks of a platform",
    "platform_cores_linux.c": "Linux: registers through UIO, memory through a device that maps it",
    "platform_cores_simulation.c": "the Verilated accelerator with its memory",
    "nnp.so": "what was Verilated as a library, for the simulation's platform",
}
COPIED = ("nnp.h", "nnp.c", "nnp_infer.h", "nnp_infer.c")
RENDERED = ("network.h", "network.c", "firmware.c", "examples.c")
#: What only a machine at two streams has, or only cores of an accelerator.
STREAMED = ("example.c", "platform.h", "platform_linux.c", "platform_simulation.c")
SHARED = ("nnp_cores.h", "nnp_cores.c", "example_cores.c", "platform_cores.h", "platform_cores_linux.c",
          "platform_cores_simulation.c")


def handover(firmware: Firmware, samples: Iterable[np.ndarray], machine: bytes | None = None,
             cores: int = 1) -> dict[str, str | bytes]:
    """The content of each file, by its name.

    Args:
        firmware: Firmware of the network.
        samples:  Examples, binary16 patterns uint16[inputs], or uint16[steps, inputs] if the network is recurrent.
        machine:  The Verilated machine, or accelerator, as a library, or None to leave it out.
        cores:    Number of machines under a command processor; 1 for a machine at two streams.

    Raises:
        ValueError:   no hardware can be generated for the machine, there are no samples, the firmware takes several
            at once, or there are too many cores.
        Stopped:      the program stopped with an error.
        RuntimeError: the program waits for more words than one input brings.
    """
    config = firmware.config
    config.require_hardware()
    require_single(firmware, "a hand-over")
    runs = golden_runs(firmware, samples)
    if not runs:
        raise ValueError("a hand-over needs at least one example: give more samples")
    streams = {
        "load": Stream(config=config, messages=load_messages(firmware)),
        "input": Stream(config=config, messages=tuple(m for run in runs for m in (*run.setup, *run.inputs))),
        "output": Stream(config=config, messages=tuple(m for run in runs for m in run.answer)),
    }
    kinds = [("bin", "bytes"), ("json", "index"), *([("hex", "hex")] if cores == 1 else [])]
    files = {f"{name}.{suffix}": getattr(stream, attribute) for name, stream in streams.items()
             for suffix, attribute in kinds}
    values = _values(firmware, runs, streams) | {"cores": cores}
    files |= {name: rendered(f"{name}.j2", values) for name in RENDERED} | {name: copied(name) for name in COPIED}
    if cores == 1:
        beats = [" ".join(f"{count:x}" for count in _beats(firmware, run)) for run in runs]
        files |= {"runs.hex": "".join(f"{line}\n" for line in beats),
                  "nnp_testbench.v": rendered("nnp_testbench.v.j2", values)}
        files |= register_files(config) | {name: copied(name) for name in STREAMED}
    else:
        accelerator = accelerator_of(config, cores)
        files |= {"nnp_machine.h": register_files(config)["nnp_machine.h"]} | {name: copied(name) for name in SHARED}
        files |= driver_files(accelerator) | accelerator_register_files(accelerator)
    files |= {"nnp.so": machine} if machine else {}
    files |= {} if firmware.table is None else {"table.npy": _array(firmware.table.astype(np.float16))}
    files["README.md"] = rendered("README.md.j2", values | {"files": {
        name: what for name, what in FILES.items() if name in files or name in ("README.md", "manifest.json")}})
    return files | {"manifest.json": _manifest(firmware, runs, files, cores)}


def _array(values: np.ndarray) -> bytes:
    """The bytes of a file in numpy's format."""
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _beats(firmware: Firmware, run: Inference) -> tuple[int, ...]:
    return tuple(sum(map(len, part)) // firmware.config.message_bytes for part in (run.setup, run.inputs, run.answer))


def _values(firmware: Firmware, runs: list[Inference], streams: dict[str, Stream]) -> dict:
    """What the templates show."""
    config = firmware.config
    words = firmware.input_words or config.vectors_of(firmware.inputs) * config.vector_words
    return {
        "firmware": firmware, "config": config, "machine": machine_name(config),
        "preset": preset_name(config), "load": list(streams["load"].bytes),
        "beats": {name: stream.beats for name, stream in streams.items()},
        "input_words": 0 if firmware.input_layout else words,
        "backward": [direction == ReadDirection.BACKWARD for direction in firmware.directions],
        "runs": runs, "examples": [(run.sample, run.result) for run in runs],
        "register": Register, "control": Control, "status": Status,
    }


def _manifest(firmware: Firmware, runs: list[Inference], files: dict[str, str | bytes], cores: int) -> str:
    contents = {name: text if isinstance(text, bytes) else text.encode() for name, text in files.items()}
    record = {
        "made_by": f"{DISTRIBUTION} {version(DISTRIBUTION)}",
        "network": {name: getattr(firmware, name) for name in ("name", "inputs", "outputs", "recurrent", "classes")},
        "machine": {"name": machine_name(firmware.config), "digest": f"{firmware.config.digest:08x}",
                    "configuration": asdict(firmware.config)}, "cores": cores,
        "examples": [{"steps": len(run.sample) if firmware.recurrent else 1,
                      **dict(zip(("setup_beats", "input_beats", "output_beats"), _beats(firmware, run), strict=True))}
                     for run in runs],
        "files": {name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                  for name, content in contents.items()},
    }
    return json.dumps(record, indent=2) + "\n"
