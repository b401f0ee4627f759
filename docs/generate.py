"""Write the pages and tables that follow from definitions in the code: `python docs/generate.py`, or `nox -s docs`."""

import inspect
import re
from pathlib import Path

from concord.benchmarks.clocks import recorded
from concord.compiler.network import compile_network
from concord.golden.lazy import tensor_layers, tensor_training
from concord.machines.estimate import MACHINE, UNITS, estimate, read_measured, unit_errors
from concord.machines.machine_text import meanings, shown
from concord.net.model_file import load_model
from concord.net.quantize import recipe as methods
from concord.spec.accelerator import accelerator, commands
from concord.spec.accelerator import registers as accelerator_registers
from concord.spec.host import messages, registers, serial
from concord.spec.isa import dram, memories
from concord.spec.isa import instructions as isa
from concord.spec.isa.enum_docs import comments, described
from concord.spec.machine import config
from concord.spec.trainer import config as trainer_config
from concord.spec.trainer import instructions as trainer_isa
from concord.spec.trainer import registers as trainer_registers
from concord.spec.trainer import views
from concord.twin.recovery.recover import recover
from concord.twin.source.frameworks import Framework
from concord.twin.source.writer import module_name, source
from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).parent
PAGES = ("isa.md", "host.md", "presets.md", "accelerator.md", "trainer.md")
#: Pages written by hand, in which a comment with the name of a table of methods stands before that table.
PAGES_WITH_METHODS = ("quantisation.md",)
#: Pages written by hand, in which a comment with a shipped model and a preset stands before the source of its twin.
PAGES_WITH_SOURCES = ("twins.md",)


def _accelerator() -> dict[str, object]:
    """What the page of accelerators says of commands and registers."""
    named = accelerator_registers.AcceleratorRegister
    return {
        "most_cores": accelerator.MOST_CORES, "queue": accelerator.QUEUE, "aligned": accelerator.ALIGNED,
        "command_bytes": commands.BYTES, "commands": described(commands.CommandKind),
        "command_fields": {kind.name: ", ".join(fields) for kind, fields in commands.FIELDS.items()},
        "trainer_bus": trainer_config.LANES, "instruction_bytes": commands.INSTRUCTION,
        "trainer_fields": {kind.name: ", ".join(fields) for kind, fields in commands.TRAINER_FIELDS.items()},
        "trainer_set": ", ".join(register.name for register in commands.TRAINER_SET),
        "command_errors": described(commands.CommandError)[1:],
        "accelerator_registers": described(named), "access": {register.name: register.access for register in named},
        "accelerator_control": described(accelerator_registers.AcceleratorControl),
        "accelerator_status": described(accelerator_registers.AcceleratorStatus),
        "example": (HERE / "templates" / "accelerator_example.py").read_text()}


def _trainer() -> dict[str, object]:
    """What the page of trainers says of their sizes, instructions and registers."""
    fields = {op: ", ".join(f"`{name}` {field.width}" for name, field in found.items())
              for op, found in trainer_isa.FIELDS.items()}
    fields[trainer_isa.TrainerOp.TENSOR] = "see [views](#views)"
    kinds = {"number": "unsigned", "view": "number of the view", "base?": "number of a base register, or none"}
    return {
        "trainer": trainer_config.TrainerConfig(), "loop_depth": trainer_config.LOOP_DEPTH,
        "no_number": trainer_config.NONE, "most_passes": trainer_config.MOST_PASSES,
        "views": inspect.getdoc(views).partition("\n\n")[2],
        "tensor_fields": [(name, f"{field.lo}..{field.lo + field.width - 1}", kinds.get(field.kind, field.kind))
                          for name, field in trainer_isa.FIELDS[trainer_isa.TrainerOp.TENSOR].items()],
        "spaces": described(trainer_isa.Space), "reach": tensor_layers.REACH, "bias_reach": tensor_layers.BIAS_REACH,
        "momentum_reach": tensor_training.MOMENTUM_REACH,
        "trainer_ops": [(code, name.lower(), fields[trainer_isa.TrainerOp(code)], meaning)
                        for code, name, meaning in described(trainer_isa.TrainerOp)],
        "trainer_errors": described(trainer_isa.TrainerError)[1:],
        "trainer_registers": described(trainer_registers.TrainerRegister),
        "trainer_counters": described(trainer_registers.TrainerCounter),
        "trainer_written": ", ".join(register.name for register in trainer_registers.WRITTEN)}


def pages() -> dict[str, str]:
    """The text of each generated page by its name."""
    loader = FileSystemLoader(HERE / "templates")
    environment = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)
    values = {
        "isa": isa,
        "dram": inspect.getdoc(dram).partition("\n\n")[2],
        "opcodes": _opcodes(),
        "fields": [(name, field.lo, field.lo + field.width - 1) for name, field in isa.FIELDS.items()],
        "memories": described(memories.Mem, memories.MEMORY_NAMES),
        "scalar_registers": described(isa.Reg, isa.REGISTER_NAMES),
        "errors": described(isa.Error),
        "kinds": described(messages.MessageKind),
        "serial": serial,
        "frames": described(serial.FrameKind),
        "control_port": described(registers.Register),
        "control": described(registers.Control),
        "status": described(registers.Status),
        "counters": described(registers.Counter),
        "presets": _presets(),
        "purposes": _purposes(),
        "meanings": meanings(),
        "measured": [(row.machine, estimate(row.config), estimate(row.config, row.machine), row.cells)
                     for row in read_measured() if row.unit == MACHINE],
        "unit_errors": _unit_errors(),
        **_accelerator(),
        **_trainer(),
        "clocks": _clocks("ulx3s", 14), "vision_clocks": _clocks("vision", 8),
        "vision_units": len(recorded()["vision"]),
    }
    made = {page: environment.get_template(f"{page}.j2").render(values) for page in PAGES}
    made |= {page: _with_methods((HERE / page).read_text()) for page in PAGES_WITH_METHODS}
    return made | {page: _with_sources((HERE / page).read_text()) for page in PAGES_WITH_SOURCES}


def main():
    """Write the pages."""
    for name, text in pages().items():
        (HERE / name).write_text(text)


def _with_methods(text: str) -> str:
    """A page with its tables of methods written anew, below the two lines that head each of them."""

    def rows(found: re.Match) -> str:
        return found[1] + "".join(f"| `{one}` | {one.summary} |\n" for one in getattr(methods, found[2]))

    return re.sub(r"(<!-- (\w+) -->\n\n(?:\|.*\n){2})(?:\|.*\n)*", rows, text)


def _with_sources(text: str) -> str:
    """A page with the sources of its twins written anew."""

    def source_of(found: re.Match) -> str:
        firmware = compile_network(load_model(HERE.parent / "data" / "models" / f"{found[2]}.safetensors"),
                                   config.preset(found[3])).firmware
        return f"{found[1]}{source(recover(firmware), Framework.NUMPY, module_name(firmware.name) + '_numpy')}```\n"

    block = re.compile(r"(<!-- source: (\S+) (\S+) -->\n\n```python\n).*?^```\n", re.DOTALL | re.MULTILINE)
    return block.sub(source_of, text)


def _opcodes() -> list[dict]:
    meanings = comments(isa.Op)
    rows = []
    for op, spec in isa.SPECS.items():
        taken = [memories.MEMORY_NAMES[mem] for mem in spec.mems or ((spec.operand,) if spec.operand else ())]
        rows.append(
            {
                "code": int(op),
                "name": op.name.lower(),
                "fields": ", ".join(f"`{field}`" for field in spec.fields),
                "memories": ", ".join(taken),
                "stage": spec.stage_name if spec.operation else "",
                "meaning": f"MFU {spec.mfu}, {spec.operation.meaning}." if spec.operation else meanings[op.name],
            }
        )
    return rows


def _clocks(machine: str, count: int) -> str:
    """The recorded clocks of the slowest units of a machine."""
    slowest = sorted(recorded()[machine].items(), key=lambda row: row[1])[:count]
    return ", ".join(f"{unit.replace('_', ' ')} {clock:g}" for unit, clock in slowest)


def _presets() -> list[tuple]:
    """One row for each attribute of a configuration, and for what follows from it."""
    rows = []
    for attribute in meanings():
        rows.append((attribute, *(shown(getattr(preset, attribute)) for preset in config.PRESETS.values())))
    derived = {
        "vector_words": "N/M", "groups": "N/lanes", "sum_bits": "accumulator bits", "alignment": "largest left shift"}
    for attribute, text in derived.items():
        rows.append((f"{attribute} ({text})", *(getattr(preset, attribute) for preset in config.PRESETS.values())))
    rows.append(("digest", *(f"{preset.digest:08x}" for preset in config.PRESETS.values())))
    return [("attribute", *config.PRESETS), *rows]


def _purposes() -> dict[str, str]:
    """What each preset is for, by its name: the comment above it.

    Raises:
        ValueError: a preset has no comment.
    """
    above = re.findall(r'    # (.*)\n    "(\w+)": ', inspect.getsource(config))
    found = {name: text for text, name in above}
    if missing := set(config.PRESETS) - set(found):
        raise ValueError(f"spec/machine/config.py: there is no comment above the preset {min(missing)!r}")
    return {name: found[name] for name in config.PRESETS}


def _unit_errors() -> list[tuple[str, int, float, float]]:
    """For each unit of the estimate, the number of machines in which it was measured, and the two largest errors."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in read_measured():
        if row.unit in UNITS:
            found.setdefault(row.unit, []).append(unit_errors(row))
    return [(name, len(errors), *(max(map(abs, kind)) for kind in zip(*errors, strict=True)))
            for name, errors in found.items()]


if __name__ == "__main__":
    main()
