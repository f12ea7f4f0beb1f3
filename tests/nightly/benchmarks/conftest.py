"""What the benchmarks' tests share: a small workload on a tiny model, and a way to call a script."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repo import ROOT, SOURCES
from workload import Item, Workload, made_items


@pytest.fixture(scope="session")
def workload() -> Workload:
    """Six items of different lengths, so that batches are padded."""
    long, short = (made_items(3, 6, own, 250, seed=own) for own in (17, 13))
    head = long[0].ids[:6]
    items = [
        Item((*head, *item.ids[6:]), item.keys, item.label)
        for pair in zip(long, short, strict=True)
        for item in pair
    ]
    return Workload(tuple(items), new_tokens=4)


@pytest.fixture(autouse=True)
def few_threads() -> None:
    """Tiny products on many threads wait for each other."""
    torch.set_num_threads(1)


def _call(
    script: str, *words: str | Path, path: str = ""
) -> "subprocess.CompletedProcess[str]":
    """A script in a process of its own; `path` comes before our sources."""
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{path}:{SOURCES}",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
        },
    )


@pytest.fixture(scope="session")
def call() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    return _call


@pytest.fixture
def record() -> Callable[..., dict[str, Any]]:
    """What a script reports with `--json`, which is one object and nothing else."""

    def read(script: str, *words: str | Path, path: str = "") -> dict[str, Any]:
        done = _call(script, *words, "--json", path=path)
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    return read
