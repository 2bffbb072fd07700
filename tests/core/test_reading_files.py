"""Reading files: one wording for what cannot be read."""

import os

import pytest

from docmt.core.errors import DocmtError
from docmt.core.files import check_regular, parse_json, read_bytes, read_json


def test_what_cannot_be_read_is_told_in_one_wording(tmp_path):
    with pytest.raises(DocmtError, match=r"^cannot read the list \S+none: there is no such file; check the path$"):
        read_bytes(tmp_path / "none", "the list")
    with pytest.raises(DocmtError, match=r"^cannot read \S+none: there is no such file; make one$"):
        read_bytes(tmp_path / "none", advice="make one")
    with pytest.raises(DocmtError, match=r"^cannot read \S+: it is a directory; name a file inside it$"):
        read_bytes(tmp_path)
    with pytest.raises(DocmtError, match=r"^cannot read a\\x00b: embedded null byte; check that it is a readable f"):
        read_bytes("a\0b")
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
