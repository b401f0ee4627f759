"""Hashes of results, in which only numbers count."""

import hashlib
from collections.abc import Iterable

import numpy as np
from concord.spec.host.registers import EVENTS, TIMES

DIGITS = 12  #: Number of hexadecimal digits of a hash.


def digest(arrays: Iterable) -> str:
    """Hash of arrays of integers, and of their shapes."""
    whole = hashlib.sha256()
    for array in arrays:
        values = np.asarray(array)
        whole.update(np.array([values.ndim, *values.shape], "<u8").tobytes())
        whole.update(values.astype("<u8").tobytes())
    return whole.hexdigest()[:DIGITS]


def joined(digests: Iterable[str]) -> str:
    """Hash of several hashes."""
    return digest(np.frombuffer(bytes.fromhex(each), np.uint8) for each in digests)


def counted(counters: dict) -> dict:
    """Hashes of the event counters and of the counters of time, and the clock cycles, from all counters."""
    events, times = ([counters[counter] for counter in kind] for kind in (EVENTS, TIMES))
    return {"events": digest([events]), "times": digest([times]), "cycles": times[0]}


def stored(firmware) -> dict[str, str]:
    """Hashes of the program of a firmware, and of the messages that fill its memories."""
    messages = (np.frombuffer(sent, np.uint8) for sent in firmware.memory_messages())
    return {"words": digest([firmware.instruction_words]), "memories": digest(messages)}
