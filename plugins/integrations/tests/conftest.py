"""A service of made-up detectors on a tiny model, and a finished run, as users have them."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: no test may use the network

import pytest

from compared_runs import made_run
from running import Running, running
from tiny_models import build_tiny


@pytest.fixture(scope="session")
def service() -> Iterator[Running]:
    with running(build_tiny("llama")) as one:
        yield one


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_run(tmp_path_factory.mktemp("runs") / "mine")
