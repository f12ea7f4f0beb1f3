"""Whole runs on a tiny model: made without figures, watched step by step, and compared to the last byte."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from anchorscope.artefacts.step import StepResult
from anchorscope.pipeline import run_recipe
from anchorscope.recipe import Recipe
from noting import Notes
from small_facts import liven
from tiny_models import build_tiny

N_LAYERS = 2
"""Blocks of the model of whole runs: steps, files and tables are those of a model with more of them."""
TABLES = (
    "items.parquet",
    "effects.parquet",
    "pathways.parquet",
    "curves.csv",
    "curve_samples.parquet",
    "reference_curves.csv",
    "probe_scores.csv",
    "summary.csv",
    "experiments.csv",
    "experiment_items.parquet",
    "probes.safetensors",
    "evidence_parts.csv",
    "evidence_items.parquet",
    "evidence_tests.csv",
)
"""All numbers of a run."""


def small_model(folder: Path) -> Path:
    """Makes a tiny Llama on disk attend more sharply, and leaves it its first blocks."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    liven(model)
    model.model.layers = model.model.layers[:N_LAYERS]
    model.config.num_hidden_layers = N_LAYERS
    model.save_pretrained(folder)
    return folder


def save_small_model(folder: Path) -> Path:
    """A tiny Llama with its tokenizer, on disk, made to attend more sharply."""
    lm = build_tiny("llama")
    for part in (lm.model, lm.tokenizer):
        part.save_pretrained(folder)
    return small_model(folder)


def quick(recipe: Recipe, out: Path, **options: Any) -> list[str]:
    """A run without figures and report, which take longer than everything else together; what it noted but its cost."""
    notes = Notes()
    run_recipe(
        recipe.model_copy(update={"report": False}), out, progress=notes, **options
    )
    return [line for line in notes.lines if not line.startswith("cost: ")]


@contextmanager
def watching() -> Iterator[list[str]]:
    """The steps that are made by the runs inside, in the order in which they are done."""
    made, write = [], StepResult._write

    def watched(self: StepResult, value: Any) -> Any:
        files = write(self, value)
        made.append(self.name)
        return files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepResult, "_write", watched)
        yield made


@dataclass(frozen=True)
class SmallRun:
    """A recipe, its finished run, and one that was stopped before its tables; all of it read only."""

    recipe: Recipe
    finished: Path
    half_done: Path
    tables: dict[str, bytes]

    def copy(self, which: str, to: Path) -> Path:
        return Path(shutil.copytree(getattr(self, which), to))


class Stop(BaseException):
    """Ctrl-C or a crash, at a chosen moment."""


@contextmanager
def stopping(name: str, moment: str = "work") -> Iterator[None]:
    """Ends the run inside a step: before its work, or in the middle of writing its result."""
    value_of, store = StepResult.value.fget, StepResult._write

    def stopped(self: StepResult) -> Any:
        if self.name == name and moment == "work" and not self._held:
            raise Stop
        return value_of(self)

    def half(self: StepResult, value: Any) -> Any:
        if self.name == name and moment == "write":
            write = self.form.write

            def write_half(value: Any, folder: Path) -> None:
                write(value, folder)
                for path in folder.iterdir():
                    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
                raise Stop

            self.form = self.form._replace(write=write_half)
        return store(self, value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StepResult, "value", property(stopped))
        patch.setattr(StepResult, "_write", half)
        yield


def tables_of(out: Path) -> dict[str, bytes]:
    assert (out / "manifest.json").is_file()
    return {name: (out / name).read_bytes() for name in TABLES}


def files_of(path: Path) -> dict[str, bytes]:
    """Every file under a folder, with its content, but for the lock."""
    files = {
        one.relative_to(path).as_posix(): one.read_bytes()
        for one in sorted(path.rglob("*"))
        if one.is_file()
    }
    return {name: content for name, content in files.items() if name != ".lock"}
