"""Program text of a trainer to instruction words and back.

One instruction a line, `#` starts a comment. A mnemonic is the opcode's name, its fields follow in any order, as name
and number; fields that are not named are none where there may be none, and otherwise 0:

    tensor v 0, planes 1, offset 64, n0 16, s0 1, step1 1, step2 1, n1 1, n2 1, blocks 1
    product a 0, b 1, y 2, turned 1, ea 0, eb 1, ey 2, n0 1, n1 1, n2 1
    measure e 2
    repeat target 4

`.word 0x…` stands for a word of 128 bits that is no legal instruction.
"""

from concord.spec.trainer.instructions import FIELDS, SIZES, WORD, TrainerOp, decode, instruction

_OPS: dict[str, TrainerOp] = {op.name.lower(): op for op in TrainerOp}


def assemble(text: str) -> list[int]:
    """The instruction words of program text.

    Raises:
        ValueError: a line is wrong; the sentence names it.
    """
    words = []
    for number, line in enumerate(text.splitlines(), 1):
        try:
            words += _line(line.partition("#")[0].strip().lower())
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    return words


def disassemble(words: list[int]) -> str:
    """Canonical text of instruction words: assembling it gives the same words."""
    lines, address = [], 0
    while address < len(words):
        try:
            found = decode(words, address)
        except IndexError:  # cut off behind its first word
            found = None
        if found is None:
            lines.append(f".word 0x{words[address]:0{WORD // 4}x}")
            address += 1
            continue
        named = [f"{name} {found[name]}" for name, field in FIELDS[found.op].items() if found[name] != field.default]
        lines.append(f"{found.op.name.lower()} {', '.join(named)}".rstrip())
        address += SIZES[found.op]
    return "".join(f"{line}\n" for line in lines)


def _line(line: str) -> list[int]:
    mnemonic, _, rest = line.partition(" ")
    if not mnemonic:
        return []
    if mnemonic == ".word":
        return [_number(rest.strip()) % (1 << WORD)]
    if mnemonic not in _OPS:
        raise ValueError(f"there is no instruction {mnemonic!r}: choose one of {', '.join(_OPS)}")
    values = {}
    for part in (part.split() for part in rest.split(",") if part.strip()):
        if len(part) != 2 or part[0] in values:
            raise ValueError(
                f"{mnemonic} takes names and numbers, each name once, as in `acc 3`: not {' '.join(part)!r}"
            )
        values[part[0]] = _number(part[1])
    return instruction(_OPS[mnemonic], **values).words


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
