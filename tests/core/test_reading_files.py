"""ModelInput files: one wording for what cannot be read."""

import os
import time
from threading import Thread

import pytest

from docmt.core import files
from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, parse_json, read_bytes, read_json
from docmt.core.plain_text import read_lines, read_text


def test_what_cannot_be_read_is_told_in_one_wording(tmp_path):
    with pytest.raises(DocmtError, match=r"^cannot read the list \S+none: there is no such file; check the path$"):
        read_bytes(tmp_path / "none", "the list")
    with pytest.raises(DocmtError, match=r"^cannot read \S+none: there is no such file; make one$"):
        read_bytes(tmp_path / "none", advice="make one")
    with pytest.raises(DocmtError, match=r"^cannot read \S+: it is a directory; name a file inside it$"):
        read_bytes(tmp_path)
    (tmp_path / "file").write_bytes(b"\xff")
    assert read_bytes(tmp_path / "file", regular=True) == b"\xff"


def test_what_is_no_regular_file_is_refused_where_that_is_asked(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocmtError, match=r"^cannot read the config \S+pipe: it is a pipe; give a file$"):
        read_bytes(tmp_path / "pipe", "the config", regular=True)
    with pytest.raises(DocmtError, match=r"^cannot read \S+pipe: it is read twice, but is a pipe; give a file$"):
        check_regular(tmp_path / "pipe", "it is read twice, but is")
    with pytest.raises(DocmtError, match=r"it is a device"):
        read_bytes(os.devnull, regular=True)
    assert read_bytes(os.devnull) == b""
    check_regular(tmp_path / "none")


def test_json_that_is_none(tmp_path):
    for data in (b"", b"{", b"\xff", b"[" * 100_000, b'{"a": ' * 100_000):
        with pytest.raises(ValueError):
            parse_json(data)
        (tmp_path / "a.json").write_bytes(data)
        with pytest.raises(DocmtError, match=r"^\S+a\.json is damaged \([^\n]+\): copy it again"):
            read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_bytes(b"[1]")
    with pytest.raises(DocmtError, match="does not hold a JSON object"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("read", [read_text, lambda path: "".join(line for _, line in read_lines(path))])
def test_who_waits_for_the_other_end_of_a_pipe_is_told(tmp_path, monkeypatch, caplog, read):
    """It waited for ever without a word."""
    monkeypatch.setattr(files, "_PIPE_WAIT", 0.05)
    os.mkfifo(tmp_path / "pipe")

    def write_late():
        while not caplog.messages:
            time.sleep(0.01)
        (tmp_path / "pipe").write_text("late\n")

    writer = Thread(target=write_late)
    writer.start()
    assert read(tmp_path / "pipe") == "late\n"
    writer.join()
    assert caplog.messages == [f"waiting for a program that writes to the pipe {tmp_path / 'pipe'}"]
