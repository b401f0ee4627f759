"""The cache of builds is shared by processes and bounded, and never removes a build that is in use."""

import os
import subprocess
import sys

import pytest
from concord.nnp.main import app
from concord.sim.machines import cache
from typer.testing import CliRunner


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache, and a process that uses no build."""
    monkeypatch.setattr(cache, "BUILDS", tmp_path / "builds")
    monkeypatch.setattr(cache, "LOCKS", tmp_path / "locks")
    monkeypatch.setattr(cache, "_held", {})
    monkeypatch.delenv("CONCORD_CACHE_LIMIT", raising=False)
    yield tmp_path
    let_go()


def fill(size: int):
    """A function that makes a build of `size` bytes."""
    return lambda where: (where / "made").write_bytes(bytes(size))


def let_go():
    """Release all builds, as at the end of this process."""
    for lock in cache._held.values():
        os.close(lock)
    cache._held.clear()


def three_builds() -> list:
    """Three unused builds of 1,000 bytes, last used in the order first, third, second."""
    found = [cache.cached("unit", str(k), fill(1000)) for k in range(3)]
    let_go()
    for age, folder in zip((300, 100, 200), found, strict=True):
        os.utime(folder / cache.TIMED, (1e9 - age, 1e9 - age))
    return found


def test_a_build_is_made_once(home):
    calls = []
    for _ in range(2):
        where = cache.cached("unit", "key", calls.append)
        let_go()
    assert calls == [where]
    assert cache.cached("unit", "other key", calls.append) != where


def test_an_interrupted_build_is_made_again_in_an_empty_folder(home):
    def fail(where):
        (where / "half").touch()
        raise RuntimeError("no compiler")

    with pytest.raises(RuntimeError, match="no compiler"):
        cache.cached("unit", "key", fail)
    where = cache.cached("unit", "key", fill(1))
    assert sorted(path.name for path in where.iterdir()) == [cache.TIMED, "made"]


def test_the_least_recently_used_builds_go_first(home):
    oldest, newest, middle = three_builds()
    assert cache.trim(2500) == [oldest]
    assert cache.trim(1500) == [middle]
    assert newest.exists()


def test_use_makes_a_build_young(home):
    oldest, newest, middle = three_builds()
    cache.cached("unit", "0", fill(1))
    let_go()
    assert cache.trim(2500) == [middle]


def test_a_new_build_makes_room(home, monkeypatch):
    oldest, newest, middle = three_builds()
    monkeypatch.setenv("CONCORD_CACHE_LIMIT", str(2500 / cache.GIGABYTE))
    new = cache.cached("unit", "new", fill(1000))
    assert [path.exists() for path in (oldest, newest, middle, new)] == [False, True, False, True]


def test_what_this_process_uses_stays(home):
    where = cache.cached("unit", "key", fill(1000))
    assert cache.trim(0) == []
    let_go()
    assert cache.trim(0) == [where]


def test_what_another_process_uses_stays(home):
    """The kernel holds the lock, so that it is released when the process ends, in whatever way."""
    where = cache.cached("unit", "key", fill(1000))
    let_go()
    program = "import fcntl, sys; lock = open(sys.argv[1]); fcntl.flock(lock, fcntl.LOCK_SH); print(); input()"
    lock = str(home / "locks" / f"{where.name}.lock")
    words = [sys.executable, "-uc", program, lock]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as user:
        user.stdout.readline()
        assert cache.trim(0) == []
        user.kill()
    assert cache.trim(0) == [where]


def test_a_limit_that_is_no_number(home, monkeypatch):
    monkeypatch.setenv("CONCORD_CACHE_LIMIT", "8 GB")
    with pytest.raises(ValueError, match="CONCORD_CACHE_LIMIT is '8 GB': give a number of gigabytes"):
        cache.cached("unit", "key", fill(1))


def test_the_doctor_shows_and_clears_the_cache(home):
    three_builds()
    assert "3 builds" in CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "300"}).output
    used = cache.cached("unit", "0", fill(1))
    result = CliRunner().invoke(app, ["doctor", "--clear-cache"])
    assert result.exit_code == 0
    assert "2 builds removed" in result.output
    assert "1 in use" in result.output
    assert [build.folder for build in cache.builds()] == [used]


def test_builds_under_way_tell_how_far_they_are(home):
    """A build that a process left is not under way."""
    found = []

    def make(where):
        for file in ("Vtop__0.cpp", "Vtop__1.cpp", "Vtop__1.o"):
            (where / file).write_text("")
        found.append(cache.under_way())

    made = cache.cached("unit", "0", make)
    (made.parent / "left").mkdir()
    assert found == [{made.name: (1, 2)}]
    assert cache.under_way() == {}
    begun = cache.cached("unit", "1", lambda where: found.append(cache.under_way()))
    assert found[1] == {begun.name: (0, 0)}
