"""Wherever a bundle is asked for, a run folder or its comparison of detectors stands for the recommended one."""

import json
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts.sealed_folder import sealed
from anchorscope.detectors.bundle_files import recommended_bundle
from anchorscope.errors import UserError
from anchorscope.files import write_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run" / "detectors").mkdir(parents=True)
    return tmp_path / "run"


SAVED = {"path": "bundles/x", "auroc": {}, "thresholds": [], "passes": 0}


def record(run: Path, recommended: str | None, *saved: str) -> None:
    content = {"recommended": recommended, "saved": dict.fromkeys(saved, SAVED)}
    write_json(run / "detectors" / "detection.json", sealed(content))


def test_a_run_and_its_comparison_stand_for_the_recommended_detector(run: Path) -> None:
    record(run, "auto", "auto", "confidence")
    bundle = run / "detectors" / "bundles" / "auto"
    assert recommended_bundle(run) == bundle
    assert recommended_bundle(run / "detectors") == bundle
    assert recommended_bundle(bundle) == bundle


def test_nothing_recommended_is_one_line_with_the_bundles_that_are_there(
    run: Path,
) -> None:
    record(run, None, "auto")
    with pytest.raises(UserError, match=r"recommends no detector .*bundles/auto"):
        recommended_bundle(run)


OTHERS: tuple[dict[str, Any], ...] = (
    {"saved": [7], "recommended": 7},
    {"saved": [7, 8], "recommended": None},
    {"saved": {"auto": {}}, "recommended": "auto"},
    *(
        {"saved": {name: SAVED}, "recommended": name}
        for name in ("a\0b", "../../elsewhere", "/elsewhere", "", "x" * 300)
    ),
)
"""What a list from elsewhere may say, with a seal that fits."""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"saved": 1, "recommended": "auto"}',
        '{"saved": {"\\ud800": {}}, "recommended": "\\ud800"}',
        *(json.dumps(sealed(other)) for other in OTHERS),
    ],
)
def test_what_is_no_comparison_is_taken_for_the_bundle_itself(
    run: Path, text: str
) -> None:
    (run / "detectors" / "detection.json").write_text(text)
    assert recommended_bundle(run) == run
