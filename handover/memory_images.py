"""Initial contents of the memories of a hand-written program, from files of numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from concord.compiler.lib import tiling
from concord.datasets.arrays import read_numbers
from concord.datasets.samples import NO_DATA
from concord.firmware.cascade import moved_words
from concord.firmware.firmware import Entries, Firmware, Tiles
from concord.golden.mvm.elements import representable
from concord.golden.mvm.quantizer import quantize_block, split
from concord.golden.schedule.dram import pack, pack_tile
from concord.spec.isa.check import Sequencer
from concord.spec.isa.memories import FILLED, MEMORY_NAMES, Mem, depth
from concord.spec.machine.config import Config
from concord.spec.numbers.formats import Format

#: Memories that an image can fill, by their names in lower case.
IMAGES = {MEMORY_NAMES[mem].lower(): mem for mem in (*FILLED, Mem.DRAM)}
FORMS = ("tiles", "diagonals", "entries", "integers")  #: What Dram may hold besides binary16 numbers.
#: Most chains of one run that are followed to count its words.
FOLLOWED = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryFile:
    """A file of numbers for a memory.

    Attributes:
        mem:     Memory that the image fills.
        form:    One of FORMS for Dram, or empty.
        address: First word, first native tile of MatrixRf, or first entry of VectorRf.
        path:    Path of the .npy file.
    """

    mem: Mem
    form: str = ""
    address: int
    path: Path

    @classmethod
    def parse(cls, text: str) -> "MemoryFile":
        """Parse `MEMORY=FILE`, `MEMORY@ADDRESS=FILE` or `Dram.FORM@ADDRESS=FILE`.

        Raises:
            ValueError: the text has another form, or there is no such memory.
        """
        target, equals, path = text.partition("=")
        name, at, address = target.partition("@")
        if not (equals and path) or bool(at) != address.isdecimal():
            raise ValueError(f"--image {text}: MEMORY=FILE or MEMORY@ADDRESS=FILE is needed, such as "
                             "InitialVrf@8=x.npy")
        name, dot, form = name.partition(".")
        mem = IMAGES.get(name.lower())
        if mem is None:
            raise ValueError(f"--image {text}: no image goes to {name!r}: choose one of "
                             f"{', '.join(MEMORY_NAMES[mem] for mem in IMAGES.values())}")
        if dot and (mem != Mem.DRAM or form not in FORMS):
            raise ValueError(f"--image {text}: {', '.join(f'Dram.{form}' for form in FORMS)} are what memories hold "
                             "besides their own numbers")
        return cls(mem=mem, form=form, address=int(address or 0), path=Path(path))


def assembled(name: str, config: Config, text: str, words: Sequence[int], images: Iterable[MemoryFile], *,
              inputs: int | None, outputs: int | None) -> Firmware:
    """Firmware of a hand-written, legal program.

    Args:
        name:    Name of the firmware.
        config:  Configuration of the machine.
        text:    Text of the program.
        words:   Instruction words of the program.
        images:  Contents of its memories; a later image overwrites an earlier one.
        inputs:  Count of numbers that one run takes; None for all elements of the words that it reads from NetQ.
        outputs: Count of numbers that it gives; None for all elements of the words that it writes to NetQ.

    Raises:
        ValueError: images do not fit their memory, or the numbers do not fill the words that the program moves.
    """
    vectors, tiles, biases, entries = filled(config, images)
    taken, given = _moved(config, words, tiles)
    lanes = config.mfu_lanes
    if not given:
        raise ValueError("the program writes nothing to NetQ, so that nobody sees what it does: add `v_wr NetQ`")
    inputs, outputs = (words * lanes if size is None else size for size, words in ((inputs, taken), (outputs, given)))
    if not 0 <= inputs <= taken * lanes or bool(inputs) != bool(taken):
        raise ValueError(f"--input-size {inputs}: one run reads {taken} words of NetQ, which hold {taken * lanes} "
                         "numbers")
    if -(-outputs // lanes) != given:
        raise ValueError(f"--output-size {outputs}: one run writes {given} words to NetQ, which hold "
                         f"{(given - 1) * lanes + 1} to {given * lanes} numbers")
    return Firmware(
        name=name, config=config, data=NO_DATA, classes=(), inputs=inputs, outputs=outputs, loop=None, text=text,
        instruction_words=np.array(words, np.uint64), sections=(), vectors=vectors, tiles=tiles, biases=biases,
        input_words=taken, entries=entries)


def filled(config: Config, images: Iterable[MemoryFile]) -> tuple[
        dict[Mem, np.ndarray], Tiles, np.ndarray, tuple[Entries, ...]]:
    """Vector memories, tiles, biases and entries of firmware; words without an image are zero.

    Raises:
        ValueError: an image is missing, does not fit its memory, or holds numbers that the memory cannot.
    """
    size, lanes = config.native_dim, config.mfu_lanes
    vectors, biases, entries = {}, np.zeros((0, lanes), np.int32), []
    tiles = {"mantissas": np.zeros((0, size, size), config.weights.dtype), "exponents": np.zeros((0, size), np.int8),
             "integer": np.zeros(0, bool)}
    for image in images:
        numbers = read_numbers(image.path)
        if image.mem == Mem.MATRIX_RF:
            parts = _tiles(config, image, numbers)
            tiles = {name: _laid(config, image, whole, parts[name]) for name, whole in tiles.items()}
        elif image.mem == Mem.BIAS_RF:
            biases = _laid(config, image, biases, _words(config, _biases(config, image, numbers)))
        elif image.mem == Mem.VECTOR_RF:
            entries.append(_entries(config, image, numbers))
        else:
            before = vectors.get(image.mem, np.zeros((0, lanes), np.uint16))
            part = _packed(config, image, numbers) if image.form else _words(config, halves(image.path, numbers))
            vectors[image.mem] = _laid(config, image, before, part)
    return vectors, Tiles(**tiles), biases, tuple(entries)


def halves(path: Path, numbers: np.ndarray) -> np.ndarray:
    """Convert numbers to binary16 patterns of the same shape; float16 numbers keep their bits.

    Raises:
        ValueError: a number is not finite in binary16.
    """
    with np.errstate(over="ignore"):
        rounded = numbers.astype(np.float16)
    if numbers.dtype != np.float16 and (bad := int((~np.isfinite(rounded)).sum())):
        raise ValueError(f"{path}: {bad} of {numbers.size} numbers are not finite in binary16; where that is meant, "
                         "save them as float16")
    return rounded.view(np.uint16)


def _laid(config: Config, image: MemoryFile, before: np.ndarray, part: np.ndarray) -> np.ndarray:
    """A copy of the contents `before`, lengthened if needed, with `part` at the address of the image."""
    end = image.address + len(part)
    _check_end(config, image, end)
    whole = np.zeros((max(len(before), end), *before.shape[1:]), before.dtype)
    whole[: len(before)] = before
    whole[image.address:end] = part
    return whole


def _check_end(config: Config, image: MemoryFile, end: int):
    available = depth(config, image.mem)
    if not available:
        raise ValueError(f"{image.path}: the machine has no {MEMORY_NAMES[image.mem]}: choose a preset that has one")
    if end > available:
        raise ValueError(f"{image.path}: it fills {MEMORY_NAMES[image.mem]} from {image.address} up to {end}, and it "
                         f"ends at {available}: take a smaller file, or a machine with more")


def _words(config: Config, flat: np.ndarray) -> np.ndarray:
    """Numbers in C order as [words, M], padded with zeros after the last one."""
    return split(flat.reshape(-1), config.mfu_lanes)


def _biases(config: Config, image: MemoryFile, numbers: np.ndarray) -> np.ndarray:
    """The integers int32 of an image of BiasRf; refuses numbers that BiasRf cannot hold."""
    end = 1 << config.bias_bits - 1
    if numbers.dtype.kind == "f" or not -end <= numbers.min() <= numbers.max() < end:
        raise ValueError(f"{image.path}: BiasRf takes whole numbers in {-end}..{end - 1}, saved as integers")
    return numbers.astype(np.int32)


def _entries(config: Config, image: MemoryFile, numbers: np.ndarray) -> Entries:
    """Entries of VectorRf from numbers in C order. Integers are kept as mantissas, other numbers become blocks."""
    fmt = config.activations
    if numbers.dtype.kind == "f":
        mantissas, exponents = quantize_block(split(halves(image.path, numbers.reshape(-1)), config.native_dim), fmt)
    else:
        _check_integers(image, numbers, fmt)
        mantissas = split(numbers.reshape(-1), config.native_dim)
        exponents = np.full(len(mantissas), fmt.e_min)
    _check_end(config, image, image.address + len(mantissas))
    return Entries(address=image.address, mantissas=mantissas.astype(fmt.dtype), exponents=exponents.astype(np.int8))


def _check_integers(image: MemoryFile, numbers: np.ndarray, fmt: Format):
    if not fmt.lowest <= numbers.min() <= numbers.max() <= fmt.highest:
        raise ValueError(f"{image.path}: integers lie in {numbers.min()}..{numbers.max()}, mantissas of the "
                         f"machine in {fmt.lowest}..{fmt.highest}")
    if not representable(numbers, fmt):
        raise ValueError(f"{image.path}: some of the integers are no mantissas of {fmt.element}: at most "
                         f"{fmt.precision} significant bits")


def _tiles(config: Config, image: MemoryFile, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Mantissas, exponents and modes of a matrix's native tiles. Integers are kept, other numbers become blocks."""
    if numbers.ndim != 2:
        raise ValueError(f"{image.path}: MatrixRf takes a matrix [rows, columns], not {list(numbers.shape)}; give each "
                         "matrix a file and an address of its own")
    if numbers.dtype.kind != "f":
        _check_integers(image, numbers, config.weights)
        cut = tiling.tiles(config, numbers.astype(config.weights.dtype))
        exponents = np.full(cut.shape[:2], config.weights.e_min, np.int8)
        return {"mantissas": cut, "exponents": exponents, "integer": np.ones(len(cut), bool)}
    mantissas, blocks = quantize_block(split(halves(image.path, numbers), config.native_dim), config.weights)
    cut = tiling.tiles(config, mantissas.reshape(len(numbers), -1).astype(config.weights.dtype))
    return {"mantissas": cut, "exponents": tiling.tile_exponents(config, blocks), "integer": np.zeros(len(cut), bool)}


def _packed(config: Config, image: MemoryFile, numbers: np.ndarray) -> np.ndarray:
    """Words of Dram that hold tiles, entries or integers, as `spec.isa.dram` has them."""
    if image.form == "integers":
        words = _words(config, _biases(config, image, numbers))
        return np.ascontiguousarray(words).view(np.uint16).reshape(-1, config.mfu_lanes)
    if image.form == "entries":
        made, fmt = _entries(config, replace(image, mem=Mem.VECTOR_RF, address=0), numbers), config.activations
        integer = numbers.dtype.kind != "f"
        return pack(config, fmt, made.mantissas, [] if integer else made.exponents.astype(np.int64) - fmt.e_min)
    diagonal, fmt = image.form == "diagonals", config.weights
    if diagonal:
        blocks = split(numbers.reshape(-1), config.native_dim)
        numbers = np.concatenate([np.diag(block) for block in blocks])
    tiles = _tiles(config, image, numbers)
    stored = tiles["exponents"].astype(np.int64) - fmt.e_min
    return np.concatenate([pack_tile(config, mantissas, exponents, integer=bool(integer), diagonal=diagonal)
                           for mantissas, exponents, integer in
                           zip(tiles["mantissas"], stored, tiles["integer"], strict=True)])


def _moved(config: Config, words: Sequence[int], tiles: Tiles) -> tuple[int, int]:
    """Number of words that one run reads from NetQ, and number that it writes there."""
    chains = Sequencer(config, list(words), tiles.modes(config)).walk()
    taken, given = moved_words(islice(chains, FOLLOWED))
    if next(chains, None):
        raise ValueError(f"one run executes more than {FOLLOWED:,} chains; use fewer repetitions")
    return taken, given
