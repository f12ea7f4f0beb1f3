"""Which options, files and versions a step hangs on: what each of them makes anew, exactly, and that it is said."""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts.run_folder import open_run
from anchorscope.catalogue import EVIDENCE, EXPERIMENTS
from anchorscope.datasets.catalog import parse_spec
from anchorscope.execute.executor import Description, LocalExecutor
from anchorscope.interventions.cuts import of_experiments
from anchorscope.models.loading import load
from anchorscope.options import option_of
from anchorscope.pipeline import steps_of
from anchorscope.recipe import Recipe, about, make_recipe
from anchorscope.steps import job
from anchorscope.steps.job import DatasetRun, Job
from small_facts import rows, write_questions
from whole_runs import Notes, SmallRun, quick, tables_of, watching

EFFECTS = {f"effects-{name}" for name in EVIDENCE if of_experiments([name])}
FOUND = {
    f"experiment-{name}" for name, one in EXPERIMENTS.items() if one.home is not None
}
MANY_PASSES = {"effects-patching", "effects-answer-only", "effects-template"}
TABLES = {"tables", *FOUND}
SHARES = {"evidence-terms", "evidence-parts"}
REWRITTEN = {"evidence-resample", "evidence-paraphrase", "source-terms"}
CUT = {
    "principal-states",
    "cut-states",
    "refits",
    "permuted-refits",
    "tables",
    *SHARES,
    *FOUND,
}
PROBED = {
    "probes",
    "clean-scores",
    *EFFECTS,
    "refits",
    "permuted-refits",
    "null-scores",
    *SHARES,
    *REWRITTEN,
    *TABLES,
}
STATES = {"clean-states", "log-probs", *PROBED, *CUT}
DETECTION = {"detection-samples", "detection-columns", "detection-states"}
ALONE = {"before-answer", "answer-alone"}
USED = {"attention-mass", *ALONE, "detection-states", *STATES}
LABELS = {"tokens", "labels", "detection-samples", "detection-columns", *USED}
ANSWERS = {"answers", *LABELS}
ALL = {"questions", *ANSWERS}
ASKED = {*EFFECTS, *FOUND, *DETECTION, *REWRITTEN}

OPTIONS: dict[str, tuple[Any, set[str]]] = {
    "columns": (("answers=answers",), ALL),
    "limit": (83, ALL),
    "yes_no": ("keep", ALL),
    "on_bad_row": ("skip", ALL),
    "seed": (1, ALL),
    "prompt": ("zero-shot", ANSWERS),
    "max_new_tokens": (17, ANSWERS),
    "thinking": (8, ANSWERS | {"thinking"}),
    "batch_tokens": (500, ANSWERS),
    "threads": (2, ANSWERS),
    "dtype": ("bfloat16", ANSWERS | {"model"}),
    "balance": ("none", LABELS),
    "group_by": ("answer", LABELS),
    "max_per_class": (31, LABELS),
    "grader": ("another", LABELS),
    "exact_tokens": ("rules", USED | {"tokens"}),
    "position": ("answer_end", STATES - {"log-probs"} | ALONE | {"detection-states"}),
    "folds": (4, PROBED),
    "edges": (
        "direct",
        EFFECTS
        | CUT
        | {
            "attention-mass",
            "answer-alone",
            "null-scores",
            "source-terms",
            "detection-states",
        },
    ),
    "random_cuts": (3, {"effects-knockout", "principal-states", *SHARES, *TABLES}),
    "evidence_items": (61, MANY_PASSES | TABLES),
    "directions": (9, {"principal-states", "null-scores", *FOUND, *SHARES, *REWRITTEN}),
    "parts": (
        ("context", "answer"),
        {"source-terms", "evidence-parts", "experiment-sources"},
    ),
    "random_weights": (True, {"evidence-parts", "evidence-random-weights"}),
    "site": ("residual", CUT | ALONE | REWRITTEN | {"null-scores", "detection-states"}),
    "keep": (("states", "states-cut", "detection"), set()),
    "window": (2, FOUND),
    "bootstrap": (101, {"evidence-parts", *TABLES}),
    "evidence": (tuple(name for name in EVIDENCE if name != "zeroing"), {"tables"}),
    "trust_remote_code": (True, {"model"}),
    "allow_random_weights": (True, set()),
    "large_files": (True, set()),
    "report": (True, set()),
}
"""Another value of every option, and the steps that it makes anew."""
ELSEWHERE = {"model", "datasets", "device"}
"""Tested below, or (another device) not to be had on every machine."""


def keys(recipe: Recipe, out: Path) -> dict[str, str]:
    """The key of every step of a run with all experiments; nothing is made but the record of the model."""
    with open_run(out) as folder:
        options = recipe.model, recipe.dtype, recipe.device, recipe.trust_remote_code
        work = Job(folder, recipe, LocalExecutor(lambda: load(*options)), Notes())
        found: dict[str, str] = {}
        for text in recipe.datasets:
            run = DatasetRun(work, parse_spec(text), steps_of(recipe))
            found |= {run.result(name).name: run.result(name).key for name in run.steps}
        assert work.record is not None
        return found | {"model": folder.steps["model"].key}


def anew(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """The steps whose keys changed, without the dataset's name."""
    changed = {name for name in after if before.get(name) != after[name]}
    return {name.removeprefix("facts/") for name in changed}


@pytest.fixture(scope="module")
def everything(small_recipe: Recipe) -> Recipe:
    return small_recipe.model_copy(
        update={"evidence": EVIDENCE, "evidence_items": 60, "keep": ("detection",)}
    )


@pytest.fixture(scope="module")
def known(
    everything: Recipe, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, str]]:
    """A folder that knows its model, and the keys of all steps there."""
    out = tmp_path_factory.mktemp("keys") / "run"
    return out, keys(everything, out)


def test_what_is_said_of_an_option_is_what_the_keys_say() -> None:
    """Where only the last digits depend on an option, steps are made again; no reason may say that none do."""
    reasons = {
        name: option_of(field).compared.reason
        for name, field in Recipe.model_fields.items()
    }
    assert not [name for name, reason in reasons.items() if "not depend" in reason]
    digits = {name for name, reason in reasons.items() if "last digits" in reason}
    assert digits == {"batch_tokens", "threads"}
    for name in digits:
        assert OPTIONS[name][1], name
        assert "last digits depend on" in about(name)


def test_every_option_of_a_recipe_is_here() -> None:
    assert set(OPTIONS) | ELSEWHERE == set(Recipe.model_fields)
    assert not set(OPTIONS) & ELSEWHERE


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_makes_anew_exactly_what_hangs_on_it(
    option: str, everything: Recipe, known: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, before = known
    value, expected = OPTIONS[option]
    out = Path(shutil.copytree(folder, tmp_path / "run"))
    assert (
        anew(before, keys(everything.model_copy(update={option: value}), out))
        == expected
    )


def test_other_weights_make_all_but_the_questions_anew_and_another_name_of_the_same_only_the_tables(
    everything: Recipe, known: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    folder, before = known
    other = Path(shutil.copytree(everything.model, tmp_path / "other"))
    out = Path(shutil.copytree(folder, tmp_path / "run"))
    renamed = everything.model_copy(update={"model": str(other)})
    assert anew(before, keys(renamed, out)) == {"model", "tables", "evidence-parts"}
    weights = AutoModelForCausalLM.from_pretrained(other)
    with torch.no_grad():
        weights.model.layers[0].mlp.up_proj.weight += 1
    weights.save_pretrained(other)
    changed = anew(
        before, keys(everything.model_copy(update={"model": str(other)}), out)
    )
    assert changed == ANSWERS | {"model"}


@pytest.mark.parametrize(
    ("library", "expected"),
    [
        ("torch", ANSWERS | {"model"}),
        ("transformers", ANSWERS | {"model"}),
        ("numpy", {"evidence-parts", *TABLES}),
        ("scipy", {"evidence-parts", *TABLES}),
        ("polars", set()),
    ],
)
def test_another_version_of_a_library_makes_anew_what_it_computes(
    library: str,
    expected: set[str],
    everything: Recipe,
    known: tuple[Path, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder, before = known
    out, version = Path(shutil.copytree(folder, tmp_path / "run")), metadata.version
    monkeypatch.setattr(
        job.metadata, "version", lambda name: "99" if name == library else version(name)
    )
    assert anew(before, keys(everything, out)) == expected


def test_one_key_of_clean_states_has_one_choice_of_compiled_blocks(
    small_run: SmallRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where compiled and plain blocks differ in their last digits."""
    described = Job.record.fget
    decided: dict[str, set[bool]] = {}
    for compile_from in (None, 1, 2_000, 4_000, 8_000, 16_000, 32_000, 10**9):

        def on_a_gpu(work: Job, compile_from: int | None = compile_from) -> Description:
            record = described(work)
            planner = replace(record.planner, compile_from=compile_from)
            return replace(record, planner=planner)

        monkeypatch.setattr(Job, "record", property(on_a_gpu))
        out = small_run.copy("finished", tmp_path / f"from {compile_from}")
        for random_cuts in (1, 3, 9):
            recipe = small_run.recipe.model_copy(update={"random_cuts": random_cuts})
            with open_run(out) as folder:
                work = Job(folder, recipe, LocalExecutor(lambda: None), Notes())
                run = DatasetRun(work, parse_spec(recipe.datasets[0]), steps_of(recipe))
                key = run.result("clean-states").key
                decided.setdefault(key, set()).add(run.is_compiled)
    assert all(len(choices) == 1 for choices in decided.values())
    assert set.union(*decided.values()) == {True, False}


# The same in whole runs.

RUNS: list[tuple[dict[str, Any], Iterable[str], str]] = [
    (
        {"site": "residual"},
        {"clean-states", "null-scores", *ALONE, *CUT - FOUND},
        "facts/tables is made again: site was 'mlp', now",
    ),
    (
        {"evidence": ("zeroing",), "bootstrap": 101},
        ["effects-zeroing", "evidence-parts", "tables"],
        "facts/tables is made again: bootstrap was 100, now 101",
    ),
]
"""Changes that come one after the other; what one option alone makes anew is told by the keys above."""


def test_an_extended_run_does_only_what_is_new_and_gives_what_one_asked_for_all_at_once_gives(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out, recipe = small_run.copy("finished", tmp_path / "run"), small_run.recipe
    for change, expected, why in RUNS:
        recipe = make_recipe({**recipe.model_dump(), **change})
        with watching() as made:
            told = quick(recipe, out)
        assert sorted(made) == sorted(f"facts/{name}" for name in expected)
        assert any(line.startswith(why) for line in told), told
    quick(recipe, tmp_path / "at once")
    assert tables_of(out) == tables_of(tmp_path / "at once")
    with watching() as made:
        assert quick(recipe, out) == []
    assert made == []


def test_a_question_file_that_changed_is_read_again_and_one_that_is_gone_is_told(
    small_run: SmallRun, tmp_path: Path
) -> None:
    out = small_run.copy("finished", tmp_path / "run")
    place = write_questions(tmp_path / "facts.jsonl")
    recipe = small_run.recipe.model_copy(update={"datasets": (f"file:{place}",)})
    with watching() as made:
        quick(recipe, out)  # the same content elsewhere
    assert made == []
    assert tables_of(out) == small_run.tables
    place.unlink()
    with watching() as made:
        (line,) = quick(recipe, out)
    assert (
        line
        == f"{place} cannot be read any more; the questions that were read from it are used"
    )
    assert made == []
    write_questions(place, rows()[:78])
    with watching() as made:
        told = quick(recipe, out)
    assert told[0] == "facts/questions is made again: question file of facts changed"
    assert {name.removeprefix("facts/") for name in made} == ALL - ASKED | {
        "effects-knockout"
    }
    assert tables_of(out) != small_run.tables
