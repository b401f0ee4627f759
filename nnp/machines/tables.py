"""Tables of machines: all of them with their sizes, the attributes in which some differ, what a fit has changed."""

from collections.abc import Mapping

from concord.nnp.machines.attributes import differing, meanings, shown
from concord.nnp.machines.estimate import DEVICE, RESOURCES, estimate
from concord.nnp.machines.fit import Fitted
from concord.spec.config import Config
from rich.table import Table


def machines_table(machines: Mapping[str, Config]) -> Table:
    """A table with one row for each machine: formats, sizes, depths of memories, and estimated cells of an ECP5."""
    table = Table(title="machines", title_justify="left")
    table.add_column("machine", no_wrap=True)
    for name in ("weights, inputs", "products a cycle", "tile", "MatrixRf tiles", "VectorRf entries",
                 "vector memories, words", *(f"{name}, estimated" for name in RESOURCES)):
        table.add_column(name, justify="right")
    for name, config in machines.items():
        table.add_row(
            name, f"{config.weights.bits} x {config.activations.bits} bits", f"{products(config):,}",
            f"{config.native_dim} x {config.native_dim}", f"{config.matrix_tiles:,}", f"{config.vector_rf:,}",
            f"{config.initial_vrf} + 2 x {config.addsub_vrf} + 2 x {config.multiply_vrf}", *_estimated(config))
    return table


def products(config: Config) -> int:
    """Largest number of products of a weight and an activation in one cycle."""
    return config.tile_engines * config.native_dim * config.lanes


def comparison_table(machines: Mapping[str, Config], *, meaning: bool = True) -> Table:
    """A table of the attributes in which machines differ, of their products a cycle, and of their estimated cells."""
    table = Table("attribute", *machines, *["meaning"] * meaning, title_justify="left")
    configs, texts = list(machines.values()), meanings()
    for name in differing(*configs):
        table.add_row(name, *(shown(getattr(config, name)) for config in configs), *[texts[name]] * meaning)
    table.add_section()
    table.add_row("products a cycle", *(f"{products(config):,}" for config in configs))
    for name, values in zip(RESOURCES, zip(*map(_estimated, configs), strict=True), strict=True):
        table.add_row(f"{name}, estimated", *values, *[f"of {DEVICE[name]:,} in an LFE5U-85F"] * meaning)
    table.add_row("digest", *(f"{config.digest:08x}" for config in configs))
    return table


def fit_table(fitted: Fitted, name: str, new: str) -> Table:
    """The table of attributes that a fit has changed, with what the program uses of them."""
    table = Table("attribute", name, "used", new, title=f"{fitted.compiled.firmware.name} on {new}",
                  title_justify="left")
    for attribute in differing(fitted.base, fitted.config):
        used = fitted.compiled.uses.get(attribute)
        table.add_row(attribute, shown(getattr(fitted.base, attribute)), "" if used is None else f"{used:,}",
                      shown(getattr(fitted.config, attribute)))
    table.add_section()
    for resource, before, after in zip(RESOURCES, _estimated(fitted.base), _estimated(fitted.config), strict=True):
        table.add_row(f"{resource}, estimated", before, "", after)
    return table


def _estimated(config: Config) -> list[str]:
    found = estimate(config)
    return [f"{found[name]:,}" for name in RESOURCES]
