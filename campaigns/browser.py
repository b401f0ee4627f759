"""The dashboard in a real browser, Debian's chromium: `nox -s browser`; screenshots lie in build/browser.

A network and data are brought; an overflow is provoked by an accumulator of 12 bits, seen red, and steered away;
the run is paused, goes on, is reloaded and stopped; its model is verified on the simulated hardware and downloaded.
On every page axe-core looks for serious faults of accessibility, and no request leaves the computer.
"""

import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from concord.lib.tensor_file import read
from concord.net.model_file import KIND
from concord.tests.own_digits import written
from concord.train.live.changes import DATABASE
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SHOTS = ROOT / "build" / "browser"
AXE = ROOT / "tests" / "dashboard" / "vendor" / "axe.min.js"
#: Milliseconds after which nothing is waited for any more, however busy the computer is.
PATIENCE = 120_000
#: Sizes of the windows in pixels: of a projector and of a phone.
WIDE, PHONE = ViewportSize(width=1360, height=900), ViewportSize(width=390, height=844)


class BrowserWindow:
    """A window on the dashboard, which keeps screenshots and what went wrong.

    Args:
        browser: The browser.
        url:     Address with the token.
    """

    def __init__(self, browser: Browser, url: str):
        self.base, self.wrong, self.count = url.partition("?")[0], [], 0
        self.page: Page = browser.new_context(viewport=WIDE, accept_downloads=True, bypass_csp=True).new_page()
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        self.page.on("console", lambda said: self._said(said.type, said.text))
        self.page.goto(url)

    def _said(self, kind: str, text: str):
        if kind == "error":
            self.wrong.append(f"console: {text}")

    def _asked(self, url: str):
        if not url.startswith((self.base, "data:", "blob:")):
            self.wrong.append(f"a request to {url}")

    def shot(self, name: str, axe: bool = True):
        """Keep a screenshot of the whole page, and let axe-core look at it."""
        self.count += 1
        self.page.screenshot(path=SHOTS / f"{self.count:02}-{name}.png", full_page=True)
        if axe:
            self.page.evaluate(AXE.read_text() + "; 0")
            for found in self.page.evaluate("axe.run()")["violations"]:
                if found["impact"] in ("serious", "critical"):
                    where = "; ".join(node["html"][:150] for node in found["nodes"][:3])
                    self.wrong.append(f"{name}: {found['impact']}: {found['help']}: {where}")

    def timed(self, what: str, begun: float):
        """Print how long something has taken, of the two seconds that it should on an idle computer."""
        print(f"{what}: {time.monotonic() - begun:.2f} s of 2")


def bring(session: BrowserWindow, folder: Path):
    """Bring a network and its data, and provoke an overflow."""
    page = session.page
    session.shot("empty")
    begun = time.monotonic()
    page.goto(session.base + "new")
    session.timed("first page", begun)
    network, data = written(folder)
    page.set_input_files("#network", network)
    page.set_input_files("#data", data)
    page.fill("#name", "digits")
    session.shot("bring")
    page.click("text=Read them")
    page.wait_for_selector("#choices")
    page.fill("#accumulator", "65")
    expect(page.locator("#accumulator-wrong")).to_contain_text("1 to 64")
    session.shot("wrong")
    page.fill("#accumulator", "12")
    page.fill("#overflow_threshold", "1000000000")
    page.fill("#epochs", "20000,1")
    page.fill("#rate", "0.001")
    expect(page.locator("#command")).to_contain_text("--accumulator 12")
    session.shot("choose")


def first_overflow(folder: Path) -> float:
    """When the step ended after which the only run first counted an overflow, in seconds since 1970."""
    (database,) = folder.glob(f"runs/*/{DATABASE}")
    with closing(sqlite3.connect(database)) as opened:
        return opened.execute("SELECT min(time) FROM layers JOIN steps USING (step) "
                              "WHERE product_events + sum_events + output_events > 0").fetchone()[0]


def watch(session: BrowserWindow, folder: Path):
    """Watch the training, steer its overflow away, pause, go on, reload, and stop."""
    page = session.page
    page.click("text=Start training")
    over = page.locator("tr.over")
    expect(over.first).to_be_visible()
    seen = time.time()
    print(f"overflow seen after the step that has it: {seen - first_overflow(folder):.2f} s of 2")
    expect(page.locator("#where")).to_have_text(re.compile(r"step [1-9][\d,]{2,} of"))  # some points of the curves
    session.shot("overflow")
    ask = page.locator("form.steer[data-do=what_if]")
    ask.locator("input[name=value]").fill("16")
    ask.locator("button").click()
    expect(page.locator("#answers")).to_contain_text("overflows")
    steer = page.locator("#steering form.steer[data-do=set]")
    steer.locator("select[name=what]").select_option("threshold")
    steer.locator("input[name=value]").fill("0")
    begun = time.monotonic()
    steer.locator("button").click()
    expect(over).to_have_count(0)
    session.timed("overflow gone after steering", begun)
    page.click("button[data-do=pause]")
    expect(page.locator("#condition")).to_have_text("paused")
    page.reload()
    expect(page.locator("#layers tr")).to_have_count(2)
    expect(page.locator("#condition")).to_have_text("paused")
    expect(page.locator("#log li.change").first).to_be_visible()
    session.shot("steered")
    page.locator("button.name").first.click()
    page.wait_for_selector("#history .uplot")
    session.shot("layer")
    page.click("#close")
    page.click("button[data-do=go]")
    expect(page.locator("#condition")).to_have_text("running")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("#loss canvas")).to_have_css("width", re.compile(r"^[123]\d\dpx$"))  # it was drawn again
    session.shot("phone")
    page.set_viewport_size(WIDE)
    page.emulate_media(color_scheme="light")
    page.click("button[data-do=stop]")
    expect(page.locator("#condition")).to_have_text("stopped")


def finish(session: BrowserWindow, folder: Path):
    """Verify the model on the simulated hardware, and download it with the report."""
    page = session.page
    page.click("[data-job=verify]")
    expect(page.locator("#job-verify .state.finished")).to_be_visible()
    expect(page.locator("#job-verify")).to_contain_text("0 differing bits")
    session.shot("verified")
    kept = {}
    for name in "model.safetensors", "verify":
        with page.expect_download() as waiting:
            page.click(f"a[href$='/files/{name}']")
        kept[name] = folder / waiting.value.suggested_filename
        waiting.value.save_as(kept[name])
    header, _ = read(KIND, kept["model.safetensors"])
    assert "--accumulator 12" in str(header)
    assert "verify.html" in zipfile.ZipFile(kept["verify"]).namelist()
    page.goto(session.base)
    page.locator("input[type=checkbox]").first.check()
    session.shot("runs")
    page.click("main button")
    page.wait_for_selector(".uplot")
    session.shot("compare")


@contextmanager
def served(runs: Path) -> Iterator[str]:
    """A context with the address of a server."""
    words = [sys.executable, "-m", "concord.nnp.main", "dashboard", "--port", "0", "--runs", str(runs)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            found = re.search(r"http\S+", server.stdout.readline())
            assert found, "the server has printed no address"
            yield found[0]
        finally:
            server.terminate()


def main():
    """Drive a session; the exit code is 1 if something is wrong."""
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("nnp: there is no chromium: install it, in Debian by `apt-get install -y chromium`")
    shutil.rmtree(SHOTS, ignore_errors=True)
    SHOTS.mkdir(parents=True)
    expect.set_options(timeout=PATIENCE)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as name, served(Path(name) / "runs") as url, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        session = BrowserWindow(browser, url)
        try:
            bring(session, Path(name))
            watch(session, Path(name))
            finish(session, Path(name))
        except BaseException:
            session.shot("failed", axe=False)
            raise
        browser.close()
    for words in session.wrong:
        print(f"nnp: {words}", file=sys.stderr)
    print(f"{session.count} screenshots in {SHOTS.relative_to(ROOT)}; {time.monotonic() - begun:.0f} s")
    sys.exit(1 if session.wrong else 0)


if __name__ == "__main__":
    main()
