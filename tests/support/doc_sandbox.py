"""A folder in which the commands of the docs run for real, with small things under the names that the docs use.

One finished run of a tiny model on 66 questions, with every experiment and with what detectors read, stands for every
`runs/…`; a command that runs into a folder goes on with a copy of it, so that only what differs is done. The options of
a command are parsed and checked as they stand; then model, questions and sizes are replaced by small ones.
"""

import importlib
import json
import shutil
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer import testing
from typer.testing import CliRunner

from anchorscope import pipeline, preview
from anchorscope.cli.main import app
from anchorscope.recipe import Recipe, make_recipe
from eval_logs import log, sample
from repo import ROOT
from sample_files import HARNESS, json_lines
from small_facts import rows, write_questions
from whole_runs import small_model

SIZES: dict[str, Any] = {
    "bootstrap": 100,
    "folds": 2,
    "max_new_tokens": 4,
    "random_cuts": 1,
    "directions": 4,
    "device": "cpu",
    "dtype": "float32",
    "limit": None,
    "columns": (),
    "evidence_items": 60,
    "window": None,
    "balance": "relation",
    "prompt": "few-shot",
    "random_weights": False,
    "site": "mlp",
    "threads": None,
    "report": False,
}
"""What a small run has in place of what the docs ask for. Another site and more resamples would make all experiments
anew; tests/runs does that."""
EVERYTHING = {"evidence": ("all",), "keep": ("states", "states-cut", "detection")}
FEW_DETECTORS = ("confidence", "probe", "probe+confidence", "auto")
CANADA = {
    "id": "capital-canada",
    "question": "What is the capital of Canada?",
    "subject": "Canada",
}
"""The item that the docs show."""


def small_rows() -> list[dict[str, Any]]:
    """As many of the tests' questions as a run needs, with those that it leaves out; one is the docs' own."""
    found = [*rows()[:64], *rows()[82:]]
    found[0] |= CANADA
    return found


@dataclass
class Sandbox:
    """The folder, and how commands run in it."""

    path: Path
    model: Path
    """A tiny model."""

    @cached_property
    def questions(self) -> Path:
        """Small questions, under the name of the built-in ones."""
        return write_questions(self.path / "atlas.jsonl", small_rows())

    @cached_property
    def base(self) -> Path:
        pipeline.run_recipe(self.small(make_recipe(EVERYTHING)), self.path / "base")
        return self.path / "base"

    def small(self, recipe: Recipe) -> Recipe:
        """The recipe of a command, with a small model, small questions and small sizes; its choices stay."""
        here: dict[str, Any] = {
            "model": str(self.model),
            "datasets": (f"file:{self.questions}",),
            "allow_random_weights": False,
            "keep": EVERYTHING[
                "keep"
            ],  # other states to keep would make half of the run anew
        }
        kept = {
            name: value
            for name, value in recipe.model_dump().items()
            if name not in (*SIZES, *here)
        }
        return make_recipe({**kept, **SIZES, **here})

    def place(self, folder: str | Path) -> Path:
        """A folder that the docs name, with a copy of the finished run in it if it is not there yet."""
        there = self.path / folder
        if not there.exists():
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(self.base, there)
        return there

    def invoke(self, words: list[str]) -> None:
        """Runs `anchorscope` in this process; anything but success fails the test."""
        done = CliRunner().invoke(app, words)
        if done.exit_code:
            raise AssertionError(
                f"exit code {done.exit_code}: {done.output[-800:]}"
            ) from done.exception

    @contextmanager
    def replaced(self) -> Iterator[None]:
        """Runs, previews and validations inside are small ones, in this folder."""
        run, look = pipeline.run_recipe, preview.preview_recipe
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.path)

            def small_run(recipe: Recipe, out: Path, **options: Any) -> Path:
                return run(
                    self.small(recipe), self.place(out), **options | {"fresh": False}
                )

            import anchorscope.api as api
            from anchorscope.prepare import check_inputs
            from anchorscope.study import grid, runner

            for module in (
                api,
                *map(import_module, ("anchorscope.cli.run", "anchorscope.cli.detect")),
            ):
                patch.setattr(
                    module,
                    "check_inputs",
                    lambda recipe, *how, **more: check_inputs(self.small(recipe)),
                )

            read_study = grid.read_study

            def small_study(path: Path) -> grid.Study:
                """Two models of the study, under their names; a folder's own file is small already."""
                found = read_study(path)
                if path.name == "study.toml":
                    return found
                recipe = self.small(found.runs[0].recipe).model_dump(mode="json")
                datasets, model = recipe.pop("datasets"), recipe.pop("model")
                models = [{"name": name, "model": model} for name in found.models[:2]]
                options = {
                    name: value for name, value in recipe.items() if value is not None
                }
                return grid.make_study(
                    {
                        "name": found.name,
                        "models": models,
                        "datasets": datasets,
                        "defaults": options,
                    },
                    "small",
                )

            patch.setattr(grid, "read_study", small_study)
            for module in (pipeline, api, runner):
                patch.setattr(module, "run_recipe", small_run, raising=False)
            patch.setattr(
                preview, "preview_recipe", lambda recipe: look(self.small(recipe))
            )
            _small_jobs(patch, self.model)
            patch.setattr(
                testing, "_get_command", cache(testing._get_command)
            )  # Typer builds it at every call
            yield


def _small_jobs(patch: pytest.MonkeyPatch, model: Path) -> None:
    """The jobs that are no runs, with few items: their options are parsed before they come here."""

    from anchorscope.detecting import detect as detecting
    from anchorscope.serve import server as serving

    fit = detecting.detect

    def small_detect(runs: Any, **options: Any) -> Any:
        few = {
            "folds": 2,
            "seeds": 1,
            "tosses": 1,
            "resamples": 100,
            "device": "cpu",
            "detectors": FEW_DETECTORS,
        }
        return fit(runs, **options | few)

    patch.setattr(
        serving, "run_server", lambda *_: True
    )  # everything is checked by then; tests/runs/serve has the rest
    patch.setattr(webbrowser, "open", lambda address: True)
    patch.setattr(detecting, "detect", small_detect)
    for name in ("comparison", "detection"):
        patch.setattr(
            importlib.import_module(f"anchorscope.report.{name}"),
            "save_all",
            lambda *_: None,
        )


def make_sandbox(folder: Path, model: Path) -> Sandbox:
    """The folder with the files that the docs name."""
    box = Sandbox(folder, small_model(model))
    shutil.copytree(ROOT / "recipes", folder / "recipes")
    if (ROOT / "examples").is_dir():
        shutil.copytree(ROOT / "examples", folder / "examples")
    lines = [f'"{row["question"]}",{row["model_answer"]}' for row in small_rows()[:6]]
    (folder / "questions.csv").write_text(
        "\n".join(["question,model_answer", *lines]), encoding="utf-8"
    )
    rest = [
        f'"{row["question"]}",x,{row["model_answer"]},{json.dumps(row["truthful"])}'
        for row in small_rows()[:60]
    ]
    (folder / "supplied.csv").write_text(
        "\n".join(["question,answers,model_answer,truthful", *rest]), encoding="utf-8"
    )
    (folder / "logs").mkdir()  # of inspect_ai, and of lm-evaluation-harness
    samples = [
        sample(
            number,
            row["question"],
            row["answers"],
            row["model_answer"],
            scores={"match": {"value": "C"}},
        )
        for number, row in enumerate(small_rows()[:6], start=1)
    ]
    (folder / "logs" / "triviaqa.eval").write_bytes(log(samples))
    (folder / "samples_triviaqa.jsonl").write_bytes(json_lines(HARNESS))
    return box
