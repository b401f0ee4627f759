"""Explains in a sentence why a program stopped; a machine only gives an error code and an address."""

from concord.firmware.firmware import Firmware
from concord.spec.isa.check import check
from concord.spec.isa.disassembler import disassemble_word
from concord.spec.isa.instructions import Error


class Stopped(RuntimeError):
    """A program has stopped with an error. The message names layer, instruction, address and reason."""


def stopped(firmware: Firmware, program: list[int], error: Error, address: int, *, first: int = 0) -> Stopped:
    """Make the exception for an error of a machine.

    Args:
        firmware: Firmware that filled the memories of the machine.
        program:  Instruction words that ran, from the firmware or others.
        error:    Error code of the machine.
        address:  Address at which the machine stopped.
        first:    Address in the firmware of the first instruction of `program`.
    """
    if error == Error.MESSAGE:
        return Stopped(f"{firmware.name}: the machine refused a message, which is damaged, malformed, or for another "
                       "machine (MESSAGE)")
    violation = check(program, firmware.config, firmware.tiles.modes(firmware.config))
    known = violation and (violation.error, violation.address) == (error, address)
    reason = violation.sentence if known else "docs/isa.md says what the error means"
    text = disassemble_word(program[address]) if address < len(program) else "nothing"
    layer = firmware.layer_at(first + address)
    where = f"{firmware.name}, layer {layer}" if layer else firmware.name
    return Stopped(f"{where}: the program stopped at instruction {first + address}, `{text}`: {reason} ({error.name})")
