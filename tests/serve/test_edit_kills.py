"""A service that is killed, or whose disk is full, while people edit: what was answered stays, and nothing is half."""

import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from edit_process import main
from killed_processes import start_process

pytestmark = [pytest.mark.full, pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")]
TEXT = "".join(f"Sentence number {number} is here. And one more.\n" for number in range(12))


class Service:
    """A process that serves one document, which a person edits."""

    def __init__(self, data, path=""):
        """path: of a document that the data has."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.data, self.path = data, path
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)
        self.start()
        if path:
            return
        answer = self.client.post("/v1/documents", json={"text": TEXT}).json()
        self.path = f"/v1/documents/{answer['id']}"
        self.client.get(self.path + "/events")

    def start(self):
        self.process = start_process(main, self.data, self.port)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                if self.client.get("/health").status_code == 200:
                    return
            time.sleep(0.02)
        raise TimeoutError("the service does not answer")

    def stop(self):
        self.process.kill()
        self.process.join(30)

    def state(self):
        """What the document has of people: translation, whether it was edited, whether it is confirmed."""
        sentences = self.client.get(self.path + "/sentences").json()["sentences"]
        return [(each["target"], each["edited"], each["confirmed"]) for each in sentences]

    def change(self, chance, number):
        """Change the document at random, and return the answer."""
        words, place = f"Written by hand, {number}.", chance.randrange(24)
        match chance.randrange(5):
            case 0:
                return self.client.post(f"{self.path}/sentences/{place}", json={"target": words})
            case 1:
                targets = {str(each): f"{words} {each}" for each in chance.sample(range(24), 5)}
                return self.client.post(f"{self.path}/sentences", json={"targets": targets})
            case 2:
                return self.client.post(f"{self.path}/undo")
            case 3:
                return self.client.post(f"{self.path}/sentences/{place}", json={"confirmed": True})
            case _:
                file = self.client.get(f"{self.path}/result?format=xlf").text
                reviewed = re.sub(r"(<target[^>]*>)", rf"\g<1>R{number} ", file, count=3)
                return self.client.post(f"{self.path}/xliff", files={"file": ("r.xlf", reviewed.encode())})


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path / "data")
    yield service
    service.stop()


def test_kills_lose_no_answered_change_and_make_none_by_half(service, tmp_path):
    """After the restart the document is as before, or as the change leaves a copy of it that nobody kills."""
    chance, unanswered, done = random.Random(0), 0, 0
    for kill in range(10):
        for number in range(chance.randrange(4)):
            assert service.change(chance, f"{kill}.{number}").status_code in (200, 409)
        before, change = service.state(), chance.randrange(10**6)
        copy = shutil.copytree(service.data, tmp_path / str(kill))
        timer = threading.Timer(chance.random() * 0.02, service.process.kill)
        timer.start()
        answered = False
        with contextlib.suppress(httpx.TransportError):
            answered = service.change(random.Random(change), f"{kill}.x").status_code == 200
        timer.join()
        service.stop()
        service.start()
        after = service.state()
        unanswered, done = unanswered + (not answered), done + (after != before)
        if answered or after != before:
            twin = Service(copy, service.path)
            twin.change(random.Random(change), f"{kill}.x")
            assert twin.state() == after
            twin.stop()
    assert unanswered and done


def test_a_version_from_before_a_kill_is_late_after_it(service):
    path = f"{service.path}/sentences/3"
    assert service.client.post(path, json={"target": "Hers.", "version": 1}).status_code == 200
    service.stop()
    service.start()
    answer = service.client.post(path, json={"target": "His.", "version": 1})
    assert answer.status_code == 409 and answer.json()["sentences"][0]["target"] == "Hers."
    service.stop()
    service.start()
    assert service.state()[3] == ("Hers.", True, False)
    assert service.client.post(path, json={"target": "His.", "version": 2}).status_code == 200


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("only the superuser of Linux can make a small disk")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk, room):
    """Fill a disk but for some bytes."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    with (disk / "filler").open("rb+") as file:
        file.truncate(max(0, file.seek(0, os.SEEK_END) - room))


def test_a_full_disk_loses_no_answered_change(small_disk, tmp_path):
    """Changes are refused while nothing fits, and go on when there is room."""
    chance, refused = random.Random(5), 0
    service = Service(small_disk / "data")
    for round in range(6):
        for number in range(chance.randrange(1, 4)):
            assert service.change(chance, f"{round}.{number}").status_code in (200, 409)
        before, change = service.state(), chance.randrange(10**6)
        copy = shutil.copytree(service.data, tmp_path / str(round))
        fill(small_disk, room=chance.choice([0, 4096, 4096 * chance.randrange(20)]))
        answer = service.change(random.Random(change), f"{round}.x")
        (small_disk / "filler").unlink()
        refused += answer.status_code == 507
        if answer.status_code != 200:
            assert answer.status_code in (409, 507), answer.text
            assert service.state() == before
            service.change(random.Random(change), f"{round}.x")
        after = service.state()
        service.stop()
        service.start()
        assert service.state() == after
        twin = Service(copy, service.path)
        twin.change(random.Random(change), f"{round}.x")
        assert twin.state() == after
        twin.stop()
    service.stop()
    assert refused
