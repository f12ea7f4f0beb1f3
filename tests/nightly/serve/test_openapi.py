"""The description of the routes: the file equals the code, and what is described is what happens."""

from dataclasses import replace

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from anchorscope.serve.server import openapi_text
from repo import DOCS
from running import Running

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
"""Without those of accepted data (a question to a detector that is not there is well formed) and of keys."""


def test_the_file_is_what_the_code_says() -> None:
    written = (DOCS / "openapi.json").read_text(encoding="utf-8")
    assert written == openapi_text(), (
        "the routes have changed: python tools/write_openapi.py"
    )


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_every_route_does_what_is_described(
    served: Running, mode: GenerationMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests that fit the description and such that do not: schemathesis makes both from it."""
    monkeypatch.setattr(
        served.service, "limits", replace(served.service.limits, answer_tokens=8)
    )
    described = schemathesis.openapi.from_url(f"{served.address}/openapi.json")
    operations = [found.ok() for found in described.get_all_operations()]
    assert len(operations) >= 8
    for operation in operations:
        if mode == GenerationMode.NEGATIVE and not operation.body:
            continue  # nothing can be wrong with it

        @seed(18)
        @settings(
            max_examples=3,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: schemathesis.Case) -> None:
            case.call_and_validate(checks=CHECKS, timeout=30)

        check()


def test_nothing_is_left_over(served: Running) -> None:
    assert served.service.queue.tokens == 0
    assert served.service.state == "ready"
