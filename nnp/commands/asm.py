"""`nnp asm`: assembles program text into instruction words, or into firmware."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from concord.handover.memory_images import MemoryFile
    from concord.spec.machine.config import Config


def asm(
    source: Annotated[Path, typer.Argument(metavar="TEXT", help="File of program text.", show_default=False)],
    output: Annotated[Path | None, typer.Option(
        "--out", "-o", help="File to write: instruction words if its name ends with .bin, otherwise firmware for "
                            "`nnp run`.",
        show_default="TEXT.safetensors with --preset, else TEXT.bin")] = None,
    preset: Annotated[str, typer.Option(
        "--preset", "--config", metavar="MACHINE", show_default=False,
        help="Machine, a preset or a TOML file, for which the program is checked and assembled.")] = "",
    image: Annotated[list[str] | None, typer.Option(
        "--image", metavar="MEMORY[@ADDRESS]=FILE",
        help="A .npy file with the contents of a memory: numbers in C order for vector memories and VectorRf, integers "
             "for BiasRf, a matrix for MatrixRf (in MatrixRf and VectorRf, integers are for integer mode, others for "
             "block floating point). May be repeated.",
        show_default=False)] = None,
    input_size: Annotated[int | None, typer.Option(
        "--input-size", help="Count of numbers that one run takes.",
        show_default="all that the program reads from NetQ")] = None,
    output_size: Annotated[int | None, typer.Option(
        "--output-size", help="Count of numbers that one run gives.",
        show_default="all that the program writes to NetQ")] = None,
):
    """Assemble program text into firmware that `nnp run` takes, or into 64-bit little-endian instruction words."""
    from concord.firmware.firmware_file import save_firmware
    from concord.handover.memory_images import MemoryFile, assembled
    from concord.lib.files import check_writable, write_all
    from concord.spec.machine.machine_file import find_config, machine_name

    if source.is_dir():  # whose name may have no ending to change, as `.` has
        raise ValueError(f"{source}: it is a folder; name the file of a program's text in it")
    output = output or source.with_suffix(".safetensors" if preset else ".bin")
    if output.suffix != ".bin" and not preset:
        raise ValueError(f"{output}: firmware is for one machine: name that with --preset, or a .bin file for words "
                         "alone")
    if output.suffix == ".bin" and (image or input_size is not None or output_size is not None):
        raise ValueError(f"{output}: words alone carry neither images nor sizes; firmware does, which takes --preset "
                         "and a name that does not end with .bin")
    machine = find_config(preset) if preset else None
    check_writable(output)
    images = [MemoryFile.parse(text) for text in image or ()]
    text, words, lines = _assembled(source)
    if machine:
        _check(source, words, lines, machine, images)
    if output.suffix == ".bin":
        write_all(output.parent, {output.name: b"".join(word.to_bytes(8, "little") for word in words)})
        typer.echo(f"{output}: {len(words)} instructions")
        return
    assert machine is not None  # `preset` is there for all but words alone
    firmware = assembled(source.stem, machine, text, words, images, inputs=input_size, outputs=output_size)
    save_firmware(firmware, output)
    typer.echo(f"{output}: {len(words)} instructions for {machine_name(preset)}; "
               f"one run takes {firmware.inputs} numbers and gives {firmware.outputs}")


def _assembled(source: Path) -> tuple[str, list[int], list[int]]:
    """The text of a file, its instruction words, and the line number of each word."""
    from concord.lib.files import read_text
    from concord.spec.isa.assembler import numbered

    text = read_text(source)
    try:
        found = numbered(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    return text, [word for _, word in found], [line for line, _ in found]


def _check(source: Path, words: list[int], lines: list[int], machine: "Config", images: list["MemoryFile"]):
    """Refuse a program that is not legal with these images, and name the line of the violation."""
    from concord.handover.memory_images import filled
    from concord.spec.isa.check import check

    violation = check(words, machine, filled(machine, images)[1].modes(machine))
    if violation:
        # A program without an end is reported at its last line.
        line = lines[min(violation.address, len(lines) - 1)] if lines else 1
        raise ValueError(f"{source}: line {line}: {violation}")
