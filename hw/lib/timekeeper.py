"""Machines whose numbers nobody reads, of which only the time is asked for."""

from dataclasses import fields
from typing import Self

from concord.spec.machine.config import Config


class Timekeeper(Config):
    """A machine that only keeps time: its attributes are those of another machine, and its numbers go nowhere.

    It has the digest of that machine, so that it takes the same messages.
    """

    __slots__ = ()

    @classmethod
    def of(cls, config: Config) -> Self:
        """The timekeeper of a machine."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(config)})


def rows(config: Config) -> int:
    """Number of rows of a native tile that the tile engines multiply: one where its sums go nowhere."""
    return 1 if isinstance(config, Timekeeper) else config.native_dim
