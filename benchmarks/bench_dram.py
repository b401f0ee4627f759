"""What the memory outside the chip costs: bytes a cycle, how loads hide behind products, whole networks.

`nox -s bench_dram -- --stream --overlap --model autoencoder --lstm 128`. Cycles are Verilator's, with the library's
memory: as many bytes a cycle each way as the bus has, and its latency from an address to the first beat. With
`--sdram 50` it is a model of an SDRAM behind LiteDRAM's controller, both at that clock in MHz.
"""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from concord.benchmarks import tiny_models
from concord.campaigns.makers import networks
from concord.compiler.explain import explain
from concord.compiler.network import compile_network
from concord.firmware.session import Session
from concord.golden.host.messages import program_message
from concord.net import network
from concord.net.model import Model
from concord.net.model_file import load_model
from concord.nnp.lib.errors import sentences
from concord.sim.machines.host import HardwareMachine, machine
from concord.sim.machines.library import Library, Memory
from concord.sim.sdram.sdram_parts import SdramLibrary
from concord.spec.host.registers import Counter
from concord.spec.isa.assembler import assemble
from concord.spec.machine.config import Config, preset
from rich.console import Console
from rich.table import Table

LATENCIES = (40, 400)  #: Cycles from an address to the first beat.
TILES = 64  #: Tiles that a program of `--stream` and `--overlap` loads at once.
TURNS = 16  #: How often it does so.
RATES = (200, 266)  #: MB/s of the SDRAM of an ULX3S at 100 and 133 MHz, both of whose bytes move in each cycle.
ROOM = 16384  #: Numbers of vector memories for an LSTM of 1,024 cells.
#: Sizes of memories that are counted in words.
MEMORIES = ("initial_vrf", "addsub_vrf", "multiply_vrf", "net_in", "net_out", "mvmq_words", "bias_words", "dram_words")
SHIPPED = "shipped"  #: Name of the ResNet-8 in data/models.
FOLDER = Path("build/bench_dram")  #: Where quantised networks are written.


def with_words(config: Config, numbers: int) -> Config:
    """The machine with words of so many numbers, and memories that hold as many numbers as before."""
    return replace(config, mfu_lanes=numbers, **{
        name: getattr(config, name) * config.mfu_lanes // numbers for name in MEMORIES})


def roomy(config: Config) -> Config:
    """The machine with vector memories for an LSTM of 1,024 cells."""
    return replace(config, **dict.fromkeys(
        ("multiply_vrf", "addsub_vrf", "initial_vrf", "bias_words"), ROOM // config.mfu_lanes))


def run(config: Config, text: str, latency: int) -> tuple[int, int]:
    """Clock cycles of a program, and bytes that the memory outside has given and taken meanwhile."""
    with HardwareMachine(Library(config, memory=Memory(latency=latency))) as nnp:
        before = _moved(nnp)
        return _ended(nnp, text), _moved(nnp) - before


def _ended(nnp: HardwareMachine, text: str) -> int:
    """Run a program, and return its clock cycles."""
    nnp.send(program_message(nnp.config, assemble(text)))
    nnp.start()
    nnp.run()
    code, address = nnp.error()
    assert not code, f"instruction {address}: {code.name}"
    return nnp.counter(Counter.CYCLES)


def _words_moved(counters: dict[Counter, int], config: Config) -> int:
    """Bytes of the words that programs have read from Dram, tiles among them, and written there."""
    return 2 * config.mfu_lanes * (counters[Counter.READ_DRAM] + counters[Counter.WRITE_DRAM])


def _moved(nnp: HardwareMachine) -> int:
    return sum(nnp.link.moved(written=written) for written in (False, True))


def _read(nnp: HardwareMachine) -> int:
    """Bytes that the memory outside has given; 0 on a machine without."""
    return nnp.link.moved(written=False) if nnp.config.dram_words else 0


def loads(config: Config, turns: int) -> str:
    """A program that loads the same tiles again and again, into two halves of their region by turns."""
    return "".join(f"set_iterations {TILES}\nm_rd_inc Dram, 0\nm_wr MatrixRf, {turn % 2 * TILES}\nend_chain\n"
                   for turn in range(turns))


def products(config: Config, turns: int, count: int) -> str:
    """A program that multiplies by other tiles `count` times in each turn."""
    rows = TILES * config.native_dim // 8
    return f"s_wr Rows, {rows}\ns_wr Columns, 8\n" + "".join(
        f"set_iterations {count}\nv_rd InitialVrf, 0\nmv_mul {2 * TILES}\nv_wr AddSubVrf0, 0\nend_chain\n"
        for _ in range(turns))


def both(config: Config, turns: int, count: int) -> str:
    """Both in one program, a load before the product of each turn."""
    rows = TILES * config.native_dim // 8
    return f"s_wr Rows, {rows}\ns_wr Columns, 8\n" + "".join(
        f"set_iterations {TILES}\nm_rd_inc Dram, 0\nm_wr MatrixRf, {turn % 2 * TILES}\nend_chain\n"
        f"set_iterations {count}\nv_rd InitialVrf, 0\nmv_mul {2 * TILES}\nv_wr AddSubVrf0, 0\nend_chain\n"
        for turn in range(turns))


def streams_of(config: Config) -> dict[str, str]:
    """Programs that load tiles, read words and write words, by their names."""
    rows = (config.initial_vrf - 8) * config.mfu_lanes
    word = f"s_wr Rows, {rows}\nset_iterations 1\n"
    return {
        "tiles": loads(config, TURNS) + "end",
        "words in": word + "v_rd Dram, 0\nv_wr InitialVrf, 0\nend_chain\n" * TURNS + "end",
        "words out": word + "v_rd InitialVrf, 0\nv_wr Dram, 0\nend_chain\n" * TURNS + "end"}


def stream(config: Config, console: Console):
    """Print bytes a cycle of tiles, of words in and of words out."""
    row = config.native_dim * config.weights.code_bits // 8
    limits = {"tiles": min(config.dram_bus, row)} | dict.fromkeys(
        ("words in", "words out"), min(config.dram_bus, 2 * config.mfu_lanes))
    table = Table(*("what", "latency", "bytes", "cycles", "bytes a cycle", "limit", "share"))
    for name, text in streams_of(config).items():
        for latency in LATENCIES:
            cycles, moved = run(config, text, latency)
            table.add_row(name, str(latency), f"{moved:,}", f"{cycles:,}", f"{moved / cycles:.2f}", str(limits[name]),
                          f"{moved / cycles / limits[name]:.1%}")
    console.print(table)


def overlap(config: Config, console: Console):
    """Print cycles of loads alone, of products alone and of both."""
    table = Table("latency", "loads", "products", "both", "both / longer")
    for latency in LATENCIES:
        alone = run(config, loads(config, TURNS) + "end", latency)[0]
        count = max(1, round(alone / TURNS / (TILES * config.groups / config.tile_engines)))
        multiplied = run(config, products(config, TURNS, count) + "end", latency)[0]
        together = run(config, both(config, TURNS, count) + "end", latency)[0]
        table.add_row(*(f"{cycles:,}" for cycles in (latency, alone, multiplied, together)),
                      f"{together / max(alone, multiplied):.3f}")
    console.print(table)


def sdram_rates(config: Config, mhz: float, console: Console):
    """Print the bytes a second that an SDRAM moves for a machine, beside its peak of two bytes a cycle."""
    table = Table("what", "bytes", "cycles", f"MB/s at {mhz:g} MHz", "share of the peak")
    for name, text in streams_of(config).items():
        with HardwareMachine(SdramLibrary(config, mhz)) as nnp:
            cycles = _ended(nnp, text)
            moved = _words_moved(nnp.counters(), config)
        table.add_row(name, f"{moved:,}", f"{cycles:,}", *_rate(moved, cycles, mhz))
    console.print(table)


def _rate(moved: int, cycles: int, mhz: float) -> tuple[str, str]:
    """MB/s, and their share of what an SDRAM of 16 bits gives at most."""
    return f"{moved / cycles * mhz:.1f}", f"{moved / cycles / 2:.1%}"


def sdram_networks(found: list, config: Config, mhz: float, console: Console):
    """Print what networks take with an SDRAM."""
    table = Table("network", "differing", "bytes moved", "cycles", f"ms at {mhz:g} MHz", "MB/s", "share of the peak")
    for name, made, inputs in found:
        firmware, count = compile_network(made, config).firmware, len(inputs)
        wanted = network.forward(made, inputs)[-1].outputs
        with HardwareMachine(SdramLibrary(config, mhz)) as nnp, machine("golden", config) as golden:
            sessions = Session(nnp, firmware), Session(golden, firmware)
            differing = sum(int((np.asarray(each.infer(sample)) != outputs).sum())
                            for sample, outputs in zip(inputs, wanted, strict=True) for each in sessions)
            counters = sessions[0].counters()
        cycles, moved = counters[Counter.CYCLES] // count, _words_moved(counters, config) // count
        table.add_row(name, str(differing), f"{moved:,}", f"{cycles:,}", f"{cycles / mhz / 1000:.2f}",
                      *_rate(moved, cycles, mhz))
    console.print(table)


def measure(model: Model, config: Config, samples: np.ndarray, latency: int, batch: int = 1) -> tuple[int, ...]:
    """Differing outputs of all samples, and of the last run: clock cycles, bytes read, bytes of tiles in Dram."""
    firmware = compile_network(model, config, batch=batch).firmware
    wanted = network.forward(model, samples)[-1].outputs
    differing = 0
    memory = {"memory": Memory(latency=latency)} if config.dram_words else {}
    with HardwareMachine(Library(config, **memory)) as nnp, machine("golden", config) as golden:
        sessions = Session(nnp, firmware), Session(golden, firmware)
        for first in range(0, len(samples), batch):
            before, taken = _read(nnp), slice(first, first + batch)
            got = [session.infer_all(list(samples[taken])) for session in sessions]
            differing += sum(int((one != wanted[taken]).sum()) for one in got)
            moved = _read(nnp) - before
        cycles = sessions[0].counters()[Counter.CYCLES] // -(-len(samples) // batch)
    return differing, cycles, moved, firmware.constant_words * 2 * config.mfu_lanes


def networks_of(name: str, cells: int, config: Config, samples: int = 1) -> list[tuple[str, Model, np.ndarray]]:
    """The networks that the options name, each with inputs: the shipped ResNet-8, those of MLPerf Tiny, and an LSTM."""
    found = []
    if name == SHIPPED:
        model = load_model(Path("data/models/fashion-resnet-w8.safetensors"))
        found.append(("shipped ResNet-8", model, networks.inputs(np.random.default_rng(2), samples, model.inputs)))
    elif name and name not in tiny_models.REFERENCES:
        raise ValueError(f"there is no network {name!r}: choose of {', '.join((*tiny_models.REFERENCES, SHIPPED))}")
    elif name:
        made, inputs = tiny_models.quantized(name, FOLDER), tiny_models.run_inputs(name, samples)
        found.append((tiny_models.title(name), made, inputs))
    if cells:
        model = networks.recurrent(np.random.default_rng(1), config, [cells, cells], block=[False])
        found.append((f"LSTM of {cells} cells", model, networks.inputs(np.random.default_rng(2), samples, 1, cells)))
    return found


def bandwidth(config: Config, console: Console):
    """Print bytes that networks read for each input, and the inputs a second that memories leave them."""
    shipped = load_model(Path("data/models/fashion-resnet-w8.safetensors"))
    cases = [("ResNet-8, 64 tiles in MatrixRf", shipped, 64, 1)] + [
        (f"{name}, {batch} at once" if batch > 1 else name, made, config.matrix_tiles, batch)
        for model, cells, batch in (("mobilenet", 0, 1), ("autoencoder", 0, 1), ("autoencoder", 0, 16), ("", 256, 1),
                                    ("", 1024, 1))
        for name, made, _ in networks_of(model, cells, config)]
    table = Table("network", "bytes an input", *(f"inputs/s at {rate} MB/s" for rate in RATES))
    for name, made, tiles, batch in cases:
        works = explain(compile_network(made, replace(config, matrix_tiles=tiles), batch=batch).firmware)
        moved = sum(work.loaded + work.moved for work in works) * 2 * config.mfu_lanes // batch
        table.add_row(name, f"{moved:,}", *(f"{rate * 1e6 / moved:,.0f}" for rate in RATES))
    console.print(table)


@sentences
def main(
    preset_: Annotated[str, typer.Option("--preset", help="Machine, with Dram.")] = "vision_dram",
    model: Annotated[str, typer.Option(
        help=f"One of {', '.join(tiny_models.REFERENCES)}, of random weights; {SHIPPED}, a trained ResNet-8.")] = "",
    lstm: Annotated[int, typer.Option(help="Cells of an LSTM, of which one time step is measured.")] = 0,
    samples: Annotated[int, typer.Option(help="Inputs of a network.")] = 3,
    tiles: Annotated[int, typer.Option(help="Tiles of MatrixRf, where not as many as the preset has.")] = 0,
    engines: Annotated[int, typer.Option(help="Tile engines, where not as many as the preset has.")] = 0,
    word: Annotated[int, typer.Option(help="Numbers of a word, where not as many as the preset has.")] = 0,
    batch: Annotated[int, typer.Option(help="Inputs that the machine takes at once; a batch of 1 beside it.")] = 1,
    beside: Annotated[str, typer.Option(help="Machine that holds the whole network, whose cycles stand beside.")] = "",
    bits: Annotated[int, typer.Option(help="Bits of mantissas, where not as many as the preset has.")] = 0,
    sdram: Annotated[float, typer.Option(
        help="Clock in MHz of an SDRAM with LiteDRAM's controller, which is the memory of streams and networks.")] = 0,
    *,
    streams: Annotated[bool, typer.Option("--stream", help="Bytes a cycle of tiles and words.")] = False,
    bandwidths: Annotated[bool, typer.Option("--bandwidth", help="What networks read, and their rates.")] = False,
    overlaps: Annotated[bool, typer.Option("--overlap", help="Loads and products alone, and together.")] = False,
):
    """Measure accesses to the memory outside the chip."""
    console, config, holding = Console(), preset(preset_), preset(beside) if beside else None
    if not config.dram_words and (streams or overlaps or sdram):
        raise ValueError(f"{preset_} has no Dram: choose a machine with dram_words, such as vision_dram")
    config = replace(config, matrix_tiles=tiles or config.matrix_tiles, instructions=max(8192, config.instructions),
                     tile_engines=engines or config.tile_engines)
    if word:
        config = with_words(config, word)
    if bits:
        config = replace(config, **{name: replace(getattr(config, name), bits=bits)
                                    for name in ("weights", "activations")})
    if (streams or overlaps) and config.matrix_tiles < 3 * TILES:
        raise ValueError(f"--stream and --overlap load {TILES} tiles by turns beside {TILES} that are multiplied: they "
                         f"need {3 * TILES} tiles, not {config.matrix_tiles}; leave out --tiles")
    if bandwidths:
        bandwidth(roomy(config), console)
    if lstm:
        config = roomy(config)
    if streams and sdram:
        sdram_rates(config, sdram, console)
    elif streams:
        stream(config, console)
    if overlaps:
        overlap(config, console)
    found = networks_of(model, lstm, config, samples)
    if found and sdram:
        sdram_networks(found, config, sdram, console)
        return
    table = Table("network", "latency", "batch", "differing", "cycles of a run", "bytes read", "bytes of tiles",
                  "cycles / (bytes / bus)")
    for name, made, inputs in found:
        for latency, count in product(LATENCIES, dict.fromkeys((1, batch))):
            differing, cycles, moved, size = measure(made, config, inputs, latency, count)
            table.add_row(name, str(latency), str(count), str(differing), f"{cycles:,}", f"{moved:,}", f"{size:,}",
                          f"{cycles / (moved / config.dram_bus):.3f}" if moved else "")
        if holding:
            larger = replace(holding, instructions=config.instructions)
            differing, cycles, *_ = measure(made, larger, inputs, LATENCIES[0])
            table.add_row(f"{name} on {beside}", "", "1", str(differing), f"{cycles:,}", "", "", "")
    if found:
        console.print(table)


if __name__ == "__main__":
    typer.run(main)
