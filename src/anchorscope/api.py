"""The main job from Python, and what it leaves behind as data frames.

run = anchorscope.run(model="smollm2-135m", datasets=["atlas"], limit=600, out="runs/demo")
run                                                         # in a notebook: the answer card
run.curves.filter(pl.col("group") == "Q-Anchored")
run.figure("evidence_parts")

A finished run is opened without torch.
"""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from anchorscope.artefacts.schema import features_file, states_file
from anchorscope.catalogue import DETECTION_RUNS
from anchorscope.datasets.catalog import split_specs
from anchorscope.errors import UserError, faults_as_user_errors, unknown
from anchorscope.execute.choose import choose
from anchorscope.files import make_folder, replacing
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.json_text import to_json
from anchorscope.models.embedded import cache_dir
from anchorscope.options import split_list
from anchorscope.prepare import check_inputs, default_folder
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe, about, make_recipe, named_folder
from anchorscope.report.page import fragment
from anchorscope.screen import showing
from anchorscope.verifying import Verified
from anchorscope.verifying import verify as verify_folder

# torch and matplotlib take seconds: they are imported where something needs them
if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from anchorscope.detecting.detect import Detection


def _table(
    name: str, about: str, read: str = "parquet"
) -> cached_property[pl.DataFrame]:
    """A table of a run; `read` is the method of `FinishedRun` that reads it."""

    def table(run: "Run") -> pl.DataFrame:
        return getattr(run, read)(name)

    table.__doc__ = about
    return cached_property(table)


class Run(FinishedRun):
    """A finished run; tables are read on first use."""

    def __init__(self, path: Path) -> None:
        finished = open_finished(path)
        super().__init__(finished.path, finished.manifest, finished.recipe)

    def _repr_html_(self) -> str:
        return fragment("card", {"card": self.card})

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, model={self.manifest['model']['name']!r})"

    items = _table("items", "One row per question asked.")
    effects = _table("effects", "Log-odds before and after every intervention.")
    pathways = _table("pathways", "The pathway of every used item.")
    curves = _table("curves", "Mean ΔP per layer.", "csv")
    probe_scores = _table("probe_scores", "AUC per layer, with the baselines.", "csv")
    summary = _table(
        "summary", "The numbers that say whether to believe the chart.", "csv"
    )
    evidence_parts = _table(
        "evidence_parts", "The parts of the probe's evidence.", "csv"
    )
    evidence_items = _table(
        "evidence_items",
        "The terms of every item, from which the need of any set follows.",
    )
    evidence_tests = _table("evidence_tests", "Numbers beside the parts.", "csv")
    experiments = _table("experiments", "Statistics of the further experiments.", "csv")
    experiment_items = _table(
        "experiment_items", "Per-item results of the further experiments."
    )

    def states(
        self,
        dataset: str,
        layer: int,
        intervention: str = "clean",
        site: str | None = None,
        position: str | None = None,
    ) -> "Tensor":
        """Kept states [item, d_model] of one layer (`--keep`).

        `state_items` names the rows. Site and position default to the chart's; all but the clean states have only
        these. The file is memory-mapped: no other layer is read.
        """
        from anchorscope.kept_states import read_layer

        site, position = site or self.recipe.site, position or self.recipe.position
        return read_layer(self._states(dataset, intervention), site, position, layer)

    def state_items(self, dataset: str, intervention: str = "clean") -> list[str]:
        """The items of kept states, in order."""
        from anchorscope.kept_states import read_header

        return read_header(self._states(dataset, intervention)).item_ids

    def _states(self, dataset: str, intervention: str) -> Path:
        cut = "detection" if intervention in DETECTION_RUNS else "states-cut"
        keep = "states" if intervention in ("clean", "question-only") else cut
        return self._kept(
            states_file(dataset, intervention),
            f"{intervention} states of {dataset!r}",
            keep,
        )

    def features(self, dataset: str) -> pl.DataFrame:
        """What detectors read of the used items beside their states (`--keep detection`), one row per item.

        Log-probabilities of the answer, P(True), agreement of sampled answers (`docs/run-folder.md`).
        """
        return pl.read_parquet(
            self._kept(features_file(dataset), f"features of {dataset!r}", "detection")
        )

    def _kept(self, file: str, what: str, keep: str) -> Path:
        if file not in self.manifest["sha256"]:
            again = f"run it again into the same folder with --keep {keep}"
            raise UserError(f"The run {str(self.path)!r} kept no {what}; {again}.")
        return self.checked_file(file)

    @property
    def figures(self) -> tuple[str, ...]:
        """The names that `figure` takes."""
        from anchorscope.report.charts import figures_of

        return tuple(display.name for display in figures_of(self.findings))

    def figure(
        self,
        name: str = "delta_p",
        *,
        datasets: Sequence[str] | None = None,
        size: tuple[float, float] | None = None,
        out: str | Path | None = None,
    ) -> "Figure":
        """A figure of the report by name, as a matplotlib `Figure`: the paper's ΔP chart, or another of `figures`.

        `datasets` chooses some of the run's; `size` is the ΔP chart's width and height in inches. `out` also writes a
        file, whose ending says as what: .svg, .pdf, .png, or .csv for the numbers.
        """
        from anchorscope.report.charts import figure_named

        display = figure_named(self.findings, name, datasets, size)
        if out is not None:
            display.write(Path(out))
        return display.plot()


@faults_as_user_errors()
def run(
    model: Any = "smollm2-135m",
    datasets: Any = "atlas",
    *,
    out: str | Path | None = None,
    tokenizer: Any = None,
    fresh: bool = False,
    progress: Progress | Literal["auto"] | None = "auto",
    executor: str | None = None,
    workers: int | None = None,
    for_detectors: bool = False,
    **options: Any,
) -> Run:
    """Runs the main job into the folder `out`, or resumes it, and returns what it found.

    `model` is a name, or a transformers model that is already loaded, then with its `tokenizer`. `datasets` are names
    and files, or the questions themselves: a list of dicts, a data frame of polars or pandas, a `datasets.Dataset`.
    Without `out` the folder is runs/MODEL-DATASETS; `fresh` starts it over. `progress="auto"` shows progress in a
    notebook or a terminal, None shows nothing, and any object with the methods of `anchorscope.progress.Progress` is
    called. `executor` says who runs the model: "local", "ray" (this machine) or "ray:HOST:PORT", the same bytes
    whichever it is; `workers` is for the last two. `for_detectors` makes only what detectors read; a later
    call makes the rest. The other options are those of `anchorscope run`:
    """
    options = {name.replace("-", "_"): value for name, value in options.items()}
    for name in options:
        if name not in Recipe.model_fields:
            raise unknown("option", name, list(inspect.signature(run).parameters))
    options["datasets"] = (
        datasets if isinstance(datasets, str) else question_files(datasets)
    )
    for name in ("datasets", "columns", "evidence", "keep"):
        if isinstance(options.get(name), str):
            options[name] = (
                split_specs([options[name]])
                if name == "datasets"
                else split_list(options[name])
            )
    loaded = None
    if isinstance(model, str):
        options["model"] = model
    else:
        if tokenizer is None:
            raise UserError(
                "A model that is already loaded needs its tokenizer; pass tokenizer=... beside it."
            )
        options["model"] = str(
            getattr(model.config, "_name_or_path", "") or model.config.model_type
        )
        own = {
            "device": str(model.device),
            "dtype": str(model.dtype).removeprefix("torch."),
        }
        options |= {
            name: value
            for name, value in own.items()
            if options.get(name, "auto") == "auto"
        }
        loaded = (model, tokenizer)
    recipe = make_recipe(options)
    folder = default_folder(recipe) if out is None else named_folder(out)
    choice = choose(executor, workers)

    check_inputs(recipe, loaded is not None or choice.kind == "ray")

    from anchorscope.pipeline import (
        run_recipe,
    )  # only here: a finished run is opened without torch

    with showing(progress) as listener:
        given: dict[str, Any] = {
            "loaded": loaded,
            "fresh": fresh,
            "choice": choice,
            "for_detectors": for_detectors,
        }
        return Run(run_recipe(recipe, folder, progress=listener, **given))


def question_files(datasets: Any) -> list[str]:
    """Dataset names for a recipe, from names and from questions in memory, which are written to the cache.

    `datasets` is a list of names, of questions (dicts), of lists and tables; or one table.
    """
    is_table = hasattr(datasets, "columns") or hasattr(datasets, "column_names")
    if is_table or (
        datasets and all(isinstance(question, Mapping) for question in datasets)
    ):
        datasets = [datasets]
    return [
        text if isinstance(text, str) else f"file:{_write_questions(text)}"
        for text in datasets
    ]


def _write_questions(table: Any) -> Path:
    """Questions in memory as a cached file, whose name depends on the questions."""
    methods = {
        "to_dicts": (),
        "to_list": (),
        "to_dict": ("records",),
    }  # of polars, a datasets.Dataset, pandas
    method = next((name for name in methods if hasattr(table, name)), None)
    rows = table if method is None else getattr(table, method)(*methods[method])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UserError(
            f"A dataset is a {type(table).__name__}; give a name or a file, a list of dicts, a data frame of polars or "
            f"pandas, or a datasets.Dataset."
        )
    text = "".join(to_json(row, ascii=False, other=str) + "\n" for row in rows)
    path = (
        cache_dir()
        / "questions"
        / hashlib.sha256(text.encode()).hexdigest()[:16]
        / "questions.jsonl"
    )
    if not path.exists():
        make_folder(path.parent)
        with replacing(path) as half_written:
            half_written.write_text(text, encoding="utf-8")
    return path


def _complete(run: Callable[..., Run]) -> None:
    """Adds every recipe option to signature and docstring, for `help` and a notebook's Tab key."""
    signature = inspect.signature(run)
    *own, _ = signature.parameters.values()
    recipe = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=field.annotation,
        )
        for name, field in Recipe.model_fields.items()
        if name not in signature.parameters
    ]
    run.__signature__ = signature.replace(parameters=[*own, *recipe])  # type: ignore[attr-defined]
    options = "\n".join(f"    {name}: {about(name)}" for name in Recipe.model_fields)
    run.__doc__ = f"{str(run.__doc__).rstrip()}\n\n{options}\n"


_complete(run)


@faults_as_user_errors()
def fit(
    model: Any = "smollm2-135m",
    datasets: Any = "atlas",
    *,
    out: str | Path | None = None,
    detectors: Sequence[str] = (),
    bundles: Sequence[str] | None = None,
    risks: Sequence[float] = (),
    seeds: int = 5,
    tosses: int = 20,
    progress: Progress | Literal["auto"] | None = "auto",
    **options: Any,
) -> "Detection":
    """A hallucination detector for a model: asks, grades, reads states, fits, compares and saves; returns what `detect`
    returns.

    It is `run` of only what the detectors read, then `detect` into the folder `detectors` of the run: the same call
    resumes it, and `run` into the same folder completes it. Without `detectors`, those are compared that read one pass
    over the answer. `options` are those of `run`; the other arguments are those of `detect`.
    """
    from anchorscope.detecting.detect import (
        FOLDER,
        detect,
    )  # only here: it brings torch
    from anchorscope.detecting.inputs import fit_options

    if out is not None:
        FOLDER.refuse_foreign(Path(out) / "detectors")
    chosen, of_run = fit_options(
        detectors=tuple(detectors),
        bundles=None if bundles is None else tuple(bundles),
        risks=tuple(risks),
        seeds=seeds,
        tosses=tosses,
        device=options.get("device"),
    )
    with showing(progress) as listener:
        made = run(
            model,
            datasets,
            out=out,
            progress=listener,
            for_detectors=True,
            **{**of_run, **options},
        )
        return detect(
            [made], out=made.path / "detectors", progress=listener, **vars(chosen)
        )


@faults_as_user_errors()
def verify(
    path: str | Path, *, progress: Progress | Literal["auto"] | None = "auto"
) -> Verified:
    """Checks every file of a run (finished or not), comparison, detectors or bundle."""
    with showing(progress) as listener:
        return verify_folder(named_folder(path), listener)


@faults_as_user_errors()
def open_run(path: str | Path) -> Run:
    """A finished run folder; torch is not loaded."""
    return Run(named_folder(path))
