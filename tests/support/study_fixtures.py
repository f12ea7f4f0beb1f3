"""A tiny model, a question file, and studies of them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import commands
from anchorscope.report import comparison
from small_facts import quick_options, write_questions
from whole_runs import small_model

WriteStudy = Callable[..., Path]


invoke = partial(commands.invoke, "study")


@pytest.fixture(autouse=True)
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take the time, and no test of studies looks at them."""
    monkeypatch.setattr(comparison, "save_all", lambda *_: None)


@pytest.fixture(scope="session")
def tiny_folder(save_tiny: Callable[[str], Path]) -> Path:
    return small_model(save_tiny("llama"))


@pytest.fixture
def write_study(tiny_folder: Path, tmp_path: Path) -> WriteStudy:
    """write_study(models=…, seeds=…, defaults={…}) writes a study of quick runs; None takes a key out."""

    def write(**changes: Any) -> Path:
        quick = quick_options(
            write_questions(tmp_path / "facts.jsonl"), random_cuts=1, directions=2
        )
        datasets = list(quick.pop("datasets"))
        study = {
            "name": "small",
            "models": [str(tiny_folder)],
            "datasets": datasets,
            **changes,
        }
        study["defaults"] = {**quick, **changes.get("defaults", {})}
        place = tmp_path / "study.toml"
        place.write_text(
            tomli_w.dumps(
                {name: value for name, value in study.items() if value is not None}
            )
        )
        return place

    return write
