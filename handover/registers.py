"""Descriptions of the registers that follow from `spec.host.registers`: SystemRDL, IP-XACT and a C header."""

import json
import struct
import tempfile
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

from concord.lib.extras import require
from concord.spec.host.messages import HEADER, MessageKind, entry_bytes, item_bytes
from concord.spec.host.registers import Control, Counter, Register, Status, counters
from concord.spec.isa.enum_docs import described
from concord.spec.isa.instructions import FIELDS, Error, Op
from concord.spec.isa.memories import addressed
from concord.spec.machine.config import Config, preset_name
from jinja2 import Environment, FileSystemLoader, StrictUndefined

#: Version of the register map in IP-XACT; it rises when an address or a bit changes.
VERSION = "1.1"
#: Fields of `spec.host.messages.HEADER`, in order.
HEADER_FIELDS = ("KIND", "MEMORY", "FLAGS", "ZERO", "ADDRESS", "COUNT", "DIGEST")


def register_files(config: Config) -> dict[str, str]:
    """The text of each description, by the name of its file. Some registers hold values of the configuration."""
    require("synthesis")
    systemrdl = system_rdl(config, "nnp")
    return {"nnp.rdl": systemrdl, "nnp.xml": ipxact(systemrdl),
            "nnp_machine.h": rendered("nnp_machine.h.j2", _values(config))}


def system_rdl(config: Config, name: str) -> str:
    """The register map of a machine in SystemRDL, under a name."""
    return rendered("nnp.rdl.j2", _values(config) | {"name": name})


def constants(config: Config) -> dict[str, int]:
    """The values of the registers that never change, by their names."""
    return {
        "DIGEST": config.digest, "NATIVE_DIM": config.native_dim, "LANES": config.lanes,
        "TILE_ENGINES": config.tile_engines, "MFU_LANES": config.mfu_lanes, "MATRIX_TILES": config.matrix_tiles,
        "INSTRUCTIONS": config.instructions, "COUNTER_COUNT": len(counters(config)),
    }


def machine_name(config: Config) -> str:
    """Name of a machine: its preset, or that it is none, and its digest."""
    name = preset_name(config)
    return f"{f'preset {name}' if name else 'a machine of its own'}, digest {config.digest:08x}"


def _values(config: Config) -> dict:
    """What the templates show. Counters of SystemRDL have addresses; those of C are numbers."""
    return {
        "config": config,
        "machine": machine_name(config),
        "registers": register_rows(Register),
        "constants": constants(config),
        "control": register_rows(Control),
        "status": register_rows(Status),
        "errors": register_rows(Error),
        "counters": [row for row in register_rows(Counter) if row[0] in counters(config)],
        "first_counter": int(Register.COUNTERS),
        "kinds": register_rows(MessageKind),
        "items": [(kind.name, item_bytes(config, kind)) for kind in MessageKind],
        "memories": [(int(mem), mem.name, mem.title) for mem in addressed(config)],
        "header": [(name, struct.calcsize(HEADER.format[: 1 + k])) for k, name in enumerate(HEADER_FIELDS)],
        "header_bytes": HEADER.size,
        "entry_bytes": entry_bytes(config),
        "loop_opcode": int(Op.LOOP),
        "loop_count_bit": FIELDS["a"].lo,
    }


def register_rows(enum: type[IntEnum | IntFlag]) -> list[tuple[int, str, str]]:
    """Code, name and meaning of each member; the marks of Markdown in a meaning are left out."""
    return [(code, name, meaning.replace("\\|", "|").replace("`", "")) for code, name, meaning in described(enum)]


def ipxact(systemrdl: str) -> str:
    """The IP-XACT component (IEEE 1685-2014) of a register map in SystemRDL."""
    from peakrdl_ipxact.exporter import IPXACTExporter, Standard
    from systemrdl import RDLCompiler

    with tempfile.TemporaryDirectory(prefix="nnp-") as folder:
        source, target = Path(folder, "nnp.rdl"), Path(folder, "nnp.xml")
        source.write_text(systemrdl)
        compiler = RDLCompiler()
        compiler.compile_file(str(source))
        exporter = IPXACTExporter(vendor="concord", library="nnp", version=VERSION, standard=Standard.IEEE_1685_2014)
        exporter.export(compiler.elaborate().top, str(target))
        return target.read_text()


TEMPLATES = Path(__file__).with_name("templates")


def rendered(name: str, values: dict, folder: Path = TEMPLATES) -> str:
    """The text of a template in a folder; `values` are its names."""
    environment = Environment(loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True,
                              keep_trailing_newline=True, autoescape=False)
    helpers: dict[str, Any] = {"bits": lambda value: value.bit_length() - 1, "string": _string, "comment": _comment}
    environment.globals.update(helpers)
    return environment.get_template(name).render(values)


def copied(name: str) -> str:
    """The text of a file that is the same in every hand-over."""
    return (TEMPLATES / name).read_text()


def _string(text: str) -> str:
    """A C string of any text. JSON escapes quotes and backslashes as C does; C99 would read two ? as a trigraph."""
    return json.dumps(_printable(text), ensure_ascii=False).replace("??", '?""?')


def _comment(text: str) -> str:
    """Text that neither begins nor ends a C comment, nor holds characters that cannot be printed."""
    return _printable(text).replace("*/", "* /").replace("/*", "/ *")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
