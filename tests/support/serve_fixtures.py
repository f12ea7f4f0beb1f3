"""One server for all tests that need no limits of their own; and helper modules made importable."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

_HERE = Path(__file__).parent

if TYPE_CHECKING:
    from anchorscope.detectors.detector import Detector
    from anchorscope.models.language_model import LanguageModel
    from running import Running

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no ' ~ m.content) }}{% endif %}"
    "[{{ m.role }}]{{ m.content }}\n{% endfor %}[assistant]"
)


@pytest.fixture(scope="session")
def chat_llama(tiny_llama: LanguageModel) -> LanguageModel:
    """A tiny model with a chat template, which knows no system role."""
    from anchorscope.models.wrapping import wrap

    tokenizer = copy.deepcopy(tiny_llama.tokenizer)
    tokenizer.chat_template = TEMPLATE
    return wrap(tiny_llama.model, tokenizer, name="tiny llama")


@pytest.fixture(scope="session")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the shared server's log goes."""
    return tmp_path_factory.mktemp("log") / "serve.log"


@pytest.fixture(scope="session")
def served(chat_llama: LanguageModel, log_file: Path) -> Iterator[Running]:
    """A server with generous limits."""
    from anchorscope.serve.monitoring import ServiceLog
    from running import running

    with running(chat_llama, log=ServiceLog(log_file)) as service:
        yield service


@pytest.fixture(scope="session")
def offline(chat_llama: LanguageModel) -> dict[str, Detector]:
    """The same detectors in this process."""
    from anchorscope.detectors.detector import Detector
    from running import made_detectors

    return {one.name: Detector(one, chat_llama) for one in made_detectors(chat_llama)}
