"""Workers on a local Ray: the same bits, on loopback and with a token; and what cannot be is told in one line."""

import hashlib
import os
import socket
import sys
import threading
import time

import pytest

import needs
from anchorscope.errors import UserError
from anchorscope.execute.pool import Done, Failed, Joined, Lost
from anchorscope.execute.ray_pool import RayPool
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
    needs.ray()
    with pytest.raises(UserError, match="allowed: HOST:PORT"):
        RayPool(address, 1).start({"model": "some"})


@pytest.mark.parametrize("reply", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_that_is_not_rays_is_told_within_seconds(reply, monkeypatch):
    """Ray itself would try to join it for minutes."""
    needs.ray()
    monkeypatch.setattr("anchorscope.execute.ray_cluster._PROBE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if reply is not None:

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


def test_a_local_ray_gives_the_same_bits_on_loopback_with_a_token(save_tiny, monkeypatch):
    ray = needs.ray()
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
        assert all(hashlib.sha256(one.body).hexdigest() == one.sha256 == one.received for one in done.values())
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
