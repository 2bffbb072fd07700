"""Keys of the service: kept as hashes, with budgets."""

import pytest

from docmt.core.errors import DocmtError
from docmt.serve.access_keys import AccessKeys, KeyLimits, LimitReached


def test_keys_are_created_and_revoked(tmp_path):
    keys = AccessKeys(tmp_path)
    assert keys.list_keys() == []
    secret, key = keys.create("Anna", KeyLimits(concurrent_jobs=2))
    other_secret, other = keys.create("Bob")
    assert len(secret) >= 43 and secret != other_secret
    assert AccessKeys(tmp_path).list_keys() == [key, other]
    assert (keys.find(secret), keys.find(other_secret)) == (key, other)
    for wrong in ("", secret[:-1], secret + "x", key.id, "\ud800"):
        assert keys.find(wrong) is None
    AccessKeys(tmp_path).revoke(key.id)  # another process
    assert keys.find(secret) is None
    with pytest.raises(DocmtError, match="there is no key"):
        keys.revoke(key.id)
    assert all(secret.encode() not in path.read_bytes() for path in tmp_path.iterdir())
    assert (tmp_path / "keys.sqlite").stat().st_mode & 0o077 == 0


def test_characters_a_minute(tmp_path):
    now = 100.0
    keys = AccessKeys(tmp_path, clock=lambda: now)
    _, key = keys.create("Anna", KeyLimits(characters_per_minute=600))
    _, free = keys.create("Bob")
    keys.take_characters(key, 500)
    keys.take_characters(key, 700)  # 100 are left: a request that is larger is let in
    with pytest.raises(LimitReached, match=r"600 characters a minute\. Try again in 61 seconds") as error:
        keys.take_characters(key, 1)
    assert error.value.retry_after == 61
    now += 61
    keys.take_characters(key, 1)
    now += 3600
    keys.take_characters(key, 600)
    with pytest.raises(LimitReached):
        keys.take_characters(key, 1)
    for _ in range(3):
        keys.take_characters(free, 10**9)
    now += 30
    restarted = AccessKeys(tmp_path, clock=lambda: now)
    with pytest.raises(LimitReached, match="Try again in 1 seconds"):  # half of the budget came back
        AccessKeys(tmp_path, clock=lambda: now - 30).take_characters(key, 1)
    restarted.take_characters(key, 400)
    with pytest.raises(LimitReached, match="Try again in 11 seconds"):
        AccessKeys(tmp_path, clock=lambda: now).take_characters(key, 1)


def test_a_damaged_table_is_one_sentence(tmp_path):
    (tmp_path / "keys.sqlite").write_bytes(b"no table" * 1000)
    with pytest.raises(DocmtError, match=r"keys\.sqlite cannot be used"):
        AccessKeys(tmp_path)
