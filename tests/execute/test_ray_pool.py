"""Workers on a local Ray: the same bits, on loopback and with a token; and what cannot be is told in one line."""

import hashlib
import os
import socket
import sys
import time

import numpy as np
import pytest

from anchorscope.errors import UserError
from anchorscope.execute.pool import Done, Failed, Joined, Lost
from anchorscope.execute.ray_pool import RayPool, _body
from anchorscope.execute.ray_worker import RayWorker
from anchorscope.models.loading import load
from small_shards import hashes_here, packed_shards, small_shards


@pytest.fixture(autouse=True)
def _settings_come_back(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


def test_no_ray_is_told_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'anchorscope\[ray\]'"):
        RayPool(None, 1).start({"model": "some"})


@pytest.mark.parametrize("address", ["nowhere", "ray://host:1", "host:", ":6379", "host:99999", "host:port"])
def test_what_is_no_address(address):
    pytest.importorskip("ray")
    with pytest.raises(UserError, match="allowed: HOST:PORT"):
        RayPool(address, 1).start({"model": "some"})


@pytest.mark.parametrize("reply", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_not_rays_is_told_within_seconds(reply, monkeypatch):
    """Ray itself would try to join it for minutes."""
    pytest.importorskip("ray")
    monkeypatch.setattr("anchorscope.execute.ray_cluster._PROBE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if reply is not None:
            import threading

            def answer() -> None:
                with server.accept()[0] as connection:
                    connection.sendall(reply)
                    connection.recv(100)

            threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(UserError, match=rf"There is no Ray cluster at '127\.0\.0\.1:{port}'"):
            RayPool(f"127.0.0.1:{port}", 1).start({"model": "some"})


def test_more_gpus_than_a_worker_can_have():
    with pytest.raises(UserError, match="a CPU is one device"):
        RayPool(None, 1, devices_per_worker=2).start({"model": "some"})
    with pytest.raises(UserError, match="allowed: 1 or more"):
        RayPool(None, 0)


def test_tasks_are_taken_in_their_order_whatever_ray_does():
    """Ray may run the second call first; what the first one brought has to be there."""
    import json
    import threading
    from concurrent.futures import Future

    from anchorscope.execute.warm_worker import Answer

    class Warm:
        def __init__(self) -> None:
            self.taken: list[bytes] = []

        def take(self, body, blobs):
            self.taken.append(body)
            return Future()

        def finish(self, running):
            return Answer([b"part"], "hash")

    worker, warm = RayWorker(), Warm()
    worker._worker = warm  # type: ignore[assignment]

    def call(number: int) -> threading.Thread:
        header = json.dumps({"number": number, "blobs": []}).encode()
        thread = threading.Thread(target=worker.compute, args=(header, str(number).encode()))
        thread.start()
        return thread

    threads = [call(number) for number in (2, 1)]
    assert warm.taken == []
    threads.append(call(0))
    for thread in threads:
        thread.join(30)
    assert warm.taken == [b"0", b"1", b"2"]


@pytest.mark.parametrize("value", [b"bytes", np.zeros(3), np.zeros((2, 2), np.uint8), None])
def test_what_is_no_array_of_bytes_is_no_result(value):
    with pytest.raises(TypeError, match="in place of an array of bytes"):
        _body(value)


def test_a_result_lies_in_memory_of_its_own():
    shared = np.arange(5, dtype=np.uint8)
    shared.flags.writeable = False
    found = _body(shared)
    found[0] = 7  # as those may who work with it
    assert bytes(found) == bytes([7, 1, 2, 3, 4])
    assert shared[0] == 0


def test_a_local_ray_gives_the_same_bits_on_loopback_with_a_token(save_tiny, monkeypatch):
    ray = pytest.importorskip("ray")
    model = save_tiny("llama")
    lm = load(str(model))
    packed = packed_shards(small_shards(lm, 3))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    pool = RayPool(None, 1, replacements=0)
    try:
        pool.start({"model": str(model), "threads": 1})
        address = ray.get_runtime_context().gcs_address
        assert address.startswith(("127.0.0.1:", "[::1]:"))
        assert os.environ["RAY_AUTH_MODE"] == "token"
        (joined,) = _events(pool, 1)
        assert isinstance(joined, Joined)
        assert joined.hello["threads"] == 1
        sent: set[str] = set()
        for name, one in packed.items():
            pool.submit(joined.worker, name, one.body, {key: one.blobs[key] for key in one.blobs if key not in sent})
            sent |= set(one.blobs)
        pool.submit(joined.worker, "no shard", b"nothing", {})
        found = _events(pool, 4)
        done = {one.task: one for one in found if isinstance(one, Done)}
        assert {name: one.sha256 for name, one in done.items()} == hashes_here(lm, packed)
        assert all(hashlib.sha256(one.body).hexdigest() == one.sha256 for one in done.values())
        (failed,) = [one for one in found if isinstance(one, Failed)]
        assert (failed.task, failed.kind) == ("no shard", "error")
        os.kill(joined.hello["pid"], 9)
        pool.submit(joined.worker, "t0", b"", {})
        (lost,) = _events(pool, 1)
        assert isinstance(lost, Lost)
    finally:
        pool.close()
    assert not ray.is_initialized()


def _events(pool, number, seconds=300.0):
    until, found = time.monotonic() + seconds, []
    while len(found) < number and time.monotonic() < until:
        found += pool.wait(until - time.monotonic())
    return found
