"""Ids that come twice are found by their digests, also those of many documents."""

from docmt.bulk import shards
from docmt.bulk.shards import IdChecker, digest_id


def test_digests_that_come_twice():
    ids = IdChecker()
    assert ids.find_repeated() == set()
    for id in ["a", "b", "\ud800", "c", "b", "b", "\ud800"]:
        assert ids.add(id) == set()
    assert ids.find_repeated() == {digest_id("b"), digest_id("\ud800")}


def test_there_is_a_look_at_every_doubling(monkeypatch):
    monkeypatch.setattr(shards, "_FIRST_LOOK", 4)
    ids = IdChecker()
    looks = [ids.add(str(number % 5)) for number in range(9)]
    assert looks == [set()] * 7 + [set(map(digest_id, "012"))] + [set()]
