"""Conversion between parameters that are updated and the messages UPDATE and UPDATED."""

import numpy as np
from concord.golden.host.messages import message_with, words_of
from concord.golden.lazy.lazy_update import Parameters, Pass
from concord.spec.host.messages import Message, MessageKind, exponents
from concord.spec.machine.config import Config
from concord.spec.numbers.lazy import E_MIN, LazyFormat, Repeat


def update_message(config: Config, old: Parameters, update: np.ndarray, update_exponent: int, change: int = 0) -> bytes:
    """The UPDATE message for parameters and their update, int64[n]: one pass through the lazy update."""
    fields = [old.mantissas, old.residuals, update, update >> 16]
    words = np.stack([_padded(config, field) for field in fields], 1)
    address = old.exponent - E_MIN | update_exponent - E_MIN << 8
    return message_with(config, MessageKind.UPDATE, words.astype("<u2"), memory=change + 1, address=address)


def updated_message(config: Config, address: int, done: Pass) -> bytes:
    """The UPDATED message that answers an UPDATE: mantissas, residuals and the request of the unit."""
    words = np.stack([_padded(config, done.mantissas), _padded(config, done.residuals)], 1)
    answer = np.pad([done.repeat, done.change], (0, config.mfu_lanes - 2))
    items = np.concatenate([words.reshape(-1, config.mfu_lanes), answer[None]])
    return message_with(config, MessageKind.UPDATED, items.astype("<u2"), address=address)


def update_of(config: Config, message: Message) -> tuple[Parameters, np.ndarray, int, int]:
    """Parameters, update, its exponent and the change of exponent, from an UPDATE message."""
    mantissas, residuals, low, high = words_of(config, message).reshape(-1, 4, config.mfu_lanes).swapaxes(0, 1)
    exponent, update_exponent = exponents(message.address)
    update = (low.astype(np.uint32) | high.astype(np.uint32) << 16).view(np.int32)
    old = Parameters(_signed(mantissas & 0xFF, 8), _signed(residuals, 16), exponent, LazyFormat())
    return old, update.ravel().astype(np.int64), update_exponent, message.memory - 1


def updated_of(config: Config, message: Message, size: int) -> tuple[np.ndarray, np.ndarray, Repeat, int]:
    """Mantissas and residuals int64[size], the request of the unit and the change, from an UPDATED message."""
    words = _signed(words_of(config, message), 16).reshape(-1, config.mfu_lanes)
    mantissas, residuals = words[:-1].reshape(-1, 2, config.mfu_lanes).swapaxes(0, 1)
    return mantissas.ravel()[:size], residuals.ravel()[:size], Repeat(int(words[-1, 0])), int(words[-1, 1])


def _padded(config, field):
    """The low 16 bits of a vector as words uint16[n, M]."""
    field = np.pad(np.asarray(field, np.int64), (0, -len(field) % config.mfu_lanes))
    return (field & 0xFFFF).astype(np.uint16).reshape(-1, config.mfu_lanes)


def _signed(values, bits):
    """int64 of two's complement numbers."""
    values = np.ravel(values).astype(np.int64)
    return values - ((values >> bits - 1) << bits)
