"""`anchorscope fit`: from questions to a detector in one command; `detect` computes what a run did not keep."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

import anchorscope
from anchorscope.detecting import detect as story
from anchorscope.detecting.detect import thresholds_at
from anchorscope.detecting.inputs import ONE_PASS, missing_keep
from anchorscope.finished import open_finished
from anchorscope.pipeline import run_recipe
from anchorscope.report import detection
from commands import invoke
from small_facts import rows, write_questions
from whole_runs import watching

FAST = (
    "--device",
    "cpu",
    "--prompt",
    "zero-shot",
    "--seeds",
    "1",
    "--tosses",
    "2",
    "--max-new-tokens",
    "4",
)


@pytest.fixture(autouse=True)
def unprinted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are left out: they take the time."""
    monkeypatch.setattr(detection, "save_all", lambda *_: None)


@pytest.fixture(scope="module")
def model(save_tiny: Callable[[str], Path]) -> Path:
    return save_tiny("llama")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Supplied answers with labels."""
    place = tmp_path_factory.mktemp("questions") / "facts.jsonl"
    return write_questions(place)


@pytest.fixture(scope="module")
def bare(model: Path, answers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run that kept nothing."""
    options = {
        "prompt": "zero-shot",
        "device": "cpu",
        "max_new_tokens": 4,
        "report": False,
        "bootstrap": 100,
    }
    out = tmp_path_factory.mktemp("bare") / "run"
    return anchorscope.run(
        str(model), [str(answers)], out=out, progress=None, random_cuts=1, **options
    ).path


def test_one_command_gives_a_card_and_a_bundle_and_the_second_time_nothing_is_done(
    model: Path, answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    whole = ("fit", "--model", model, "--dataset", answers, "--out", out, *FAST)
    result = invoke(*whole)
    assert result.exit_code == 0, result.stderr
    assert "AUROC (95% interval, each alone)" in result.stdout
    made = story.Detection(out / "detectors")
    assert set(made.detectors["detector"]) == set(ONE_PASS)
    for name, saved in made.manifest["saved"].items():
        auroc = made.detectors.filter(
            detector=name, metric="auroc", prevalence="balanced"
        )["value"].item()
        assert f"{auroc:.3f} [" in result.stdout
        assert saved["auroc"]["facts"][0] == auroc
        assert (made.path / saved["path"] / "detector.json").is_file()
    if made.recommended:  # permuted labels may speak against any on so few answers
        assert (
            f"score with it: anchorscope score --detector {made.recommended}"
            in result.stderr
        )
    scored = invoke(
        "score",
        "--detector",
        out / "detectors" / "bundles" / "confidence",
        "What is it?",
        "--json",
    )
    assert scored.exit_code == 0, scored.stderr
    monkeypatch.setattr(story, "read_runs", None)
    again = invoke(*whole, "--json")
    assert again.exit_code == 0, again.stderr
    assert json.loads(again.stdout)["inputs_sha256"] == made.manifest["inputs_sha256"]


def test_fit_makes_only_what_detectors_read_with_the_same_numbers_and_run_completes_it(
    model: Path, answers: Path, bare: Path, tmp_path: Path
) -> None:
    out, chosen = (
        tmp_path / "run",
        ("--detectors", "confidence,probe", "--bundles", "probe"),
    )
    result = invoke(
        "fit", "--model", model, "--dataset", answers, "--out", out, *chosen, *FAST
    )
    assert result.exit_code == 0, result.stderr
    made = [
        step["step"]
        for step in open_finished(out).manifest["steps"]
        if step["step"].startswith("facts/")
    ]
    names = (
        "questions",
        "answers",
        "labels",
        "tokens",
        "clean-states",
        "log-probs",
        "attention-mass",
        "before-answer",
    )
    assert made == [f"facts/{name}" for name in names]
    states, detectors = (
        out / "states" / "facts" / "clean.safetensors",
        out / "detectors" / "detectors.csv",
    )
    fitted_states, numbers = states.read_bytes(), detectors.read_text()
    for arguments in (
        ("show", out),
        ("compare", out, bare, "--out", tmp_path / "both"),
    ):
        refused = invoke(*arguments)
        assert refused.exit_code == 2
        assert (
            f"holds only what detectors read. Complete it with: anchorscope run {out}/recipe.toml"
            in refused.stderr
        )
    assert invoke("verify", out).exit_code == 0

    with watching() as steps:
        completed = invoke(
            "run",
            out / "recipe.toml",
            "--no-report",
            "--bootstrap",
            "100",
            "--random-cuts",
            "1",
            "--out",
            out,
        )
    assert completed.exit_code == 0, completed.stderr
    assert set(made) & set(steps) == {
        "facts/clean-states",
        "facts/before-answer",
    }  # read from files
    assert "clean states  0/" in result.stderr
    passes = [line for line in completed.stderr.splitlines() if "  0/" in line]
    assert passes
    assert not any("clean states" in line for line in passes if "score" not in line)
    assert (out / "summary.csv").read_bytes() == (bare / "summary.csv").read_bytes()
    assert states.read_bytes() == fitted_states
    again = invoke(
        "detect",
        out,
        *chosen,
        "--seeds",
        "1",
        "--tosses",
        "2",
        "--device",
        "cpu",
        "--fresh",
    )
    assert again.exit_code == 0, again.stderr
    assert detectors.read_text() == numbers
    run_recipe(open_finished(out).recipe, out, for_detectors=True)
    # a run that has all its results keeps them
    assert not open_finished(out).is_for_detectors


def test_detect_computes_only_what_is_missing_and_says_so_before(
    bare: Path, tmp_path: Path
) -> None:
    run = anchorscope.open_run(shutil.copytree(bare, tmp_path / "run"))
    wanted = ("--seeds", "1", "--tosses", "0", "--resamples", "100", "--device", "cpu")
    few = invoke(
        "detect",
        run.path,
        "--detectors",
        "confidence,probe",
        "--bundles",
        "probe",
        *wanted,
    )
    assert few.exit_code == 0, few.stderr
    assert (
        "detectors need states, which the run did not keep: they are computed first"
        in few.stderr
    )
    cost = r"^cost: .* min here, fits of detectors included, .* GB of disk$"
    assert re.search(cost, few.stderr, re.MULTILINE)
    kept = open_finished(run.path)
    assert kept.recipe.keep == ("states",)
    assert (missing_keep(kept, ("probe",)), missing_keep(kept, ("mop", "p-true"))) == (
        (),
        ("states-cut", "detection"),
    )
    more = invoke("detect", run.path, "--detectors", "probe,mop,p-true", *wanted)
    assert more.exit_code == 0, more.stderr
    assert (
        "detectors need states-cut and detection, which the run did not keep"
        in more.stderr
    )
    made = story.Detection(run.path / "detectors")
    assert set(made.detectors["detector"]) == {"probe", "mop", "p-true"}
    steps = {step["step"]: step["key"] for step in run.manifest["steps"]}
    now = {
        step["step"]: step["key"] for step in open_finished(run.path).manifest["steps"]
    }
    assert {name: now[name] for name in ("facts/answers", "facts/probes")} == {
        name: steps[name] for name in ("facts/answers", "facts/probes")
    }


def test_a_full_disk_is_one_line_before_anything_is_computed(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = anchorscope.open_run(shutil.copytree(bare, tmp_path / "run"))
    before = sorted(run.path.rglob("*"))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    result = invoke("detect", run.path, "--detectors", "probe")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: Keeping states takes 0.0 GB" in result.stderr
    assert sorted(run.path.rglob("*")) == before


def test_mistakes_are_found_before_the_model_is_loaded(
    model: Path, answers: Path, tmp_path: Path
) -> None:
    write_questions(
        tmp_path / "labels.jsonl", [row | {"truthful": "perhaps"} for row in rows()]
    )
    write_questions(tmp_path / "few.jsonl", rows()[:50])
    (tmp_path / "bare.csv").write_text(
        "question\n" + "".join(f"Who is {n}?\n" for n in range(100))
    )
    before = sorted(tmp_path.iterdir())
    for arguments, message in (
        (("--dataset", answers, "--detectors", "prob"), "Unknown detector 'prob'"),
        (("--dataset", answers, "--bundles", "relation"), "'relation' cannot be saved"),
        (("--dataset", answers, "--risk", "7"), "--risk is 7; it is a share"),
        (("--dataset", tmp_path / "labels.jsonl"), "perhaps"),
        (
            ("--dataset", tmp_path / "few.jsonl"),
            "at least 60 (30 true and 30 false answers)",
        ),
        (("--dataset", tmp_path / "bare.csv"), "answers"),
        (("--dataset", tmp_path / "none.csv"), "none.csv"),
    ):
        result = invoke("fit", "--model", model, *arguments, "--out", tmp_path / "out")
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        (line,) = (
            text for text in result.stderr.splitlines() if text.startswith("error: ")
        )
        assert message in line
        assert "load model" not in result.stderr
        assert sorted(tmp_path.iterdir()) == before


def test_thresholds_lead_with_a_coverage_and_none_is_said() -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    probability = rng.random(400)
    labels = rng.random(400) < probability
    leading, *usual = thresholds_at(probability, labels, np.ones(400))
    assert leading.coverage == pytest.approx(0.3)
    assert (~labels[probability >= leading.probability]).mean() <= leading.risk < 0.3
    assert [
        threshold.risk
        for threshold in thresholds_at(probability, labels, np.ones(400), (0.25,))
    ] == [0.25]
    assert {threshold.risk for threshold in usual} <= {0.05, 0.1, 0.2, 0.3}
    assert thresholds_at(probability, labels | True, np.ones(400)) == ()
