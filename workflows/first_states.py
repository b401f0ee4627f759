"""First states of recurrent layers as a user names them: a random process, or a file of arrays."""

from pathlib import Path

from concord.datasets.arrays import npz
from concord.net.first_states import InitialState, with_drawn, with_given
from concord.net.model import Model

DRAWN = ", ".join(InitialState)


def started(model: Model, text: str) -> Model:
    """The model with the first states that a text names; the model itself for an empty text.

    Args:
        model: The model.
        text:  "zero", "uniform" or "normal", with a seed as "uniform:7", 0 by default; or the path of an .npz file of
            arrays such as "lstm1.hidden".

    Raises:
        ValueError: there is no such process or file, or the states are not those of the model.
    """
    process, _, seed = text.partition(":")
    if not text:
        return model
    if process in list(InitialState):
        if seed and not seed.isdecimal():
            raise ValueError(f"--first-state {text}: the seed is a number from 0, such as {process}:7")
        return with_drawn(model, InitialState(process), int(seed or 0))
    path = Path(text)
    if not path.is_file():
        raise ValueError(f"--first-state {text}: no file, and none of {DRAWN}")
    archive = npz(path)
    return with_given(model, {name: archive.read(name) for name in archive.names})
