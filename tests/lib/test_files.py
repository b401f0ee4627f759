"""Files that appear whole or not at all."""

import pytest
from concord.lib.files import write, write_all


def test_files_are_written_into_a_new_folder(tmp_path):
    write_all(tmp_path / "made" / "here", {"text": "a", "bytes": b"\x00"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "made" / "here").iterdir()} == {
        "text": b"a", "bytes": b"\x00"}


def test_a_failure_leaves_what_was_there(tmp_path):
    write(tmp_path / "kept", "old")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    with pytest.raises(OSError, match="taken"):
        write_all(tmp_path, {"taken": "new", "kept": "new"})
    assert (tmp_path / "kept").read_text() == "old"
    assert not list(tmp_path.rglob("*.part"))
