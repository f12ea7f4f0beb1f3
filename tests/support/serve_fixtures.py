"""One server for all tests that need no limits of their own; and helper modules made importable."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from anchorscope.detectors.detector import Detector
    from anchorscope.models.language_model import LanguageModel
    from running import Running


@pytest.fixture(scope="session")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "serve.log"


@pytest.fixture(scope="session")
def served(tiny_llama: LanguageModel, log_file: Path) -> Iterator[Running]:
    from anchorscope.serve.monitoring import ServiceLog
    from running import running

    with running(tiny_llama, log=ServiceLog(log_file)) as service:
        yield service


@pytest.fixture(scope="session")
def offline(tiny_llama: LanguageModel) -> dict[str, Detector]:
    """The same detectors in this process."""
    from anchorscope.detectors.detector import Detector
    from running import made_detectors

    return {one.name: Detector(one, tiny_llama) for one in made_detectors(tiny_llama)}
