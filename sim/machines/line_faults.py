"""What goes wrong on a line: bytes that are lost, doubled, flipped or delayed."""

import random
from collections.abc import Sequence

KINDS = ("lose", "double", "flip", "delay")


class Faults:
    """Changes bytes on their way.

    Args:
        seed:  Seed of what goes wrong.
        rate:  Probability of a fault of each byte.
        kinds: Kinds of faults, of `KINDS`. A delayed byte, and all behind it, wait for the next ones.

    Attributes:
        count: Number of faults so far.
    """

    def __init__(self, *, seed: int, rate: float, kinds: Sequence[str] = KINDS):
        self._random, self._rate, self._kinds = random.Random(seed), rate, tuple(kinds)
        self.count = 0
        self._held = b""

    def __call__(self, data: bytes) -> bytes:
        """The bytes that arrive where these are sent."""
        arrived, held = bytearray(self._held), False
        self._held = b""
        for k, byte in enumerate(data):
            if self._random.random() >= self._rate:
                arrived.append(byte)
                continue
            self.count += 1
            match self._random.choice(self._kinds):
                case "double":
                    arrived += bytes([byte, byte])
                case "flip":
                    arrived.append(byte ^ 1 << self._random.randrange(8))
                case "delay":
                    self._held, held = data[k:], True
            if held:
                break
        return bytes(arrived)
