"""Trained networks on a block floating point neural network processor, equal to the bit.

    import concord
    network = concord.load("net.onnx")
    model = concord.quantize(network, "digits.npz", preset="vision")
    concord.verify(model, "digits.npz")

The functions of `FUNCTIONS` are imported when they are first used, so that `import concord` takes no time.

This is also the package of all rooms: `concord.spec`, `concord.golden`, `concord.hw` and their neighbours. In the
repository the rooms are folders beside this one; an installed wheel holds them inside it.
"""

import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concord.nnp.api.compiling import compile
    from concord.nnp.api.loading import load
    from concord.nnp.api.quantising import quantize
    from concord.nnp.api.running import run
    from concord.nnp.api.training import train
    from concord.nnp.api.verifying import verify
    from concord.nnp.api.writing import verilog

__version__ = version("concord-nnp")
__all__ = ["compile", "load", "quantize", "run", "train", "verify", "verilog"]

#: For each function, the file in `nnp/api/` that holds it.
FUNCTIONS = {
    "load": "loading", "quantize": "quantising", "train": "training", "compile": "compiling", "verify": "verifying",
    "run": "running", "verilog": "writing"}

if not (Path(__file__).parent / "spec").is_dir():
    __path__.append(str(Path(__file__).parents[1]))


def __getattr__(name: str):
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'concord' has no attribute {name!r}; its functions are {', '.join(FUNCTIONS)}")
    if name == "train":
        return import_module("concord.train")
    return _function(name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS])


def _function(name: str):
    """The function of `nnp/api/` that is called `name`."""
    return getattr(import_module(f"concord.nnp.api.{FUNCTIONS[name]}"), name)


class _TrainRoom(ModuleType):
    """The room `concord.train`, which is called as the function of the same name."""

    __doc__ = property(lambda self: _function("train").__doc__)
    __signature__ = property(lambda self: __import__("inspect").signature(_function("train")))

    def __call__(self, *args, **kwargs):
        return _function("train")(*args, **kwargs)


class _Package(ModuleType):
    """The package. Python binds each room to it when the room is imported, so that `train` would hide the function."""

    def __setattr__(self, name: str, value):
        if name == "train" and isinstance(value, ModuleType):
            value.__class__ = _TrainRoom
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
