"""What cases are made from: tiny models of several families, a question file, a run half done and a finished one.

Made once, by a child, since the server must not compute anything before it forks; never changed afterwards.
"""

import importlib
import os
import pkgutil
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hostile.child import forked

FAMILIES = ("llama", "gpt2", "qwen3", "gemma2", "gpt_neox", "olmo3", "qwen3_moe")
"""The first is the one that runs use."""
MODEL, FACTS, HALF, FINISHED, OTHER = "models/llama", "facts.jsonl", "half", "finished", "other"
DETECTORS, GGUF = "detectors", "tiny.gguf"


@dataclass(frozen=True)
class Stage:
    """The folder that cases copy from."""

    folder: Path

    @property
    def home(self) -> Path:
        """Where libraries keep what they cache."""
        return self.folder / "home"

    @property
    def model(self) -> Path:
        """A tiny model that runs well."""
        return self.folder / MODEL

    @property
    def facts(self) -> Path:
        """Questions with answers and labels."""
        return self.folder / FACTS

    @cached_property
    def tables(self) -> dict[str, bytes]:
        """The numbers of the finished run."""
        from whole_runs import TABLES

        return {name: (self.folder / FINISHED / name).read_bytes() for name in TABLES}

    @property
    def samples(self) -> list[Path]:
        """A small file of every format in which questions circulate."""
        return sorted((self.folder / "samples").iterdir())

    def copy(self, name: str, to: Path) -> set[str]:
        """Copies a model or a run; the names of its files, relative to the copy."""
        shutil.copytree(self.folder / name, to, dirs_exist_ok=True)
        below = self.folder / name
        return {path.relative_to(below).as_posix() for path in below.rglob("*") if path.is_file()}


def import_everything() -> None:
    """Imports all that commands import, so that no child has to; figures are not drawn, and nothing is synced."""
    import anchorscope
    from anchorscope.report import render, validation_page
    from anchorscope.report.comparison import comparison_page
    from anchorscope.report.detection import detection_page

    for module in pkgutil.walk_packages(anchorscope.__path__, "anchorscope."):
        if not module.name.startswith(("anchorscope.adapters.", "anchorscope.bench.")):
            importlib.import_module(module.name)
    for family in FAMILIES:
        importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    importlib.import_module("transformers.models.auto.tokenization_auto")
    for module in (render, validation_page, comparison_page, detection_page):
        module.save_all = _draw_nothing  # type: ignore[attr-defined]
    os.fsync = os.fstat  # type: ignore[assignment]  # no power is cut here


def _draw_nothing(figures: Any, out: Path, progress: Any) -> None:
    progress.advance(len(figures))


def build(folder: Path) -> Stage:
    """The stage in a folder; one that is there already is taken as it is."""
    stage = Stage(folder)
    if not (folder / "whole").exists():
        stage.home.mkdir(parents=True, exist_ok=True)
        if forked(lambda: _build(stage)) != 0:
            raise RuntimeError("the stage cannot be built: see above")
        (folder / "whole").touch()
    return stage


def _build(stage: Stage) -> None:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    import tiny_models
    from anchorscope.detecting.detect import detect
    from anchorscope.pipeline import run_recipe
    from anchorscope.recipe import make_recipe
    from gguf_models import small_llama, write_gguf
    from sample_files import SAMPLES
    from small_facts import liven, quick_options, write_questions
    from whole_runs import Stop, stopping

    logging.disable_progress_bar()
    write_gguf(small_llama(), stage.folder / GGUF)
    for sample in SAMPLES:
        place = stage.folder / "samples" / sample.name
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(sample.content)
    for family in FAMILIES:
        place = stage.folder / "models" / family
        tiny_models.tiny_model(family).save_pretrained(place)
        tiny_models.byte_tokenizer().save_pretrained(place)
    weights = AutoModelForCausalLM.from_pretrained(stage.model)
    weights.model.layers = weights.model.layers[:2]  # half of them take half of the time
    weights.config.num_hidden_layers = 2
    liven(weights)
    weights.save_pretrained(stage.model)
    options = quick_options(write_questions(stage.facts), model=str(stage.model), folds=2, random_cuts=1)
    try:
        with stopping("facts/tables", "write"):
            run_recipe(make_recipe(options), stage.folder / HALF)
    except Stop:
        pass
    stage.copy(HALF, stage.folder / FINISHED)
    run_recipe(make_recipe(options), stage.folder / FINISHED)
    kept = {"seed": 1, "keep": ("states",)}
    run_recipe(make_recipe({**options, **kept}), stage.folder / OTHER)
    detect([stage.folder / OTHER], out=stage.folder / DETECTORS, fit_only=True, bundles=("probe",), folds=2, seeds=1)
