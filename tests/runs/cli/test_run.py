"""`anchorscope run` from outside: a mistake is one line, exit code 2 and leaves nothing behind; JSON is one object."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from anchorscope import pipeline
from commands import invoke
from small_facts import write_questions
from unprinted import unprinted
from whole_runs import small_model

QUICK = [
    *("--bootstrap", "100", "--device", "cpu", "--dtype", "float32"),
    *("--folds", "2", "--random-cuts", "1", "--directions", "2"),
]


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's own models, nor writes into the folder it was started in."""
    monkeypatch.setenv("ANCHORSCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def model(save_tiny: Callable[[str], Path]) -> Path:
    return small_model(save_tiny("llama"))


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("questions") / "facts.jsonl")


run = partial(invoke, "run")


def mistake(*arguments: object) -> str:
    result = run(*arguments, "--quiet")
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("error: ")


@pytest.fixture(scope="module")
def finished(
    model: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("runs") / "run"
    with unprinted("delta_p"):
        return out, run(
            "--model",
            model,
            "--dataset",
            f"file:{questions}",
            "--out",
            out,
            *QUICK,
            "--json",
        )


def test_json_is_one_object_on_standard_output(finished: tuple[Path, Result]) -> None:
    out, result = finished
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    record = json.loads(line)
    assert record["out"] == str(out)
    assert Path(record["chart"]).is_file()
    assert Path(record["report"]).is_file()
    assert record["counts"][0]["used"] == 80
    assert (out / "manifest.json").is_file()
    assert record["answer"] == json.loads(
        (out / "answer.json").read_text(encoding="utf-8")
    )
    assert record["answer"]["trust"]["verdict"] in ("yes", "partly", "no")
    known = {
        one["id"]: one
        for one in json.loads((out / "observations.json").read_text(encoding="utf-8"))
    }
    claims = {one["claim"] for one in record["observations"]}
    assert "adds_to_confidence" in claims
    assert "needs_both" not in claims, "80 answers are too few"
    assert all(
        one == known[one["id"]] and not one["of_groups"]
        for one in record["observations"]
    )
    assert record["seconds"] > 0


def test_quiet_json_is_the_object_and_nothing_is_done_again(
    finished: tuple[Path, Result], model: Path, questions: Path
) -> None:
    out, first = finished
    before = (out / "curves.csv").stat().st_mtime_ns
    again = run(
        "--model",
        model,
        "--dataset",
        f"file:{questions}",
        "--out",
        out,
        *QUICK,
        "--quiet",
        "--json",
    )
    assert (again.exit_code, again.stderr) == (0, "")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert (out / "curves.csv").stat().st_mtime_ns == before


def test_the_recipe_of_a_run_repeats_it(
    finished: tuple[Path, Result], tmp_path: Path
) -> None:
    out, _ = finished
    result = run(
        out / "recipe.toml", "--out", tmp_path / "again", "--quiet", "--no-report"
    )
    assert (result.exit_code, result.output) == (0, "")
    for name in (
        "curves.csv",
        "summary.csv",
        "observations.json",
        "items.parquet",
        "probes.safetensors",
    ):
        assert (tmp_path / "again" / name).read_bytes() == (out / name).read_bytes(), (
            name
        )
    same = (out / "recipe.toml").read_text().replace("report = true", "report = false")
    assert (tmp_path / "again" / "recipe.toml").read_text() == same


def test_options_win_over_the_recipe_file(
    finished: tuple[Path, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = finished
    seen = []

    def listen(recipe: object, folder: Path, **_: object) -> None:
        seen.append((recipe, folder))
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run_recipe", listen)
    monkeypatch.setattr(
        "anchorscope.cli.run.check_inputs", lambda *_: None
    )  # these files are not there
    options = (
        "--site",
        "residual",
        "--dataset",
        "atlas,popqa=x.csv",
        "--dataset",
        "nq=y.csv",
        "--seed",
        "7",
    )
    result = run(out / "recipe.toml", *options)
    assert result.exit_code == 130
    assert (
        result.stderr.splitlines()[-1]
        == "stopped; the same command goes on where it stopped"
    )
    ((recipe, folder),) = seen
    assert (recipe.site, recipe.seed, recipe.bootstrap, recipe.dtype) == (
        "residual",
        7,
        100,
        "float32",
    )
    assert recipe.datasets == ("atlas", "popqa=x.csv", "nq=y.csv")
    assert folder == Path("runs") / f"{Path(recipe.model).name}-atlas-popqa-nq"


FILES = {
    "broken.toml": "model = ",
    "trusting.toml": "trust_remote_code = true",
    "bad.jsonl": '{"question": "Who?", "answers": ["I"]}\n{"question"\n',
    "other.csv": "question,reply\nWho?,I\n",
}
MISTAKES = {
    "--dataset popqa": (
        "Dataset 'popqa' could not be loaded from the hub",
        "popqa=FILE",
    ),
    "--sit mlp": ("No such option: --sit", "Did you mean '--site'?"),
    "--limit many": ("--limit", "valid integer"),
    "broken.toml": ("cannot be read", "must be a TOML file"),
    "trusting.toml": (
        "lets code run that comes with the model",
        "add --trust-remote-code",
    ),
    "--model smollm2-135m": (
        "not installed yet",
        "anchorscope models --install smollm2-135m",
    ),
    "--model bare": ("tokenizer",),
    "--dataset none.csv": ("There is no file",),
    "--dataset bad.jsonl": ("line 2", "broken JSON", "--on-bad-row skip"),
    "--dataset other.csv": (
        "columns found: ['question', 'reply']",
        "--columns question=prompt",
    ),
    "--out bad.jsonl/run": ("--out", "bad.jsonl/run"),
}


def test_a_mistake_is_one_line_and_leaves_nothing(
    model: Path, questions: Path, tmp_path: Path
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    shutil.copytree(
        model,
        tmp_path / "bare",
        ignore=shutil.ignore_patterns("tokenizer*", "special*"),
    )
    before = {*tmp_path.iterdir(), tmp_path / "cache"}
    for wrong, parts in MISTAKES.items():
        given = {"--model": model, "--dataset": questions, "--out": "run"}
        others = [
            option for pair in given.items() if pair[0] not in wrong for option in pair
        ]
        message = mistake(*wrong.split(), *others)
        assert all(part in message for part in parts), message
        assert before >= {*tmp_path.iterdir()}, wrong
