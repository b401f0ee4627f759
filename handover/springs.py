"""Sites of the block RAM and multipliers that `floorplan` leaves free: near those to which they have most wires.

nextpnr's placers take for each the free site next to where it would stand without all others. Parts of one memory then
stand anywhere on two strips, and the logic between them fills the wires of the chip.

Here each net is a set of springs. All other cells stand where the springs hold them, so that what counts is only where
the blocks are: springs from block to block, as strong as all paths between them. Blocks change sites by simulated
annealing.
"""

import math
import random
import re
from collections import defaultdict
from itertools import combinations

import numpy as np
from concord.handover.floorplan import MEMORY, MULTIPLIER, STRIPS

PINS = 150  #: Pins from which on a net does not count: it reaches over the whole chip anyway.
STEPS = 1_000_000  #: Changes that are tried.
_STAR = 4  #: Pins from which on a net has a point of its own.
_WEAK = 1e-4  #: A spring from each cell to the middle of the chip, for those that nothing else holds.
_COOL = 5e-4  #: Temperature at the end, of the one at the beginning.


def fix_others(module: dict, device: str) -> int:
    """Give a site to each block RAM and multiplier that has none, if others have one; returns how many got one.

    Args:
        module: The module of a netlist in Yosys's JSON; attributes of its cells change.
        device: The chip, as nextpnr-ecp5 names it.
    """
    strips, cells = STRIPS[device], module["cells"]
    kinds = {MEMORY: strips.memory_sites, MULTIPLIER: strips.multiplier_sites}
    blocks = [name for name, cell in cells.items() if cell["type"] in kinds]
    fixed = {name: site for name in blocks if (site := cells[name].get("attributes", {}).get("BEL"))}
    moved = [name for name in blocks if name not in fixed]
    free = {kind: [site for site in sites if site not in set(fixed.values())] for kind, sites in kinds.items()}
    if not fixed or not moved or any(
            sum(cells[name]["type"] == kind for name in moved) > len(sites) for kind, sites in free.items()):
        return 0
    system = _Springs(module, moved, {name: _tile(site) for name, site in fixed.items()})
    chosen = _anneal(*system.between(), [free[cells[name]["type"]] for name in moved])
    for name, site in zip(moved, chosen, strict=True):
        cells[name].setdefault("attributes", {})["BEL"] = site
    return len(moved)


def _tile(site: str) -> tuple[int, int]:
    """Where a site is, in tiles."""
    x, y = re.findall(r"\d+", site)[:2]
    return int(x), int(y)


class _Springs:
    """The springs of a netlist: of blocks that move, which come first, of fixed ones, and of all other cells."""

    def __init__(self, module: dict, moved: list[str], fixed: dict[str, tuple[int, int]]):
        self.moved, self.fixed = len(moved), fixed
        self.index = {name: k for k, name in enumerate(moved)}
        ends, strengths, held = [], [], []
        for pins in _nets(module):
            for one, other, strength in self._of(pins):
                if one in fixed:
                    one, other = other, one
                if other in fixed:
                    if one not in fixed:
                        held.append((self._number(one), *fixed[other], strength))
                else:
                    ends.append((self._number(one), self._number(other)))
                    strengths.append(strength)
        count = len(self.index)
        ends = np.array(ends, int).reshape(-1, 2)
        self.first, self.second = np.concatenate([ends, ends[:, ::-1]]).T
        self.strength = np.tile(np.array(strengths, float), 2)
        numbers, x, y, firm = np.array(held, float).reshape(-1, 4).T
        numbers = numbers.astype(int)
        middle = np.mean(list(fixed.values()), axis=0)
        self.pull = np.stack([np.bincount(numbers, firm * at, count) for at in (x, y)], axis=1) + _WEAK * middle
        self.sum = (np.bincount(self.first, self.strength, count) + np.bincount(numbers, firm, count) + _WEAK)

    def _number(self, node) -> int:
        return self.index.setdefault(node, len(self.index))

    def _of(self, pins: list[str]) -> list[tuple]:
        """The springs of a net: between its cells, or to a point of its own."""
        if len(pins) < _STAR:
            return [(*pair, 1 / (len(pins) - 1)) for pair in combinations(pins, 2)]
        point = len(self.index)  # names of cells are no numbers
        return [(name, point, len(pins) / (len(pins) - 1)) for name in pins]

    def times(self, at: np.ndarray) -> np.ndarray:
        """Forces on all that moves, where it stands at `at` in one direction, without the pull of what is fixed."""
        return self.sum * at - np.bincount(self.first, self.strength * at[self.second], len(at))

    def between(self) -> tuple[np.ndarray, np.ndarray]:
        """Springs between the blocks where all other cells stand as these hold them: their matrix, and the pull."""
        count, blocks = len(self.sum), self.moved
        matrix, pull = np.zeros((blocks, blocks)), self.pull[:blocks].copy()
        for k in range(2):
            rest = self._settled(self.pull[blocks:, k])
            pull[:, k] -= self.times(np.concatenate([np.zeros(blocks), rest]))[:blocks]
        for k in range(blocks):
            at = np.zeros(count)
            at[k] = 1
            at[blocks:] = self._settled(-self.times(at)[blocks:])
            matrix[:, k] = self.times(at)[:blocks]
        return (matrix + matrix.T) / 2, pull

    def _settled(self, force: np.ndarray) -> np.ndarray:
        """Where cells other than blocks stand under a force, by conjugate gradients."""
        blocks, whole = self.moved, np.zeros(len(self.sum))
        at, left = np.zeros_like(force), force.copy()
        ready = left / self.sum[blocks:]
        along, before, limit = ready, left @ ready, 1e-3 * np.linalg.norm(force)
        for _ in range(250):
            if np.linalg.norm(left) <= limit:
                break
            whole[blocks:] = along
            change = self.times(whole)[blocks:]
            length = before / (along @ change)
            at, left = at + length * along, left - length * change
            ready = left / self.sum[blocks:]
            now = left @ ready
            along, before = ready + now / before * along, now
        return at


def _nets(module: dict) -> list[list[str]]:
    """The cells of each net that counts."""
    users = defaultdict(dict)
    for name, cell in module["cells"].items():
        for bits in cell["connections"].values():
            for bit in bits:
                if isinstance(bit, int):
                    users[bit][name] = None
    return [list(names) for names in users.values() if 2 <= len(names) <= PINS]


class _Sites:
    """The sites of all blocks, and the forces of the springs on them.

    Args:
        matrix: Springs between blocks.
        pull:   Of fixed blocks, in x and y.
        free:   Sites for each block; those of a kind have the same list.
    """

    def __init__(self, matrix: np.ndarray, pull: np.ndarray, free: list[list[str]]):
        self.matrix, self.free, self.taken, self.chosen = matrix, free, {}, []
        for block, sites in enumerate(free):
            self.chosen.append(next(site for site in sites if site not in self.taken))
            self.taken[self.chosen[-1]] = block
        self.spots = {site: np.array(_tile(site), float) for sites in free for site in sites}
        self.force = matrix @ np.array([self.spots[site] for site in self.chosen]) - pull

    def any(self, rng: random.Random) -> tuple[int, str]:
        """A block, and a site for it."""
        block = rng.randrange(len(self.chosen))
        return block, rng.choice(self.free[block])

    def _effect(self, block: int, site: str) -> tuple[np.ndarray, np.ndarray]:
        """How far a block goes to a site, and by how much that changes forces a tile, with who stands there."""
        other = self.taken.get(site)
        pushed = self.matrix[:, block] if other is None else self.matrix[:, block] - self.matrix[:, other]
        return self.spots[site] - self.spots[self.chosen[block]], pushed

    def energy(self, block: int, site: str) -> float:
        """By how much the springs' energy grows where a block changes places with who stands on a site."""
        (way, pushed), other = self._effect(block, site), self.taken.get(site)
        if other == block:
            return 0
        grown = way @ self.force[block] + pushed[block] * (way @ way) / 2
        return grown if other is None else grown - way @ self.force[other] - pushed[other] * (way @ way) / 2

    def change(self, block: int, site: str) -> None:
        """Let a block change places with who stands on a site."""
        way, pushed = self._effect(block, site)
        self.force += np.outer(pushed, way)
        old, other = self.chosen[block], self.taken.pop(site, None)
        del self.taken[old]
        self.chosen[block], self.taken[site] = site, block
        if other is not None:
            self.chosen[other], self.taken[old] = old, other


def _anneal(matrix: np.ndarray, pull: np.ndarray, free: list[list[str]]) -> list[str]:
    """A site for each block, so that the springs hold little energy; see `_Sites`."""
    sites, rng = _Sites(matrix, pull, free), random.Random(1)
    heat = sum(abs(sites.energy(*sites.any(rng))) for _ in range(100)) / 100 + 1e-9
    for step in range(STEPS):
        block, site = sites.any(rng)
        grown = sites.energy(block, site)
        if site != sites.chosen[block] and (
                grown <= 0 or rng.random() < math.exp(-grown / (heat * _COOL ** (step / STEPS)))):
            sites.change(block, site)
    return sites.chosen
