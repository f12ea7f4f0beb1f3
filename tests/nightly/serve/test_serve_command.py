"""`anchorscope serve` at the terminal: mistakes in one line, ready in one line, and a calm end under load."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from anchorscope.cli import detect as serve_command
from anchorscope.detectors.bundle import TrainedDetector, read_bundle, write_bundle
from anchorscope.models.loading import load as load_model
from anchorscope.serve.processes import address_of, listen
from anchorscope.serve.service import DEMO
from commands import invoke
from detector_cases import PAIRS, trained_on
from repo import ROOT


@pytest.fixture(scope="module")
def bundle(
    save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A detector of a model that lies in a folder."""
    place = tmp_path_factory.mktemp("bundles") / "probe"
    write_bundle(place, trained_on(load_model(str(save_tiny("llama")))))
    return place


def refused(*arguments: object) -> str:
    words = ["serve", *map(str, arguments)]
    # a browser of other tests may have an event loop in this thread
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: invoke(*words)).result()
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


def changed(bundle: Path, place: Path, **setting: Any) -> Path:
    """The same detector for another model."""
    trained: TrainedDetector = read_bundle(bundle)
    write_bundle(
        place,
        replace(trained, setting=replace(trained.setting, **setting), sha256=None),
    )
    return place


def test_mistakes_are_one_line(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Give the bundles to serve, or --demo" in refused()
    assert "Give the bundles to serve, or --demo" in refused(bundle, "--demo")
    assert "there are no keys; add --keys-file" in refused(bundle, "--host", "0.0.0.0")
    assert "there is no such folder" in refused(tmp_path / "none")
    assert "Device 'tpu' cannot be used" in refused(
        bundle, "--device", "tpu", "--port", 0, "--quiet"
    )
    assert "Unknown dtype 'int1'" in refused(
        bundle, "--dtype", "int1", "--port", 0, "--quiet"
    )
    assert "is given twice" in refused(bundle, bundle)
    other = changed(bundle, tmp_path / "other", fingerprint="another", model="another")
    assert "The bundles are of different models" in refused(bundle, other)
    assert "does not fit" in refused(
        other, "--port", 0, "--quiet"
    )  # known only once the model is there
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for file in bundle.iterdir():
        (damaged / file.name).write_bytes(file.read_bytes()[:-3])
    assert "cannot be used" in refused(damaged)
    with listen("127.0.0.1", 0) as taken:
        assert "Cannot listen on" in refused(
            bundle, "--port", address_of(taken).rpartition(":")[2]
        )
    monkeypatch.setattr(serve_command, "NEEDED", ("fastapi", "no_such_library"))
    assert 'pip install "anchorscope[serve]"' in refused(bundle)


def test_it_ends_calmly_under_load(bundle: Path, tmp_path: Path) -> None:
    options = [
        "--port",
        "0",
        "--json",
        "--device",
        "cpu",
        "--log-file",
        str(tmp_path / "log"),
    ]
    command = [sys.executable, "-m", "anchorscope", "serve", str(bundle), *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as done:
        assert done.stdout is not None
        told = json.loads(done.stdout.readline())
        assert told["detectors"] == ["probe"]
        items = [
            {"question": question, "answer": answer} for question, answer in PAIRS
        ] * 20
        statuses: list[int] = []
        began = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=told["url"], timeout=60) as client:
                assert client.get("/readyz").status_code == 200
                began.set()
                statuses.append(
                    client.post("/v1/score", json={"items": items}).status_code
                )

        asking = threading.Thread(target=ask)
        asking.start()
        assert began.wait(30)
        until = time.monotonic() + 30
        while "GET /readyz" not in (tmp_path / "log").read_text():
            assert time.monotonic() < until
            time.sleep(0.01)
        done.send_signal(signal.SIGTERM)
        asking.join(60)
        assert done.wait(60) == 0
        assert done.stderr is not None
        assert done.stderr.read() == ""
    assert statuses in ([200], [503])  # finished, or not yet taken in: never torn


@contextmanager
def two_processes(
    *options: object,
) -> Iterator[tuple[subprocess.Popen[str], str, list[int]]]:
    """A service of two processes: the parent, the address once both are ready, and their numbers; all end."""
    command = [
        sys.executable,
        "-m",
        "anchorscope",
        "serve",
        "--processes",
        "2",
        "--port",
        "0",
        "--json",
        *options,
    ]
    pipes: dict[str, Any] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen([*map(str, command)], **pipes) as parent:
        try:
            assert parent.stdout is not None
            url = json.loads(parent.stdout.readline())["url"]
            children = children_of(parent.pid)
            assert len(children) == 2
            yield parent, url, children
        finally:
            parent.terminate()
    until = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_processes_share_a_port_and_their_numbers(bundle: Path, tmp_path: Path) -> None:
    with two_processes(bundle, "--log-file", tmp_path / "log") as (parent, url, _):
        about = [httpx.get(f"{url}/v1/models").json()["data"][0] for _ in range(40)]
        assert (
            len({model["created"] for model in about}) == 2
        )  # they started one after the other
        numbers = httpx.get(f"{url}/metrics").text.splitlines()
        assert (
            'anchorscope_requests_total{route="/v1/models",status="200"} 40.0'
            in numbers
        )
        assert "anchorscope_ready 1.0" in numbers
        assert "Cannot listen on" in refused(
            bundle, "--processes", 2, "--port", url.rpartition(":")[2]
        )
        parent.terminate()
        assert parent.wait(60) == 0
        assert parent.stderr is not None
        assert parent.stderr.read() == ""
    assert (tmp_path / "log").read_text().count("GET /v1/models 200") == 40


def children_of(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [*map(int, listed.split())]


def test_a_process_that_dies_while_another_starts_is_noticed(bundle: Path) -> None:
    """The other one is stopped, so that it will never be ready."""
    command = [sys.executable, "-m", "anchorscope", "serve", str(bundle), "--json"]
    command += ["--processes", "2", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as parent:
        until = time.monotonic() + 120
        while len(children := children_of(parent.pid)) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(children[1], signal.SIGSTOP)
        os.kill(children[0], signal.SIGKILL)
        began = time.monotonic()
        assert parent.wait(60) == 3
        assert time.monotonic() - began < 5
        assert parent.stderr is not None
        assert "ended (signal 9), and the others with it" in parent.stderr.read()
    assert not Path(f"/proc/{children[1]}").exists()


def test_a_process_that_dies_ends_the_others(bundle: Path, tmp_path: Path) -> None:
    with two_processes(bundle) as (parent, _, children):
        os.kill(children[0], signal.SIGSTOP)  # as if its requests took for ever
        os.kill(children[1], signal.SIGKILL)
        began = time.monotonic()
        assert parent.wait(60) == 3
        assert time.monotonic() - began < 5
        assert parent.stderr is not None
        assert parent.stderr.read().startswith(
            "incomplete: A process of the service ended (signal 9)"
        )
    with two_processes(bundle) as (parent, _, _):
        parent.kill()  # the children end with it
    other = changed(bundle, tmp_path / "other", fingerprint="another", model="another")
    command = [
        sys.executable,
        "-m",
        "anchorscope",
        "serve",
        str(other),
        "--processes",
        "2",
        "--port",
        "0",
        "--json",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "does not fit" in done.stderr


def test_the_demos_detector_is_whole_and_of_the_embedded_model() -> None:
    trained = read_bundle(DEMO)
    assert trained.setting.source == "smollm2-135m"
    assert trained.card.calibration
    quality = {(row["metric"], row["prevalence"]): row for row in trained.card.quality}
    assert (
        f"AUROC {quality['auroc', 'balanced']['value']:.3f}"
        in (ROOT / "docs" / "serving.md").read_text()
    )


@pytest.mark.embedded
def test_the_demo_knows_paris() -> None:
    command = [
        sys.executable,
        "-m",
        "anchorscope",
        "serve",
        "--demo",
        "--port",
        "0",
        "--json",
        "--device",
        "cpu",
    ]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as done:
        assert done.stdout is not None
        told = json.loads(done.stdout.readline())
        question = "What is the capital of France?"
        with httpx.Client(base_url=told["url"], timeout=120) as client:
            items = [
                {"question": question, "answer": answer} for answer in ("Paris", "Lyon")
            ]
            paris, lyon = client.post("/v1/score", json={"items": items}).json()[
                "items"
            ]
            asked = {
                "model": "default",
                "messages": [{"role": "user", "content": question}],
                "truth": True,
            }
            (choice,) = client.post("/v1/chat/completions", json=asked).json()[
                "choices"
            ]
        done.send_signal(signal.SIGTERM)
        assert done.wait(60) == 0
    assert paris["truth_probability"] > 0.5 > lyon["truth_probability"]
    assert choice["message"]["content"] == "Paris"
    assert choice["truth"]["log_odds"] == pytest.approx(paris["log_odds"], abs=1e-3)
