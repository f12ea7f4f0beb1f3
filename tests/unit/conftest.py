"""Unit tests need no torch: a test whose code imports it belongs in `laws` or `runs`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def _no_torch_at_collection(request: pytest.FixtureRequest) -> None:
    """Checked where nothing but unit tests run, as in `make check`: other tests import it."""
    if all(item.path.is_relative_to(_HERE) for item in request.session.items):
        assert "torch" not in sys.modules, (
            "a file of tests/unit imports torch; move it to laws or runs"
        )


@pytest.fixture(autouse=True)
def _no_torch() -> Iterator[None]:
    before = "torch" in sys.modules
    yield
    assert before or "torch" not in sys.modules, (
        "this test imported torch; move it to laws or runs"
    )
