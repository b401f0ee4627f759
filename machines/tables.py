"""Tables of machines: their sizes, attributes in which they differ, what a fit changed, and errors of estimates."""

from collections.abc import Mapping

from concord.machines.block_ram import memories
from concord.machines.estimate import (
    DEVICE,
    MACHINE,
    RESOURCES,
    UNITS,
    Measured,
    estimate,
    read_measured,
    whole_unit_lut4,
)
from concord.machines.fit import Fitted
from concord.machines.machine_text import ATTRIBUTES, differing, meanings, shown
from concord.spec.isa.memories import VRFS, depth
from concord.spec.machine.config import Config
from rich.table import Table


def machines_table(machines: Mapping[str, Config]) -> Table:
    """A table with one row for each machine: formats, sizes, depths of memories, and estimated cells of an ECP5."""
    table = Table(title="machines; LUT4, DSP and block RAM are estimated", title_justify="left")
    table.add_column("machine", no_wrap=True)
    for name in ("weights, inputs", "products a cycle", "MatrixRf, KiB", "VectorRf, KiB", "vector memories, KiB",
                 *RESOURCES):
        table.add_column(name, justify="right")
    for name, config in machines.items():
        table.add_row(name, _operands(config), f"{config.products:,}",
                      *(f"{size:,.1f}" for size in _kibibytes(config)), *_estimated(config))
    return table


def _operands(config: Config) -> str:
    """The operands of a product, such as "8 x 8 bits"."""
    fmts = config.weights, config.activations
    if not any(fmt.precision for fmt in fmts):
        return " x ".join(str(fmt.bits) for fmt in fmts) + " bits"
    return " x ".join(fmt.element for fmt in fmts)


def comparison_table(machines: Mapping[str, Config]) -> Table:
    """A table of the attributes in which machines differ, of products a cycle, and estimated cells; all for one."""
    configs, texts = list(machines.values()), meanings()
    table = Table("attribute", title_justify="left")
    for name in machines:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("meaning")
    for name in differing(*configs) if len(configs) > 1 else ATTRIBUTES:
        table.add_row(name, *(shown(getattr(config, name)) for config in configs), texts[name])
    table.add_section()
    table.add_row("products", *(f"{config.products:,}" for config in configs), "Largest number in one clock cycle.")
    for name, values in zip(RESOURCES, zip(*map(_estimated, configs), strict=True), strict=True):
        table.add_row(name, *values, f"Estimated; an LFE5U-85F has {DEVICE[name]:,}.")
    digests = (f"{config.digest:08x}" for config in configs)
    table.add_row("digest", *digests, "Firmware runs on machines of the same digest.")
    return table


def fit_table(fitted: Fitted, name: str, new: str) -> Table:
    """The table of attributes that a fit has changed, with what the program uses of them."""
    table = Table("attribute", title=f"{fitted.compiled.firmware.name} on {new}", title_justify="left")
    for column in name, "used", new:
        table.add_column(column, justify="right")
    for attribute in differing(fitted.base, fitted.config):
        used = fitted.compiled.uses.get(attribute)
        table.add_row(attribute, shown(getattr(fitted.base, attribute)), "" if used is None else f"{used:,}",
                      shown(getattr(fitted.config, attribute)))
    table.add_section()
    for resource, before, after in zip(RESOURCES, _estimated(fitted.base), _estimated(fitted.config), strict=True):
        table.add_row(f"{resource}, estimated", before, "", after)
    return table


def errors_table() -> Table:
    """The table of estimated and measured cells of everything that was synthesised."""
    title = "estimated | measured on an ECP5, each unit on its own"
    table = Table("unit", "machine", title=title, title_justify="left")
    for name in ("LUT4", "error", "error, unseen", "block RAM", "DSP"):
        table.add_column(name, justify="right")
    for row in read_measured():
        table.add_row(row.unit, row.machine, *_errors(row))
    return table


def _errors(row: Measured) -> list[str]:
    """Cells of the table of errors: resources that are not estimated for a unit alone are empty."""
    real = row.cells
    guess = estimate(row.config) if row.unit == MACHINE else {
        "block RAM": sum(ram.block_ram for ram in memories(row.config) if ram.unit == row.unit)}
    if row.unit in UNITS:
        guess["LUT4"] = round(whole_unit_lut4(row.unit, row.config))
    errors = ["", ""]
    if "LUT4" in guess:
        foreseen = (estimate(row.config, row.machine)["LUT4"] if row.unit == MACHINE
                    else whole_unit_lut4(row.unit, row.config, row.machine))
        errors = [f"{count / real['LUT4'] - 1:+.0%}" for count in (guess["LUT4"], foreseen)]
    both = [f"{guess[name]:,} | {real[name]:,}" if name in guess else "" for name in RESOURCES]
    return [both[0], *errors, both[2], both[1]]


def _kibibytes(config: Config) -> list[float]:
    """Sizes of MatrixRf, VectorRf and all vector memories, without exponents."""
    words = sum(depth(config, mem) for mem in VRFS)
    bits = (config.matrix_tiles * config.native_dim**2 * config.weights.code_bits,
            config.vector_rf * config.native_dim * config.activations.code_bits, words * config.mfu_lanes * 16)
    return [count / 8192 for count in bits]


def _estimated(config: Config) -> list[str]:
    """Estimated cells by the resource; "-" for a machine that only golden can be."""
    try:
        config.require_hardware()
    except ValueError:
        return ["-"] * len(RESOURCES)
    found = estimate(config)
    return [f"{found[name]:,}" for name in RESOURCES]
