"""Whole studies at the terminal: run, failed runs among good ones, killed twice and gone on with."""

from pathlib import Path
from typing import Any

import pytest

from anchorscope.errors import Incomplete
from anchorscope.execute.choose import choose
from anchorscope.study import runner
from study_fixtures import WriteStudy, invoke


def test_want_of_workers_is_exit_code_3_and_the_next_model_goes_on(
    write_study: WriteStudy,
    tiny_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, shared = [], []

    def run_recipe(recipe: Any, out: Path, **options: Any) -> None:
        asked.append(out.name)
        shared.append((options["warm"], options["choice"], recipe.threads))
        if out.name == "one-seed0":
            raise Incomplete(
                "2 shards were given out 3 times; the same command goes on."
            )

    monkeypatch.setattr(runner, "run_recipe", run_recipe)
    models = [{"name": name, "model": str(tiny_folder)} for name in ("one", "two")]
    options = ("--workers", "2", "--threads", "1")
    result = invoke(
        "run",
        write_study(models=models, seeds=[0, 1]),
        "--out",
        tmp_path / "out",
        *options,
    )
    assert result.exit_code == 3
    assert asked == ["one-seed0", "two-seed0", "two-seed1"]
    assert result.stderr.endswith(
        "incomplete: one-seed0: 2 shards were given out 3 times; the same command goes on.\n"
    )
    first = shared[0][0]
    assert all(warm is first for warm, *_ in shared), (
        "all runs share the workers of their model"
    )
    assert {tuple(others) for _, *others in shared} == {(choose(workers=2), 1)}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"models": ["no-such-model"]},
            "error: Model 'no-such-model' of the study: Unknown model 'no-such-model'",
        ),
        ({"models": ["shape:llama-3.2-1b"]}, "has random weights and knows nothing"),
        ({"datasets": ["file:nowhere.csv"]}, "nowhere.csv"),
        (
            {"defaults": {"device": "tpu"}},
            "error: Model 'tiny-llama' of the study: Device 'tpu' cannot be used",
        ),
        (
            {"defaults": {"trust_remote_code": True}},
            "add --trust-remote-code if you trust",
        ),
        ({"prompts": ["loud"]}, "Unknown prompt 'loud'"),
    ],
)
def test_a_mistake_anywhere_is_told_before_anything_runs(
    write_study: WriteStudy, tmp_path: Path, changes: dict[str, Any], line: str
) -> None:
    result = invoke("run", write_study(**changes), "--out", tmp_path / "out", "--quiet")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert line in result.stderr
    assert not (tmp_path / "out").exists()


def test_what_is_missing_on_the_command_line_is_one_line(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    written = write_study()
    for words, line in (
        (
            ["status"],
            "error: No study is named; name its file and its folder: STUDY.toml --out DIR",
        ),
        (
            ["run", written],
            "is not the folder of a study; name its file and its folder",
        ),
        (
            ["report", written, "--out", tmp_path / "none"],
            "error: study report is gone: study run ends with the comparison",
        ),
        (["status", tmp_path.parent], "holds no study"),
    ):
        result = invoke(*words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert line in result.stderr
