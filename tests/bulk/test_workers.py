"""Signs of life: neither clocks that differ nor clocks that jump end the claim of a living worker."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from docmt.bulk import job_directory
from docmt.bulk.job_directory import JobDirectory, Watch, sign_of_life
from docmt.core import files

MACHINE = Path("/etc/machine-id")


@pytest.fixture
def elsewhere(monkeypatch):
    """Workers seem to run on another machine, so that their signs of life alone tell."""
    monkeypatch.setattr(job_directory, "_has_ended", lambda name: False)


@pytest.fixture
def passing(monkeypatch):
    """A function that lets seconds pass by the clock that never jumps."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def let_pass(seconds):
        now[0] += seconds

    return let_pass


def write_sign(folder, name="1-00000000-00000000", age=0.0):
    """Write a sign of life, so old by the clock of the file system."""
    path = folder / name
    path.touch()
    renewed = path.stat().st_mtime - age
    os.utime(path, (renewed, renewed))
    return path


def test_a_dead_worker_is_found_after_a_while(tmp_path, elsewhere, passing):
    sign, watch = write_sign(tmp_path, age=301), Watch(tmp_path)
    assert watch.look() == {sign.name: True}
    assert watch.look(patient=False) == {sign.name: False}
    passing(59)
    assert watch.look() == {sign.name: True}
    passing(2)
    assert watch.look() == {sign.name: False}


def test_a_fresh_sign_is_a_living_worker(tmp_path, elsewhere, passing):
    sign, watch = write_sign(tmp_path, age=250), Watch(tmp_path)
    for _ in range(3):
        assert watch.look() == watch.look(patient=False) == {sign.name: True}
        passing(1000)


@pytest.mark.parametrize("jump", [7200, -7200])
def test_a_jump_of_the_clock_kills_nobody(tmp_path, elsewhere, passing, jump):
    """The clock of the file system jumps; signs of life from before look old, or lie in the future."""
    living, dead = (write_sign(tmp_path, f"{n}-00000000-00000000", age=jump) for n in (1, 2))
    watch = Watch(tmp_path)
    for _ in range(4):
        assert watch.look()[living.name]
        passing(30)
        living.touch()
    assert watch.look() == {living.name: True, dead.name: False}


def test_the_clock_of_this_machine_does_not_matter(tmp_path, elsewhere, passing, monkeypatch):
    sign, watch = write_sign(tmp_path), Watch(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    for _ in range(3):
        passing(1000)
        assert watch.look() == {sign.name: True}


def test_signs_are_renewed_until_the_end(tmp_path):
    with sign_of_life(tmp_path, seconds=0.1) as name:
        first, deadline = (tmp_path / name).stat().st_mtime_ns, time.monotonic() + 60
        while (tmp_path / name).stat().st_mtime_ns == first:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        (tmp_path / name).unlink()  # by a worker that took it for dead
        while not (tmp_path / name).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert list(tmp_path.iterdir()) == []
    assert all(thread.name != "sign of life" for thread in threading.enumerate())


def test_a_process_of_this_machine_that_has_ended_is_dead_at_once(tmp_path, monkeypatch):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    name = f"{ended.stdout.strip()}-{files.host_id()}-00000000"
    write_sign(tmp_path, name)
    assert Watch(tmp_path).look() == {name: False}
    other = f"{ended.stdout.strip()}-00000000-00000000"
    write_sign(tmp_path, other)
    assert Watch(tmp_path).look()[other]


@pytest.mark.skipif(not MACHINE.exists(), reason="this system has no id")
def test_machines_of_one_name_do_not_take_each_other_for_dead(tmp_path, monkeypatch):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    read = Path.read_text
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", lambda path, **options: "x" if path == MACHINE else read(path, **options))
        name = f"{ended.stdout.strip()}-{files.host_id()}-00000000"
    write_sign(tmp_path, name)
    assert Watch(tmp_path).look() == {name: True}


def test_claims_of_the_dead_wait_again(tmp_path, elsewhere, passing):
    job = JobDirectory.create(tmp_path / "job")
    for name in ("1", "2", "3"):
        job.write_shard(name, b"")
    for name, worker, age in (("1", "1-00000000-00000000", 0), ("2", "2-00000000-00000000", 400)):
        write_sign(job.workers, worker, age)
        assert job.claim(worker, [name]).name == name
    job.claim("3-00000000-00000000", ["3"])  # its sign of life is gone
    assert job.return_dead_claims() == 1
    assert job.list_waiting() == {"plan", "3"}
    passing(100)
    assert job.return_dead_claims() == 1
    assert job.list_claimed() == {"1": "1-00000000-00000000"}
    assert [path.name for path in job.workers.iterdir()] == ["1-00000000-00000000"]
    assert job.return_dead_claims() == 0


def test_a_shard_is_claimed_once(tmp_path):
    job = JobDirectory.create(tmp_path / "job")
    names = [f"{number:03d}" for number in range(50)]
    for name in names:
        job.write_shard(name, b"")
    claimed = {worker: [] for worker in "abcd"}

    def work(worker):
        own = JobDirectory(tmp_path / "job")
        while claim := own.claim(worker, names):
            claimed[worker].append(claim.name)

    threads = [threading.Thread(target=work, args=[worker]) for worker in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(name for each in claimed.values() for name in each) == names


def test_a_sign_of_life_that_another_machine_lists_late(tmp_path, monkeypatch):
    job = JobDirectory.create(tmp_path / "job")
    job.write_shard("1", b"")
    write_sign(job.workers, "1-00000000-00000000")
    job.claim("1-00000000-00000000", ["1"])
    monkeypatch.setattr(Watch, "look", lambda self: {})
    assert job.return_dead_claims() == 0
    assert job.list_claimed() == {"1": "1-00000000-00000000"}
