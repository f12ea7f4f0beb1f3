"""The results of a run: what its datasets contribute, and how tables, manifest and report are written.

Result files are written beside the old ones and moved into place together; the manifest, written last, seals them.
Facts say what happened, not what was asked for: a file may supply its own answers and labels, and may have no relations
or subjects. Warnings say what may make the numbers less reliable; page and terminal show the same list.
"""

import io
import platform
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
from safetensors.torch import save_file
from torch import Tensor

from anchorscope.answers.choose import FOR_A_CHART
from anchorscope.answers.template import FEW_SHOT, Template
from anchorscope.artefacts.run_folder import RESULTS, RunFolder
from anchorscope.artefacts.step import peak_memory_mb
from anchorscope.cost import REPORT
from anchorscope.errors import TooFewAnswers
from anchorscope.execute.executor import Description
from anchorscope.execute.solver import Solver
from anchorscope.files import PARTIAL, folder_beside
from anchorscope.finished import FOR_DETECTORS, FinishedRun
from anchorscope.kept_states import KeptStates, features_place, write_states
from anchorscope.models.sources import MARK
from anchorscope.plugins import installed
from anchorscope.progress import Progress
from anchorscope.recipe import Recipe, to_toml
from anchorscope.report.run_page import write_all

_PARQUET = ("items", "effects", "pathways", "curve_samples", "experiment_items", "evidence_items")
_CSV = ("curves", "reference_curves", "probe_scores", "summary", "experiments", "evidence_parts", "evidence_tests")
_NAMED_VERSIONS = ("anchorscope", "torch", "transformers", "numpy", "polars", "scikit-learn", "safetensors")
_BALANCED = {
    "relation": "true and false answers balanced within each relation",
    "dataset": "true and false answers balanced over the whole dataset",
    "none": "true and false answers not balanced",
}
_GROUPED = {
    "subject": "folds and bootstrap by subject",
    "question": "folds and bootstrap by single questions",
    "answer": "folds and bootstrap by the model's answer",
}
FEW_IN_FOLD = 5
"""With fewer held-out answers of one kind, a fold's AUC jumps with every single one."""
_BASE_RATES = "so base rates of kinds of questions may be what the probe reads"
_CHART = "figures/delta_p.png"


@dataclass(frozen=True)
class DatasetResult:
    """What one dataset contributes to the result files."""

    name: str
    tables: Mapping[str, pl.DataFrame]
    """Those of `_PARQUET` and `_CSV`, the counts of its questions, and what is unavailable on it, with the reason; only
    items and these where nothing but what detectors read is made."""
    balanced_by: str
    """Where true and false answers were actually balanced: within each `relation`, the `dataset`, or `none`."""
    grouped_by: str
    """What actually kept items in one fold: `subject`, `question` (only itself) or `answer`."""
    probes: Mapping[str, Tensor] = field(default_factory=dict)
    reference_layers: tuple[int, ...] = ()
    """l* of each fold at the headline site and position."""
    kept: Sequence[KeptStates] = ()
    features: pl.DataFrame | None = None
    """What detectors read beside the states, if kept."""
    notes: tuple[str, ...] = ()
    """Events: probes that did not converge, questions that are too long, memory that ran out."""


@dataclass(frozen=True)
class LeftOut:
    """A dataset with too few answers."""

    reason: TooFewAnswers
    items: pl.DataFrame
    counts: pl.DataFrame


@dataclass(frozen=True)
class RunFacts:
    model: Description
    recipe: Recipe
    inputs: Mapping[str, str]
    """sha256 of every question file, as read."""
    batch_tokens: tuple[int, int]
    """First and final value."""
    seconds: float
    """Since the command began."""
    template: Template | None = None
    """The text around every question, if states are kept."""
    workers: Mapping[str, Any] | None = None
    """Shards and workers, where passes ran in several processes."""


def publish(
    folder: RunFolder,
    run: RunFacts,
    results: Sequence[DatasetResult],
    left_out: Sequence[LeftOut],
    key: str,
    progress: Progress,
    fits: Solver,
) -> None:
    """Writes the run's results, reads them back for the report, and moves all into place at once."""
    progress.begin(REPORT)
    began = time.monotonic()
    with folder_beside(folder.path / RESULTS.removesuffix(PARTIAL)) as made:
        tables = {name: pl.concat([dataset.tables[name] for dataset in results]) for name in results[0].tables}
        tables["items"] = pl.concat([tables["items"], *(dataset.items for dataset in left_out)])
        tables["counts"] = pl.concat([tables["counts"], *(dataset.counts for dataset in left_out)])
        _write_files(made, tables, results, fits)
        (made / "recipe.toml").write_text(to_toml(run.recipe), encoding="utf-8")
        manifest = _manifest(folder, run, results, left_out, tables)
        if FOR_DETECTORS not in manifest:
            findings = FinishedRun(made, manifest, run.recipe, folder.path).findings
            write_all(findings, made, progress, run.recipe.report)
        seconds = time.monotonic() - began
        manifest["steps"].append(_step_entry(REPORT, seconds, peak_memory_mb(), key))
        manifest["elapsed_seconds"] = round(run.seconds + seconds, 3)
        folder.publish(made, manifest, key)
    progress.done(REPORT)


def _write_files(
    made: Path, tables: Mapping[str, pl.DataFrame], results: Sequence[DatasetResult], fits: Solver
) -> None:
    for name, table in tables.items():
        if name in _PARQUET:
            table.write_parquet(made / f"{name}.parquet")
        elif name in _CSV:
            table.write_csv(made / f"{name}.csv")
    probes = {name: tensor for dataset in results for name, tensor in dataset.probes.items()}
    if probes:
        save_file(probes, made / "probes.safetensors")
    for dataset in results:
        for states in dataset.kept:
            fits(write_states, states, made, title="states")
        if dataset.features is not None:
            path = made / features_place(dataset.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            dataset.features.write_parquet(path)


def _manifest(
    folder: RunFolder,
    run: RunFacts,
    results: Sequence[DatasetResult],
    left_out: Sequence[LeftOut],
    tables: Mapping[str, pl.DataFrame],
) -> dict[str, Any]:
    return {
        "versions": versions(),
        "seed": run.recipe.seed,
        "model": {**asdict(run.model.identity), "files": dict(run.model.files)},
        **({} if "summary" in tables else {FOR_DETECTORS: True}),
        **({} if run.template is None else {"template": asdict(run.template)}),
        "inputs": dict(run.inputs),
        "counts": tables["counts"].to_dicts(),
        "facts": facts_in_words(run, results),
        "balanced_by": {dataset.name: dataset.balanced_by for dataset in results},
        "grouped_by": {dataset.name: dataset.grouped_by for dataset in results},
        "reference_layers": {dataset.name: list(dataset.reference_layers) for dataset in results},
        "unavailable": tables["unavailable"].to_dicts(),
        "batch_tokens": {"asked": run.batch_tokens[0], "final": run.batch_tokens[1]},
        "warnings": run_warnings(run, results, left_out),
        "events": list(folder.events),
        "numerics": asdict(run.model.numerics),
        **({} if run.workers is None else {"workers": dict(run.workers)}),
        "steps": [
            _step_entry(name, step.seconds, step.peak_memory_mb, step.key) for name, step in folder.steps.items()
        ],
    }


def _step_entry(name: str, seconds: float, peaks: Mapping[str, float], key: str) -> dict[str, Any]:
    peak = max(peaks.values())
    return {"step": name, "seconds": round(seconds, 3), "peak_memory_mb": peak, "peaks": peaks, "key": key}


def facts_in_words(run: RunFacts, results: Sequence[DatasetResult]) -> dict[str, str]:
    recipe, identity, (first, final) = run.recipe, run.model.identity, run.batch_tokens
    lowered = f", lowered to {final} when memory ran out" if final != first else ""
    return {
        "model": f"{identity.name} ({identity.architecture}, {identity.n_layers} layers, {identity.d_model} wide, "
        f"{identity.parameters / 1e6:,.0f} million parameters)",
        "weights": f"{identity.source}, fingerprint {identity.fingerprint[:16]}",
        "questions": ", ".join(recipe.datasets) + (f", at most {recipe.limit} each" if recipe.limit else ""),
        "prompt": f"{recipe.prompt}, {_describe_examples(recipe.prompt)}",
        "answers": _join_by_dataset({dataset.name: _answers(dataset, recipe.max_new_tokens) for dataset in results}),
        "labels": _join_by_dataset({dataset.name: _describe_labels(dataset) for dataset in results}),
        "exact tokens": _describe_exact_tokens(results),
        "headline": f"site {recipe.site}, position {recipe.position}, edges {recipe.edges}",
        "balance": _join_by_dataset(
            {dataset.name: f"{_BALANCED[dataset.balanced_by]}; {_GROUPED[dataset.grouped_by]}" for dataset in results}
        ),
        "statistics": f"{recipe.folds} folds, {recipe.bootstrap} bootstrap resamples, seed {recipe.seed}",
        "device": f"{identity.device}, {identity.dtype}, batches of {first} tokens{lowered}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
    }


def _describe_examples(prompt: str) -> str:
    if prompt == "zero-shot":
        return "no examples"
    return f"{len(FEW_SHOT)} examples" + (" as earlier turns" if prompt == "chat" else "")


def _answers(dataset: DatasetResult, longest: int) -> str:
    """How many answers were generated, and how many supplied."""
    (asked,), (supplied,) = dataset.tables["counts"]["asked"], dataset.tables["counts"]["supplied"]
    generated = f"{asked - supplied:,} generated (greedy, at most {longest} tokens)" if asked > supplied else ""
    return ", ".join(filter(None, (generated, f"{supplied:,} supplied" if supplied else "")))


def _describe_labels(dataset: DatasetResult) -> str:
    """How many answers were graded, and how many labels supplied."""
    counts = dataset.tables["counts"].row(0, named=True)
    graded = counts["true"] + counts["false"] - counts["supplied_labels"]
    counted = {"graded against the accepted answers": graded, "supplied": counts["supplied_labels"]}
    return ", ".join(f"{count:,} {how}" for how, count in counted.items() if count)


def _describe_exact_tokens(results: Sequence[DatasetResult]) -> str:
    """How many questions' key words were found in which way."""
    names = {"own": "your spans", "metadata": "the dataset's words", "rules": "rules"}
    totals = {
        name: sum(int(dataset.tables["counts"][f"words_by_{name}"].sum()) for dataset in results) for name in names
    }
    return ", ".join(f"{count:,} questions by {names[name]}" for name, count in totals.items() if count)


def _join_by_dataset(facts: Mapping[str, str]) -> str:
    """What is the same for all datasets once, anything else with its dataset's name."""
    different = set(facts.values())
    return different.pop() if len(different) == 1 else "; ".join(f"{name}: {text}" for name, text in facts.items())


def versions() -> dict[str, str]:
    """Versions of the libraries that compute."""
    found_versions = {"python": platform.python_version()}
    for name in _NAMED_VERSIONS:
        try:
            found_versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found_versions[name] = "not installed as a package"
    return found_versions | {plugin.package: plugin.version for plugin in installed()}


def run_warnings(run: RunFacts, results: Sequence[DatasetResult], left_out: Sequence[LeftOut]) -> list[str]:
    """Every warning of a run."""
    identity = run.model.identity
    warnings = [f"{MARK}: {identity.name} knows nothing, its chart is noise"] if identity.random_weights else []
    warnings += [f"not measured: {dataset.reason}" for dataset in left_out]
    for dataset in results:
        named = f"{dataset.name}: " if len(results) > 1 else ""
        warnings += [named + text for text in _warn_of_data(dataset, run.recipe.balance)]
    for dataset in results:
        warnings += _warn_of_unavailable(dataset)
        warnings += dataset.notes
    return warnings


def _have(n: int) -> str:
    return "has" if n == 1 else "have"


def _warn_of_data(dataset: DatasetResult, balance: str) -> Iterator[str]:
    """What a dataset's questions and answers don't allow."""
    (supplied,), (asked,) = dataset.tables["counts"]["supplied"], dataset.tables["counts"]["asked"]
    used = dataset.tables["items"].filter(pl.col("status") == "used")
    if supplied:
        yield (
            f"{supplied:,} of {asked:,} answers were supplied: the probe reads the model's states on texts that it did "
            "not write"
        )
    if dataset.balanced_by == "none":
        yield f"true and false answers are not balanced (--balance none), {_BASE_RATES}"
    elif dataset.balanced_by == "dataset":
        why = "no relations: balanced" if balance == "relation" else "balanced (--balance dataset)"
        yield f"{why} over the whole dataset, {_BASE_RATES}"
    elif missing := used["relation"].null_count():
        yield f"{missing:,} of {used.height:,} used questions {_have(missing)} no relation: balanced as one relation"
    if dataset.grouped_by == "question":
        yield "no subjects: every question is its own group, so questions about one thing may stand in several folds"
    elif dataset.grouped_by == "subject" and (missing := used["subject"].null_count()):
        yield (
            f"{missing:,} of {used.height:,} used questions {_have(missing)} no subject: each is its own group, so "
            "questions about one thing may stand in several folds"
        )
    if used.height < FOR_A_CHART:
        yield (
            f"{used.height:,} answers used, fewer than {FOR_A_CHART}: intervals are wide, and small differences stay "
            "undecided"
        )
    yield from _warn_of_thin_folds(used)


def _warn_of_thin_folds(used: pl.DataFrame) -> Iterator[str]:
    """The fold with the fewest true or false answers, if these are very few."""
    true, every = Counter(used.filter(pl.col("truthful"))["fold"]), Counter(used["fold"])
    fewest, kind = min(
        (count, kind) for fold in every for count, kind in ((true[fold], "true"), (every[fold] - true[fold], "false"))
    )
    if fewest < FEW_IN_FOLD:
        yield (
            f"one of {len(every)} folds holds {fewest} {kind} answer{'s' * (fewest != 1)}: what is measured in it "
            "depends on single ones (fewer --folds, or more questions)"
        )


def _warn_of_unavailable(dataset: DatasetResult) -> Iterator[str]:
    for (experiment,), rows in dataset.tables["unavailable"].group_by("experiment", maintain_order=True):
        more = f" (and {rows.height - 1} more, see the report)" if rows.height > 1 else ""
        reason = textwrap.shorten(rows["reason"][0], 240, placeholder=" …")
        yield f"not available on {dataset.name}, {experiment}: {reason}{more}"


@dataclass
class FirstChart:
    """The first chart: ΔP of all datasets measured so far, drawn again when the random control is measured.

    It has the path of the report's chart, is marked as preliminary, and is in the index: the report replaces it, and
    `verify` accepts a run that was stopped before that.
    """

    folder: RunFolder
    curves: dict[str, pl.DataFrame] = field(default_factory=dict)
    layers: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def draw(self, dataset: str, curves: pl.DataFrame, layers: tuple[int, ...], n_layers: int) -> None:
        """Draws it with the curves of one more dataset, or with more curves of one."""
        from anchorscope.report.charts import preliminary_chart  # only here: matplotlib takes a second

        is_first, has_random = not self.curves, "random" in set(curves["intervention"])
        if dataset in self.curves and "random" in set(self.curves[dataset]["intervention"]):
            return  # nothing new to show
        self.curves[dataset], self.layers[dataset] = curves, layers
        waiting = "the last controls are" if has_random else "controls are"
        chart = preliminary_chart(
            pl.concat(list(self.curves.values())),
            self.layers,
            n_layers,
            f"PRELIMINARY: {waiting} still running; the report replaces this chart.",
        )
        content = io.BytesIO()
        chart.write(content, "png")
        self.folder.write_early(_CHART, content.getvalue())
        if is_first:
            self.folder.progress.note(f"first chart: {self.folder.path / _CHART} (preliminary, controls still running)")
