"""Traces in a real browser, Debian's chromium, and in SQLite: `nox -s traces`; screenshots lie in build/traces.

Three traces: one step of the shipped LSTM, the shipped ResNet-8, and two machines in a row. Each is shown by the
viewer, which loads nothing else; a stall is clicked, and its link leads to the chain that it waited for. The spans of
each file are read back into SQLite, where they add up to the counters of the machines. `--long CYCLES` also draws a
made trace of so many spans, and says how long a frame takes.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from concord.campaigns.trace_tables import counters, tables
from concord.firmware.cascade import Cascade
from concord.net.quantize.widths import NetworkArithmetic
from concord.traces.chrome import chrome_text
from concord.traces.page import page_text
from concord.traces.perfetto import perfetto_bytes
from concord.traces.record import TracedMachine, record
from concord.traces.spans import COLUMNS, MachineTrace, Spans
from concord.verification.timed_firmware import firmware_at
from concord.workflows.cascades import Wish, compile_cascade
from concord.workflows.storage import read_model
from playwright.sync_api import Browser, sync_playwright

INTEGER = NetworkArithmetic.INTEGER
ROOT = Path(__file__).resolve().parents[1]
SHOTS = ROOT / "build" / "traces"
MODELS = ROOT / "data" / "models"


def recorded() -> dict[str, list[MachineTrace]]:
    """The traces; `record` compares each with the counters that its machine has counted."""
    resnet = MODELS / "fashion-resnet-w8.safetensors"
    row = compile_cascade(read_model(str(resnet), "vision"), "vision", Wish(machines=2), str(resnet))[1].cascade
    lstm = Cascade.of(firmware_at(MODELS / "vowels-lstm-w8.safetensors", "speech", INTEGER))
    alone = Cascade.of(firmware_at(resnet, "vision", INTEGER))
    return {
        "lstm": record(lstm, 1, 1, TracedMachine.TIMING),
        "resnet": record(alone, 1, 1, TracedMachine.TIMING),
        "cascade": record(row, 2, 1, TracedMachine.TIMING),
    }


def read_back(name: str, traces: Sequence[MachineTrace]) -> list[str]:
    """Read the files of a trace into SQLite. Returns what is wrong."""
    wrong = []
    for form, content in (("Chrome", chrome_text(traces)), ("Perfetto", perfetto_bytes(traces))):
        base = tables(content)
        for number, one in enumerate(traces, 1):
            if counters(base, number) != one.counters():
                wrong.append(f"{name}: {form}'s slices give {counters(base, number)}, not {one.counters()}")
    return wrong


def long_trace(count: int) -> MachineTrace:
    """A trace of `count` spans: the LSTM's, repeated."""
    one = record(
        Cascade.of(firmware_at(MODELS / "vowels-lstm-w8.safetensors", "speech", INTEGER)), 1, 1, TracedMachine.TIMING
    )[0]
    repeats, length = (
        -(-count // len(one.spans)),
        int((one.spans.first + one.spans.count).max() - one.spans.first.min()),
    )
    columns = {name: np.tile(getattr(one.spans, name), repeats) for name in COLUMNS}
    columns["first"] = columns["first"] + np.repeat(np.arange(repeats) * length, len(one.spans))
    order = np.lexsort((columns["first"], columns["track"]))
    return replace(one, spans=Spans(**{name: column[order] for name, column in columns.items()}))


def shown(browser: Browser, name: str, file: Path, *, click: bool) -> list[str]:
    """Open a page, keep screenshots, and click on a stall. Returns what is wrong."""
    wrong, page = [], browser.new_context(viewport={"width": 1360, "height": 900}).new_page()
    page.on("request", lambda request: wrong.extend(
        [] if request.url.startswith(("file:", "data:", "blob:")) else [request.url]))
    page.on("pageerror", lambda error: wrong.append(f"{name}: script: {error}"))
    page.on("console", lambda said: wrong.extend([f"{name}: console: {said.text}"] * (said.type == "error")))
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-ready]", timeout=60_000)
    page.screenshot(path=SHOTS / f"{name}-all.png")
    taken = page.evaluate("""() => { const times = [];
        for (let k = 0; k < 20; k++) {
            const begun = performance.now(); zoom(.7, from); draw(); times.push(performance.now() - begun);
        }
        showAll(); return times.sort((a, b) => a - b)[10] / 1000; }""")
    print(f"{name}: {file.stat().st_size:,} bytes, a frame takes {taken * 1000:.0f} ms in the median of 20")
    if click:
        wrong += _clicked(page, name)
    page.context.close()
    return wrong


def _clicked(page, name: str) -> list[str]:
    """Click on the longest stall that has a chain, and follow its link."""
    point = page.evaluate("""() => { const machine = TRACE.machines[0], s = machine.s; let best = -1;
        for (let k = 0; k < s.track.length; k++)
            if (s.older[k] >= 0 && s.state[k] > 0 && (best < 0 || s.count[k] > s.count[best])) best = k;
        const wide = Math.max(s.count[best] * 8, 60);
        from = s.first[best] - wide / 2; to = from + wide; draw();
        return {x: x(s.first[best] + s.count[best] / 2), y: machine.rows[s.track[best]].y + ROW / 2}; }""")
    page.locator("#canvas").click(position=point)
    page.wait_for_selector("#older")
    text = page.locator("#about").inner_text()
    page.screenshot(path=SHOTS / f"{name}-stall.png")
    wrong = [
        f"{name}: the details of a stall lack {word!r}: {text}"
        for word in ("unit", "layer", "chain", "cycles", "waits", "v_")
        if word not in text
    ]
    page.locator("#older").click()
    page.screenshot(path=SHOTS / f"{name}-older.png")
    return wrong + [f"{name}: the link leads nowhere"] * (page.locator("#about").inner_text() == text)


def main():
    """Make the traces, read them back and show them; the exit code is 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--long", type=int, default=1_000_000, help="spans of the made trace")
    asked = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("nnp: there is no chromium: install it, in Debian by `apt-get install -y chromium`")
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True)
    begun, wrong = time.monotonic(), []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        made = recorded()
        for name, traces in {**made, "long": [long_trace(asked.long)]}.items():
            if name in made:
                wrong += read_back(name, traces)
            file = Path(folder, f"{name}.html")
            file.write_text(page_text(traces))
            wrong += shown(browser, name, file, click=name in made)
        browser.close()
    for words in wrong:
        print(f"nnp: {words}", file=sys.stderr)
    print(f"screenshots in {SHOTS.relative_to(ROOT)}; {time.monotonic() - begun:.0f} s")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
