"""Worker processes that cannot begin: told in one line, tried again only where that may help, and never waited for."""

import os
import signal
import time
from pathlib import Path

from anchorscope.execute.pool import Joined, Lost
from anchorscope.execute.process_pool import ProcessPool
from repo import SUPPORT

DEAD = ("-c", "import sys; print('no ' * 3 + 'luck', file=sys.stderr); sys.exit(9)")
STAND_IN = ("-P", str(SUPPORT / "faulty.py"), "stand-in")
"""Workers without a model, which begin at once."""


def all_events(pool, number, seconds=300.0):
    until, found = time.monotonic() + seconds, []
    while len(found) < number and time.monotonic() < until:
        found += pool.wait(until - time.monotonic())
    return found


def test_a_model_that_is_not_there_is_told_once(tmp_path):
    pool = ProcessPool(1)
    try:
        pool.start({"model": str(tmp_path / "nowhere"), "threads": 1})
        (lost,) = all_events(pool, 1)
        assert isinstance(lost, Lost)
        assert lost.reason.startswith("Model folder")
        assert "does not exist" in lost.reason
        assert pool._starter is not None, "workers on a CPU are copies of another process where nobody says otherwise"
        assert pool.wait(0.2) == [], "another worker would find no model either"
    finally:
        pool.close()


def test_a_process_that_dies_is_replaced_so_often():
    pool = ProcessPool(2, replacements=1, entry=DEAD)
    try:
        pool.start({"model": "some"})
        lost = all_events(pool, 4)
        assert sorted(one.worker for one in lost) == ["w1", "w2", "w3", "w4"]
        assert all("exit code 9" in one.reason and "no no no luck" in one.reason for one in lost)
        assert pool.wait(0.2) == []
    finally:
        pool.close()


def test_a_process_that_does_not_listen_holds_nobody_up():
    pool = ProcessPool(1, entry=("-c", "import time; time.sleep(600)"))
    try:
        pool.start({"model": "some"})
        pool.submit("w1", "task", b"x" * 10_000_000, {})
        assert pool.wait(0.1) == []
        pool.discard("w1", "too slow")
        assert pool.wait(0.1) == []
    finally:
        pool.close()


def test_workers_are_copies_of_one_process(tmp_path, monkeypatch):
    """So a worker that comes in place of a lost one begins at once; nobody is left when the pool is closed."""
    monkeypatch.setenv("FAULTS_AT", str(tmp_path))
    pool = ProcessPool(2, entry=STAND_IN, copied=True)
    try:
        pool.start({"model": "none", "threads": 1})
        joined = all_events(pool, 2)
        assert all(isinstance(one, Joined) for one in joined), joined
        first, second = (one.hello["pid"] for one in joined)
        assert parent_of(first) == parent_of(second) != os.getpid()
        os.kill(first, signal.SIGKILL)
        lost, again = all_events(pool, 2)
        assert isinstance(lost, Lost)
        assert "signal SIGKILL" in lost.reason
        assert isinstance(again, Joined)
        assert parent_of(again.hello["pid"]) == parent_of(second)
        starter = parent_of(second)
        os.kill(starter, signal.SIGKILL)  # its workers end with it, and another one takes its place
        events = all_events(pool, 4)
        assert sorted(type(one).__name__ for one in events) == ["Joined", "Joined", "Lost", "Lost"]
        pids = [one.hello["pid"] for one in events if isinstance(one, Joined)]
        assert parent_of(pids[0]) == parent_of(pids[1]) != starter
    finally:
        pool.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_starter_that_cannot_begin_is_told_with_its_last_words():
    pool = ProcessPool(2, replacements=1, entry=DEAD, copied=True)
    try:
        pool.start({"model": "some", "threads": 1})
        lost = all_events(pool, 4)
        assert sorted(one.worker for one in lost) == ["w1", "w2", "w3", "w4"]
        assert all("exit code 9" in one.reason for one in lost)
        assert any("no no no luck" in one.reason for one in lost)
    finally:
        pool.close()


def test_a_pool_that_is_closed_while_it_begins_leaves_nobody():
    pool = ProcessPool(2)
    pool.start({"model": "none", "threads": 1})
    began = time.monotonic()
    pool.close()
    assert time.monotonic() - began < 8.0
    assert pool.wait(0.0) == []
