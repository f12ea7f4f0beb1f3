"""What the scorer asks of a running service, and what users are told when it fails."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from anchorscope import UserError
from anchorscope_integrations.inspect_ai import ask_score
from running import Running

PAIR = ("Who wrote Dracula?", "Bram Stoker")


def asked(question: Coroutine[Any, Any, Any]) -> Any:
    """In a thread of its own: a browser of other tests may have an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(question)).result()


def test_the_score_is_the_services_own(service: Running) -> None:
    told = service.score(PAIR).json()
    found = asked(ask_score(*PAIR, url=service.address))
    wanted = told["items"][0]
    assert found["log_odds"] == pytest.approx(wanted["log_odds"], abs=1e-5)
    assert found["verdict"] == wanted["verdict"]
    assert found["warnings"] == wanted["warnings"]
    assert found["detector"] == told["detector"]
    assert found["sha256"] == told["sha256"]
    other = asked(ask_score(*PAIR, url=service.address + "/", detector="auto"))
    assert other["sha256"] == "b" * 64


def test_faults_are_one_line(service: Running) -> None:
    for url, detector, wanted in (
        (service.address, "none", r"refuses to score \(404\)"),
        ("http://127.0.0.1:9", None, "cannot be reached"),
        (f"{service.address}/v1/models#", None, r"(refuses to score|no service)"),
    ):
        with pytest.raises(UserError, match=wanted) as refused:
            asked(ask_score(*PAIR, url=url, detector=detector))
        assert "\n" not in str(refused.value)
