"""The rooms of Concord as one package: `concord.spec`, `concord.golden`, `concord.hw` and their neighbours.

In the repository the rooms are folders beside this one; an installed wheel holds them inside it.
"""

from importlib.metadata import version
from pathlib import Path

__version__ = version("concord-nnp")

if not (Path(__file__).parent / "spec").is_dir():
    __path__.append(str(Path(__file__).parents[1]))
