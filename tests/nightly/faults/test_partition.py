"""A partition: one of two machines is cut off the network inside a shard. The other machine is a network namespace."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import needs
from repo import SUPPORT

HERE = SUPPORT
NAMESPACE, OUTSIDE, INSIDE = (
    f"anchor{os.getpid()}",
    f"ao{os.getpid()}"[:15],
    f"ai{os.getpid()}"[:15],
)
NETWORK = "10.213.7"
RAY = [sys.executable, "-c", "from ray.scripts.scripts import main; main()"]


@pytest.fixture(scope="module", autouse=True)
def _ray() -> None:
    needs.ray()


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def network() -> Iterator[None]:
    """A namespace with its own network, joined to this one by a cable."""
    if shutil.which("ip") is None:
        pytest.skip("no command `ip` here")
    try:
        ip("netns", "add", NAMESPACE)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces are not allowed here: {error.stderr.strip()}")
    try:
        ip(
            "link",
            "add",
            OUTSIDE,
            "type",
            "veth",
            "peer",
            "name",
            INSIDE,
            "netns",
            NAMESPACE,
        )
        ip("addr", "add", f"{NETWORK}.1/24", "dev", OUTSIDE)
        ip("link", "set", OUTSIDE, "up")
        ip("-n", NAMESPACE, "addr", "add", f"{NETWORK}.2/24", "dev", INSIDE)
        ip("-n", NAMESPACE, "link", "set", INSIDE, "up")
        ip("-n", NAMESPACE, "link", "set", "lo", "up")
        yield
    finally:
        subprocess.run(["ip", "link", "del", OUTSIDE], check=False, capture_output=True)
        subprocess.run(
            ["ip", "netns", "del", NAMESPACE], check=False, capture_output=True
        )


@contextlib.contextmanager
def node(
    words: list[str], environment: dict[str, str], log: Path, inside: bool
) -> Iterator[None]:
    """A Ray node, in a session of its own, all of whose processes end with it."""
    before = ["ip", "netns", "exec", NAMESPACE] if inside else []
    with log.open("wb") as out:
        started = subprocess.Popen(
            [
                *before,
                *RAY,
                "start",
                *words,
                "--num-cpus=2",
                "--disable-usage-stats",
                "--block",
            ],
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            # asked to end, it would look for the other machine first
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()
        if inside:
            left = subprocess.run(
                ["ip", "netns", "pids", NAMESPACE],
                capture_output=True,
                text=True,
                check=False,
            )
            for pid in left.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


@pytest.mark.usefixtures("network")
def test_the_other_machine_is_cut_off_inside_a_pass(tmp_path, save_tiny):
    with socket.socket() as free:
        free.bind((f"{NETWORK}.1", 0))
        port = free.getsockname()[1]
    address, model = f"{NETWORK}.1:{port}", save_tiny("llama")
    environment = {
        **{
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RAY_")
        },  # other tests' settings
        "PYTHONPATH": os.pathsep.join(
            [str(HERE.parents[1] / "src"), str(HERE), str(HERE.parent)]
        ),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "t" * 64,
        "OMP_NUM_THREADS": "1",
    }
    head = [
        "--head",
        f"--node-ip-address={NETWORK}.1",
        f"--port={port}",
        "--include-dashboard=false",
    ]
    other = [f"--address={address}", f"--node-ip-address={NETWORK}.2"]
    with node(head, environment, tmp_path / "head", inside=False):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((f"{NETWORK}.1", port), 1),
            ):
                break
            time.sleep(0.2)
        with node(other, environment, tmp_path / "other", inside=True):
            driver = [sys.executable, str(HERE / "partition_driver.py"), str(model)]
            done = subprocess.run(
                [*driver, address, OUTSIDE],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=500,
            )
    assert done.returncode == 0, (
        done.stderr[-3000:] + (tmp_path / "other").read_text()[-2000:]
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["nodes"] == [f"{NETWORK}.1", f"{NETWORK}.2"]
    assert found["before"], "with both machines"
    assert found["after"], "with the one that is left"
    assert found["took"] < 200
