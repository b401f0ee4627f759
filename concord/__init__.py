"""Trained networks on a block floating point neural network processor, equal to the bit.

    import concord
    network = concord.load("net.onnx")
    model = concord.quantize(network, "digits.npz", preset="vision")
    concord.verify(model, "digits.npz")

The functions of `FUNCTIONS` are imported when they are first used, so that `import concord` takes no time. Files of
`COMMANDS` are imported by `nnp` in the same way; a function and its command may lie in one file.

The rooms of the repository are packages of this one, such as `concord.spec` and `concord.hw`.
In the repository they are links to the folders beside this one; an installed wheel holds them here.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concord.finetuning import finetune
    from concord.loading import load
    from concord.quantizing import quantize
    from concord.running import compile, run
    from concord.verifying import verify
    from concord.writing import verilog

__version__ = version("concord-nnp")
__all__ = ["compile", "finetune", "load", "quantize", "run", "verify", "verilog"]

#: For each function, the file beside this one that holds it.
FUNCTIONS = {
    "load": "loading", "quantize": "quantizing", "finetune": "finetuning", "compile": "running",
    "verify": "verifying", "run": "running", "verilog": "writing"}

#: For each command of `nnp`, in the order of its help, its file and the function or the group that it is.
COMMANDS = {
    "import": ("nnp.commands.import_network", "import_network"),
    "verify": ("nnp.commands.verify", "verify"),
    "compile": ("nnp.commands.compile", "compile_model"),
    "run": ("nnp.commands.run", "run"),
    "cycles": ("nnp.commands.cycles", "cycles"),
    "trace": ("nnp.commands.trace", "trace"),
    "quantize": ("nnp.commands.quantize", "quantize"),
    "compare": ("nnp.commands.compare", "compare"),
    "predict": ("nnp.commands.predict", "predict"),
    "overflow": ("nnp.commands.overflow", "overflow"),
    "ranges": ("nnp.commands.ranges", "ranges"),
    "export": ("nnp.commands.export", "export"),
    "verilog": ("nnp.commands.verilog", "verilog"),
    "build": ("nnp.commands.build", "build"),
    "handover": ("nnp.commands.handover", "handover"),
    "twin": ("nnp.commands.twin", "twin"),
    "asm": ("nnp.commands.asm", "asm"),
    "disasm": ("nnp.commands.disasm", "disasm"),
    "presets": ("nnp.commands.presets", "presets"),
    "doctor": ("nnp.commands.doctor", "doctor"),
    "train": ("nnp.commands.train", "app"),
    "dashboard": ("nnp.commands.dashboard", "dashboard"),
}


def __getattr__(name: str):
    if name not in FUNCTIONS:
        raise AttributeError(f"module 'concord' has no attribute {name!r}; its functions are {', '.join(FUNCTIONS)}")
    return getattr(import_module(f"concord.{FUNCTIONS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *FUNCTIONS])
