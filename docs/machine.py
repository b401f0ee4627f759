"""Draw the machine: `python docs/machine.py` writes machine.svg."""

import sys
from pathlib import Path

import matplotlib
from concord.spec.isa.memories import VRFS
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

HERE = Path(__file__).parent
HOST, MEMORY, PRODUCT, VECTOR = "#dde5ee", "#e3f1e8", "#f9ecd6", "#f4dfe4"

#: The vector memories; those of the multi-function units without the unit's number.
FAMILIES = ", ".join(dict.fromkeys(mem.title.rstrip("0123456789") for mem in VRFS))
#: Title, second line, left, top, width, height, colour.
BOXES = (
    ("messages in", "AXI4-Stream", 10, 10, 120, 44, HOST),
    ("instructions, decoder", "a chain is checked whole", 170, 10, 170, 44, HOST),
    ("interlock", "dependencies by the word", 380, 10, 170, 44, HOST),
    ("control and counters", "AXI4-Lite", 620, 10, 150, 44, HOST),
    ("NetQ in", "", 10, 110, 90, 44, MEMORY),
    ("lazy update", "if it trains", 10, 180, 90, 44, VECTOR),
    ("vector memories", FAMILIES, 10, 330, 220, 50, MEMORY),
    ("gather, pooling", "windows", 150, 230, 110, 44, VECTOR),
    ("vector quantiser", "binary16 to mantissas", 290, 110, 160, 44, PRODUCT),
    ("matrix quantiser", "or packed mantissas", 290, 170, 160, 44, PRODUCT),
    ("VectorRf", "entries of N mantissas", 290, 230, 160, 44, MEMORY),
    ("tile engines", "lanes and adder trees", 510, 110, 120, 44, PRODUCT),
    ("MatrixRf", "native tiles", 510, 170, 120, 44, MEMORY),
    ("result quantiser", "binary16 to mantissas", 510, 230, 120, 44, PRODUCT),
    ("accumulators", "exact, + BiasRf", 670, 110, 100, 44, PRODUCT),
    ("converters", "round to binary16", 670, 330, 100, 50, PRODUCT),
    ("MvmQ", "", 560, 330, 70, 50, MEMORY),
    ("MFU 0", "add, activation, multiply", 370, 330, 150, 50, VECTOR),
    ("MFU 1", "add, activation, multiply", 370, 420, 150, 50, VECTOR),
    ("copies", "", 270, 330, 60, 50, VECTOR),
    ("NetQ out", "", 170, 420, 90, 50, MEMORY),
    ("messages out", "AXI4-Stream", 10, 420, 120, 50, HOST),
)
#: Lines through points; an arrow head at the end.
ARROWS = (
    ((130, 32), (170, 32)),
    ((340, 32), (380, 32)),
    ((55, 54), (55, 110)),
    ((465, 54), (465, 80)),
    ((10, 32), (0, 32), (0, 195), (10, 195)),
    ((10, 209), (-4, 209), (-4, 445), (10, 445)),
    ((100, 132), (290, 132)),
    ((100, 145), (200, 145), (200, 192), (290, 192)),
    ((450, 132), (510, 132)),
    ((450, 192), (510, 192)),
    ((570, 170), (570, 154)),
    ((630, 132), (670, 132)),
    ((720, 154), (720, 330)),
    ((670, 355), (630, 355)),
    ((560, 355), (520, 355)),
    ((445, 380), (445, 420)),
    ((370, 445), (260, 445)),
    ((170, 445), (130, 445)),
    ((120, 330), (120, 120), (290, 120)),
    ((300, 330), (300, 318), (150, 318), (150, 330)),
    ((210, 330), (210, 309), (455, 309), (455, 330)),
    ((180, 380), (180, 400), (300, 400), (300, 380)),
    ((370, 455), (350, 455), (350, 408), (90, 408), (90, 380)),
    ((170, 330), (170, 274)),
    ((290, 252), (260, 252)),
    ((240, 274), (240, 296), (430, 296), (430, 330)),
    ((450, 242), (480, 242), (480, 144), (510, 144)),
    ((520, 445), (540, 445), (540, 274)),
    ((510, 260), (450, 260)),
)


def draw() -> Figure:
    """The picture."""
    figure = Figure(figsize=(10, 6.2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-10, 780), ylim=(483, 0))
    axes.axis("off")
    axes.text(465, 90, "jobs for the pipelines", ha="center", va="center", fontsize=8, color="#555")
    for points in ARROWS:
        xs, ys = zip(*points, strict=True)
        axes.plot(xs[:-1], ys[:-1], color="#444", linewidth=1)
        axes.annotate(
            "", points[-1], points[-2], arrowprops={"arrowstyle": "->", "color": "#444", "shrinkA": 0, "shrinkB": 0}
        )
    for title, detail, left, top, width, height, colour in BOXES:
        shape = "round,pad=0,rounding_size=5"
        axes.add_patch(FancyBboxPatch((left, top), width, height, shape, facecolor=colour, edgecolor="#444", zorder=2))
        middle = left + width / 2, top + height / 2
        axes.text(middle[0], middle[1] - (7 if detail else 0), title, ha="center", va="center", fontsize=10, zorder=3)
        axes.text(middle[0], middle[1] + 10, detail, ha="center", va="center", fontsize=7.5, color="#555", zorder=3)
    return figure


def main(path: Path):
    """Write the picture."""
    with matplotlib.rc_context({"svg.hashsalt": "concord", "svg.fonttype": "none", "font.family": "sans-serif"}):
        draw().savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "machine.svg")
