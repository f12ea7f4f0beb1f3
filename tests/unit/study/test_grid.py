"""What a study's file means: which runs, under which names, and every mistake in one line before anything runs."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from anchorscope.errors import UserError
from anchorscope.study.grid import make_study, read_study


def study(**found: Any) -> Any:
    return make_study(
        {"models": ["owner/Small", "owner/Large"], "datasets": ["popqa"], **found},
        "file",
    )


def test_every_model_prompt_and_seed_is_a_run_and_one_model_comes_after_the_other() -> (
    None
):
    made = study(
        prompts=["few-shot", "zero-shot"],
        seeds=[0, 7],
        datasets=["popqa", "nq"],
        defaults={"limit": 90},
    )
    names = [
        f"{model}-{prompt}-seed{seed}"
        for model in ("small", "large")
        for prompt in ("few-shot", "zero-shot")
        for seed in (0, 7)
    ]
    assert [run.name for run in made.runs] == names
    assert made.models == ("small", "large")
    last = made.runs[-1].recipe
    assert (last.model, last.prompt, last.seed, last.limit) == (
        "owner/Large",
        "zero-shot",
        7,
        90,
    )
    assert {run.recipe.datasets for run in made.runs} == {("popqa", "nq")}
    assert made.name == "file"


def test_a_models_own_table_wins_and_pins_its_prompt() -> None:
    own = {
        "name": "big",
        "model": "owner/Large",
        "dtype": "bfloat16",
        "prompt": "chat",
        "limit": 5,
    }
    made = study(
        models=["owner/Small", own],
        prompts=["few-shot", "zero-shot"],
        defaults={"limit": 90},
    )
    assert [run.name for run in made.runs] == [
        "small-few-shot",
        "small-zero-shot",
        "big-chat",
    ]
    assert (made.runs[-1].recipe.dtype, made.runs[-1].recipe.limit) == ("bfloat16", 5)
    assert made.runs[0].recipe.dtype == "auto"


def test_the_copy_is_the_same_study_from_every_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "model").mkdir()
    (tmp_path / "here" / "facts.csv").write_text("question,answers\n")
    monkeypatch.chdir(tmp_path / "here")
    made = study(
        models=["model", "owner/Large"], datasets=["file:facts.csv"], seeds=[1]
    )
    monkeypatch.chdir(tmp_path)
    again = make_study(tomllib.loads(made.to_toml()), "other")
    assert [(run.name, run.key) for run in again.runs] == [
        (run.name, run.key) for run in made.runs
    ]
    assert again.runs[0].recipe.datasets == (f"file:{tmp_path / 'here' / 'facts.csv'}",)
    assert again.name == made.name


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"models": ["a/Same", "b/same"]},
            "Two models of the study are called 'same': 'a/Same' and 'b/same'. Give",
        ),
        (
            {"models": ["a/b", "a/b"]},
            "The study's 'models' is ['a/b', 'a/b']; it must be a list of models, none twice",
        ),
        (
            {"models": []},
            "The study's 'models' is []; it must be a list of models, none twice; each is a name, or",
        ),
        ({"models": "a/b"}, "The study's 'models' is 'a/b'; it must be a list"),
        ({"models": [3]}, "The study's 'models' is [3]; it must be a list"),
        (
            {"models": [{"name": "x"}]},
            "The study has the model {'name': 'x'}; a model is",
        ),
        (
            {"models": [{"name": 3, "model": "a/b"}]},
            "The study has the model {'name': 3, 'model': 'a/b'}; a model is",
        ),
        ({"models": ["..."]}, "The study has the model '...'; a model is"),
        (
            {"models": [{"model": "a/b", "dtyp": "float32"}]},
            "Model 'b' of the study: Unknown option 'dtyp'; allowed",
        ),
        ({"datasets": None}, "The study's 'datasets' is None; it must be a list"),
        (
            {"datasets": ["popqu"]},
            "Model 'small' of the study: Unknown dataset 'popqu'; allowed",
        ),
        (
            {"prompts": ["shouted"]},
            "Model 'small' of the study: Unknown prompt 'shouted'; allowed: chat",
        ),
        (
            {"seeds": [0, 0]},
            "The study's 'seeds' is [0, 0]; it must be a list of whole numbers, none twice.",
        ),
        (
            {"seeds": [True]},
            "The study's 'seeds' is [True]; it must be a list of whole numbers",
        ),
        ({"seeds": [-1]}, "Model 'small' of the study: Option 'seed' is -1"),
        (
            {"seeds": [0], "defaults": {"seed": 1}},
            "The study has 'seed' under [defaults]; list it above",
        ),
        (
            {"defaults": {"limt": 3}},
            "Model 'small' of the study: Unknown option 'limt'; allowed",
        ),
        (
            {"defaults": 3},
            "The study's 'defaults' is 3; it must be a table of options, [defaults].",
        ),
        ({"model": "a/b"}, "Unknown key of a study 'model'; allowed: datasets"),
        ({"limit": 3}, "Options of runs stand under [defaults]: limit = …"),
        ({"name": " "}, "The study's 'name' is ' '; it must be a few words."),
    ],
)
def test_a_mistake_is_one_line(changes: dict[str, Any], line: str) -> None:
    given = {"models": ["owner/Small", "owner/Large"], "datasets": ["popqa"], **changes}
    with pytest.raises(UserError) as told:
        make_study(
            {name: value for name, value in given.items() if value is not None}, "file"
        )
    assert line in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_no_study_is_told(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("models = [")
    told_of = {
        "none.toml": "does not exist; give a .toml file",
        "bad.toml": "it must be a TOML file",
        ".": "is a folder",
    }
    for path, line in ((tmp_path / name, line) for name, line in told_of.items()):
        with pytest.raises(UserError, match=line) as told:
            read_study(path)
        assert str(told.value).startswith("Study '")
