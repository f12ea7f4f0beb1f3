"""Scores asked of a running service, as the scorer of inspect_ai asks for them."""

import asyncio
import importlib
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from anchorscope.errors import UserError
from running import Running

PAIR = ("Who wrote Dracula?", "Bram Stoker")


def asked(question: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser of other tests may have an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(question)).result()


@pytest.fixture(scope="module")
def ask_score() -> Iterator[Any]:
    """What asks the service needs nothing of inspect_ai, which is rarely installed here."""
    names = ("inspect_ai", "inspect_ai.scorer", "inspect_ai.solver")
    with patch.dict(sys.modules, {name: MagicMock() for name in names}):
        yield importlib.import_module("anchorscope.adapters.inspect_ai").ask_score


def test_the_score_is_the_services_own(service: Running, ask_score: Any) -> None:
    told = service.score(PAIR).json()
    found = asked(ask_score(*PAIR, service.address))
    wanted = {
        **told["items"][0],
        "detector": told["detector"],
        "sha256": told["sha256"],
    }
    assert found["log_odds"] == pytest.approx(wanted["log_odds"], abs=1e-5)
    assert {
        name: found[name] for name in ("verdict", "detector", "sha256", "warnings")
    }.items() <= wanted.items()
    other = asked(ask_score(*PAIR, service.address + "/", detector="auto"))
    assert other["sha256"] == "b" * 64


def test_faults_are_one_line(service: Running, ask_score: Any) -> None:
    for url, detector, wanted in (
        (service.address, "none", r"refuses to score \(404\)"),
        ("http://127.0.0.1:9", None, "cannot be reached"),
        (f"{service.address}/v1/models#", None, r"(refuses to score|no service)"),
    ):
        with pytest.raises(UserError, match=wanted):
            asked(ask_score(*PAIR, url, detector=detector))
