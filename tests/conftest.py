"""What all tests share: settings, and fixtures with tiny models.

`unit` needs no torch, so nothing here imports it; `support/` holds the helper modules.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["RAY_AUTH_TOKEN"] = (
    "t" * 64
)  # Ray remembers the first one of a process: all tests of it share one
os.environ["HF_HUB_OFFLINE"] = (
    "1"  # read when the hub library is imported, so before it: no test may use the network
)

import pytest
from hypothesis import settings

if "SHAPES_CHECKED" in os.environ:  # before anything imports what is checked
    import shape_checks

    shape_checks.install(
        [f"anchorscope.{room}" for room in os.environ["SHAPES_CHECKED"].split()]
    )

from needs import MISSING, embedded_model
from tiny_models import REPRESENTATIVES, TINY, build_tiny

if TYPE_CHECKING:
    from anchorscope.models.language_model import LanguageModel

gc.disable()  # while tests are collected: nearly all that is made then stays
sys.dont_write_bytecode = False  # each process would compile all files again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No deadline: shared machines are slow at times. The same examples every time: a change is judged by itself, not by
# chance; `--hypothesis-seed=N` with the profile `explore` draws others.
settings.register_profile("default", deadline=None, max_examples=15, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=150, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=500)
settings.load_profile("default")


def pytest_collection_finish() -> None:
    """What exists by then, some million objects, is never collected again: that took half a second each time."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped because something is missing, and how to get it."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped]
    for reason in sorted({reason for reason in reasons if reason.startswith(MISSING)}):
        terminalreporter.write_line(
            f"{reasons.count(reason)} tests were skipped, {reason}", yellow=True
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked `embedded` are skipped without it; every test uses the same kernels, whatever ran before it.

    A product in bfloat16 on a processor that has none switches a library off, and later sums differ in the last digit.
    """
    if item.get_closest_marker("embedded") is not None:
        embedded_model()
    if (torch := sys.modules.get("torch")) is not None:
        torch.backends.mkldnn.set_flags(True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A law over `tiny` runs on the representatives, or where it is marked `every_family` on every family.

    A test that names the families itself (`parametrize("tiny", …, indirect=True)`) runs on those.
    """
    named = any(
        "tiny" in mark.args[0]
        for mark in metafunc.definition.iter_markers("parametrize")
    )
    if "tiny" in metafunc.fixturenames and not named:
        every = any(metafunc.definition.iter_markers("every_family"))
        metafunc.parametrize(
            "tiny",
            sorted(TINY) if every else REPRESENTATIVES,
            indirect=True,
            scope="session",
        )


@pytest.fixture(scope="session", autouse=True)
def _one_line_for_users() -> Iterator[None]:
    """Whatever users are told is one line, in every test."""
    from anchorscope.errors import UserError

    def checked(error: UserError, *told: str) -> None:
        assert not any("\n" in str(one) for one in told), told
        Exception.__init__(error, *told)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(UserError, "__init__", checked)
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> Iterator[None]:
    """A run syncs some 200 files to the disk, one after another; no test cuts the power of this process.

    The call stays, for tests that count calls, and fails for a file that is not open. Programs that
    tests start do sync.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session")
def tiny(request: pytest.FixtureRequest) -> LanguageModel:
    """The representatives in turn, or every family where a test is marked `every_family`; read only."""
    return build_tiny(request.param)


@pytest.fixture(scope="session")
def tiny_llama() -> LanguageModel:
    return build_tiny("llama")


@pytest.fixture(scope="session")
def save_tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a tiny model and its tokenizer, as a user would have it."""

    def save(family: str) -> Path:
        folder = tmp_path_factory.mktemp("models") / f"tiny-{family}"
        lm = build_tiny(family)
        lm.model.save_pretrained(folder)
        lm.tokenizer.save_pretrained(folder)
        return folder

    return save
