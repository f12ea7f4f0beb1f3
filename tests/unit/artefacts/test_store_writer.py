"""Results are kept by a thread of its own: all of them, in order, never too many waiting, and no error in silence."""

import errno
import hashlib
import threading
import time
import weakref
from pathlib import Path

import pytest
from anchorscope.artefacts.shards import ShardStore, StoreWriter

BODY = b"x" * 1000


class Held:
    """A store whose disk is stopped until it is let go on, and full at one of its files."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.written: list[str] = []
        self.go_on = threading.Semaphore(0)
        self.fails_at = fails_at

    def read(self, name: str) -> bytes | None:
        return None

    def write(self, name: str, body: bytes, sha256: str | None = None) -> None:
        assert self.go_on.acquire(timeout=30)
        if len(self.written) == self.fails_at:
            raise OSError(errno.ENOSPC, "No space left on device", name)
        self.written.append(name)


def test_everything_is_kept_when_the_block_is_left(tmp_path: Path) -> None:
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    bodies = {f"{number:032x}": bytes([number]) * (number * 1000) for number in range(20)}
    with StoreWriter(store, most_waiting=5000) as writer:
        for name, body in bodies.items():
            writer.write(name, body, hashlib.sha256(body).hexdigest())
    assert {name: store.read(name) for name in store.ids()} == bodies


def test_a_hash_that_is_not_the_bodys_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    store.write("0" * 32, BODY, hashlib.sha256(b"other").hexdigest())
    assert store.read("0" * 32) is None


def test_what_waits_is_read_from_the_disk_and_not_as_somebody_left_it(tmp_path: Path) -> None:
    store, body = ShardStore(tmp_path / "clean-0123456789ab.shards"), bytearray(BODY)
    slow, go_on = store.write, threading.Event()

    def write(name: str, body: bytes, sha256: str | None = None) -> None:
        slow(name, body, sha256)
        assert go_on.wait(30)

    store.write = write  # type: ignore[method-assign]
    with StoreWriter(store) as writer:
        writer.write("0" * 32, memoryview(body), hashlib.sha256(BODY).hexdigest())
        while not store.ids():
            time.sleep(0.001)
        body[:] = bytes(len(body))
        threading.Timer(0.05, go_on.set).start()
        assert writer.read("0" * 32) == BODY
        assert writer.read("1" * 32) is None


def test_nothing_holds_what_was_written() -> None:
    class Large(bytearray):
        """One that can be looked at weakly."""

    store, body = Held(), Large(BODY)
    store.go_on.release()
    seen = weakref.ref(body)
    with StoreWriter(store) as writer:
        writer.write("a", body, "")  # type: ignore[arg-type]
        del body
        until = time.monotonic() + 10
        while seen() is not None and time.monotonic() < until:
            time.sleep(0.001)
        assert seen() is None, "the step may go on for long"


def test_a_result_that_comes_after_the_end_is_a_mistake() -> None:
    with StoreWriter(Held()) as writer:
        pass
    with pytest.raises(ValueError, match="after their step"):
        writer.write("a", BODY, "")


def test_the_next_write_waits_while_too_much_does() -> None:
    store = Held()
    writer = StoreWriter(store, most_waiting=2 * len(BODY))
    with writer:
        writer.write("a", BODY, "")
        writer.write("b", BODY, "")
        late = threading.Thread(target=writer.write, args=("c", BODY, ""))
        late.start()
        late.join(0.05)
        assert late.is_alive(), "two wait already"
        store.go_on.release()
        late.join(30)
        assert not late.is_alive()
        store.go_on.release(2)
    assert store.written == ["a", "b", "c"]


def test_one_that_is_larger_than_all_that_may_wait_waits_alone() -> None:
    store = Held()
    store.go_on.release(2)
    with StoreWriter(store, most_waiting=10) as writer:
        writer.write("a", BODY, "")
        writer.write("b", BODY, "")
    assert store.written == ["a", "b"]


def keep(store: Held, names: str, most_waiting: int) -> str:
    """How far writing came."""
    told = ""
    with StoreWriter(store, most_waiting) as writer:
        for name in names:
            writer.write(name, BODY, "")
            told += name
    return told


def test_a_full_disk_is_told_by_the_next_write() -> None:
    store = Held(fails_at=1)
    store.go_on.release(9)
    with pytest.raises(OSError, match="No space left"):
        keep(store, "abcdef", most_waiting=len(BODY))
    assert store.written == ["a"]
    assert store.go_on.acquire(timeout=0), "nothing more was tried"


def test_a_full_disk_is_told_at_the_end() -> None:
    store = Held(fails_at=2)
    store.go_on.release(9)
    with pytest.raises(OSError, match="No space left"):
        keep(store, "abc", most_waiting=9 * len(BODY))
    assert store.written == ["a", "b"]


def test_a_pass_that_fails_keeps_what_it_has_and_tells_its_own_error() -> None:
    store = Held(fails_at=1)

    def failing(writer: StoreWriter) -> None:
        with writer:
            writer.write("a", BODY, "")
            writer.write("b", BODY, "")
            store.go_on.release(2)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        failing(StoreWriter(store))
    assert store.written == ["a"]
