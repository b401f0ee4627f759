"""Firmware without the names that it carries for people."""

from dataclasses import replace

from concord.firmware.firmware import Firmware


def without_hints(firmware: Firmware) -> Firmware:
    """The same program and images; the names of layers are left out."""
    return replace(firmware, sections=())
