"""The results of a run: what its datasets contribute, and how tables, manifest and report are written.

Result files are written beside the old ones and moved into place together; the manifest, written last, seals them.
Facts say what happened, not what was asked for: a file may supply its own answers and labels, and may have no relations
or subjects. Warnings say what may make the numbers less reliable; page and terminal show the same list.
"""

import platform
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import polars as pl
from safetensors.torch import save_file
from torch import Tensor

from anchorscope import result_tables
from anchorscope.answers.choose import FOR_A_CHART
from anchorscope.answers.generate import do_not_fit
from anchorscope.answers.label import balanced_by, grouped_by
from anchorscope.answers.template import FEW_SHOT
from anchorscope.artefacts.run_folder import RESULTS
from anchorscope.artefacts.schema import FEATURE_SCHEMA, features_file
from anchorscope.artefacts.step import peak_memory_mb
from anchorscope.cost import REPORT
from anchorscope.engine.sequences import SITES
from anchorscope.errors import TooFewAnswers, counted
from anchorscope.experiments.experiment import chosen_experiments
from anchorscope.files import folder_beside
from anchorscope.finished import FOR_DETECTORS, FinishedRun
from anchorscope.items import Item
from anchorscope.kept_states import BEFORE_ANSWER, CLEAN, KeptStates, write_states
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.sources import MARK
from anchorscope.plan.interventions import Missing
from anchorscope.plugins import installed
from anchorscope.recipe import Recipe, to_toml
from anchorscope.report.run_page import write_all
from anchorscope.spans.question_spans import RULES
from anchorscope.steps.job import DatasetRun, Job

_PARQUET = (
    "items",
    "effects",
    "pathways",
    "curve_samples",
    "experiment_items",
    "evidence_items",
)
_CSV = (
    "curves",
    "reference_curves",
    "probe_scores",
    "summary",
    "experiments",
    "evidence_parts",
    "evidence_tests",
)
_NAMED_VERSIONS = (
    "anchorscope",
    "torch",
    "transformers",
    "numpy",
    "polars",
    "scikit-learn",
    "safetensors",
)
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


LeftOut = Mapping[TooFewAnswers, DatasetResult]
"""Datasets with too few answers: why, and their items and counts."""


def dataset_result(run: DatasetRun) -> DatasetResult:
    """Everything that a dataset contributes to the result files; where that is what detectors read, nothing else."""
    job, recipe, ids = run.job, run.job.recipe, run.item_ids
    asked, too_long = (
        [item.question for item in run.used_items],
        do_not_fit(run["answers"], job.planner.context),
    )
    folds = dict(zip(run.used.tolist(), run.splits.folds.tolist(), strict=True))
    headline, pathways = (
        (recipe.site, recipe.position),
        None if job.for_detectors else run["tables"]["pathways"],
    )
    read_by_detectors = DatasetResult(
        name=run.name,
        tables={
            "items": result_tables.items_frame(
                run.items_with_log_probs, folds, pathways, headline
            ),
            "counts": result_tables.counts_frame(run.name, run.sample, run.items),
            "unavailable": result_tables.unavailable_frame(run.name, []),
        },
        balanced_by=balanced_by(asked, recipe.balance),
        grouped_by=grouped_by(asked, recipe.group_by),
        kept=_states_to_keep(run),
        features=pl.DataFrame(
            {"item_id": ids, **run["detection-columns"]},
            schema_overrides=FEATURE_SCHEMA,
        ).select(*FEATURE_SCHEMA)
        if "detection" in recipe.keep
        else None,
        notes=(f"{run.name}: {too_long}",) if too_long else (),
    )
    if job.for_detectors:
        return read_by_detectors
    fitted = run["probes"]
    results = {
        chosen.name: run[f"experiment-{chosen.name}"]
        for chosen in chosen_experiments(recipe.evidence)
    }
    missing = [
        absent
        for name in run.steps
        if name.startswith("effects-")
        for absent in run[name].missing
    ]
    missing += [
        Missing(name, why) for name, result in results.items() for why in result.missing
    ]
    return replace(
        read_by_detectors,
        tables={
            **run["tables"],
            **run["evidence-parts"],
            **read_by_detectors.tables,
            "effects": result_tables.effects_frame(
                run.name, ids, job.positions, run["clean-scores"], run.effects
            ),
            "experiments": result_tables.experiments_frame(
                job.model_name, run.name, headline, results
            ),
            "experiment_items": result_tables.experiment_items_frame(
                run.name, ids, results
            ),
            "unavailable": result_tables.unavailable_frame(run.name, missing),
        },
        probes=result_tables.probe_tensors(run.name, fitted),
        reference_layers=tuple(run.headline_probes.reference.tolist()),
        notes=(
            *(
                f"probe not converged: {name}"
                for probe_set in fitted.values()
                for name in probe_set.unconverged
            ),
            *read_by_detectors.notes,
            *dict.fromkeys(
                note for probe_set in fitted.values() for note in probe_set.notes
            ),
        ),
    )


def _states_to_keep(run: DatasetRun) -> list[KeptStates]:
    job, keep = run.job, run.job.recipe.keep
    headline = (job.recipe.position,), (job.recipe.site,)

    def kept(
        step: str,
        name: str,
        states: Tensor,
        positions: tuple[str, ...],
        sites: tuple[str, ...],
    ) -> KeptStates:
        return KeptStates(
            run.name,
            name,
            states,
            positions,
            tuple(run.item_ids),
            run.result(step).key,
            sites,
        )

    states = []
    if "states" in keep:
        states.append(
            kept("clean-states", CLEAN, run["clean-states"], job.positions, SITES)
        )
        states.append(
            kept(
                "before-answer",
                BEFORE_ANSWER,
                run["before-answer"][None, None],
                *headline,
            )
        )
    for name, cut in run["cut-states"].items() if "states-cut" in keep else ():
        states.append(kept("cut-states", name, cut[None, None], *headline))
    for name, at_headline in (
        run["detection-states"].items() if "detection" in keep else ()
    ):
        states.append(
            kept("detection-states", name, at_headline[None, None], *headline)
        )
    return states


def without_results(run: DatasetRun) -> DatasetResult:
    """A dataset with too few answers: its items and counts."""
    rows = zip(run.sample.questions, run["answers"], run["labels"], strict=True)
    items = [Item(*row, None) for row in rows]
    unused = [
        replace(item, label=replace(item.label, status="too few", weight=0.0))
        if item.is_used
        else item
        for item in items
    ]
    counts = result_tables.counts_frame(run.name, run.sample, unused)
    return DatasetResult(
        run.name,
        {"items": result_tables.items_frame(unused, {}), "counts": counts},
        "none",
        "question",
    )


def publish(
    job: Job,
    runs: Sequence[DatasetRun],
    results: Sequence[DatasetResult],
    left_out: LeftOut,
    key: str,
    since: float,
) -> None:
    """Writes the run's results, reads them back for the report, and moves all into place at once."""
    job.progress.begin(REPORT)
    began, folder = time.monotonic(), job.folder
    folder.forget_damaged_steps(with_large=False)  # large ones are dropped
    with folder_beside(folder.path / RESULTS) as made:
        every = [dataset.tables for dataset in (*results, *left_out.values())]
        tables = {
            name: pl.concat([own[name] for own in every if name in own])
            for name in results[0].tables
        }
        _write_files(made, tables, results)
        (made / "recipe.toml").write_text(to_toml(job.recipe), encoding="utf-8")
        manifest = _manifest(job, runs, results, left_out, tables)
        if not job.for_detectors:
            findings = FinishedRun(made, manifest, job.recipe, folder.path).findings
            write_all(findings, made, job.progress, job.recipe.report)
        manifest["steps"].append(
            _step_entry(REPORT, time.monotonic() - began, peak_memory_mb(), key)
        )
        manifest["elapsed_seconds"] = round(time.monotonic() - since, 3)
        folder.publish(made, manifest, key)
    job.progress.done(REPORT)


def _write_files(
    made: Path, tables: Mapping[str, pl.DataFrame], results: Sequence[DatasetResult]
) -> None:
    for name, table in tables.items():
        if name in _PARQUET:
            table.write_parquet(made / f"{name}.parquet")
        elif name in _CSV:
            table.write_csv(made / f"{name}.csv")
    probes = {
        name: tensor for dataset in results for name, tensor in dataset.probes.items()
    }
    if probes:
        save_file(probes, made / "probes.safetensors")
    for dataset in results:
        for states in dataset.kept:
            write_states(states, made)
        if dataset.features is not None:
            path = made / features_file(dataset.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            dataset.features.write_parquet(path)


def _manifest(
    job: Job,
    runs: Sequence[DatasetRun],
    results: Sequence[DatasetResult],
    left_out: LeftOut,
    tables: Mapping[str, pl.DataFrame],
) -> dict[str, Any]:
    recipe, identity, (first, final) = job.recipe, job.record.identity, job.batch_tokens
    workers = job.executor.facts()
    return {
        "versions": versions(),
        "seed": recipe.seed,
        "model": {**asdict(identity), "files": dict(job.record.files)},
        **({FOR_DETECTORS: True} if job.for_detectors else {}),
        **({"template": asdict(job.writer().template)} if recipe.keep else {}),
        "inputs": {
            run.name: run.source.key for run in runs if run.spec.path is not None
        },
        "counts": tables["counts"].to_dicts(),
        "facts": facts_in_words(recipe, identity, (first, final), results),
        "balanced_by": {dataset.name: dataset.balanced_by for dataset in results},
        "grouped_by": {dataset.name: dataset.grouped_by for dataset in results},
        "reference_layers": {
            dataset.name: list(dataset.reference_layers) for dataset in results
        },
        "unavailable": tables["unavailable"].to_dicts(),
        "batch_tokens": {"asked": first, "final": final},
        "warnings": run_warnings(recipe, identity, results, left_out),
        "events": list(job.folder.events),
        "numerics": asdict(job.record.numerics),
        **({} if workers is None else {"workers": workers}),
        "steps": [
            _step_entry(name, step.seconds, step.peak_memory_mb, step.key)
            for name, step in job.folder.steps.items()
        ],
    }


def _step_entry(
    name: str, seconds: float, peaks: Mapping[str, float], key: str
) -> dict[str, Any]:
    peak = max(peaks.values())
    return {
        "step": name,
        "seconds": round(seconds, 3),
        "peak_memory_mb": peak,
        "peaks": peaks,
        "key": key,
    }


def facts_in_words(
    recipe: Recipe,
    identity: ModelIdentity,
    batch_tokens: tuple[int, int],
    results: Sequence[DatasetResult],
) -> dict[str, str]:
    first, final = batch_tokens
    examples = (
        "no examples" if recipe.prompt == "zero-shot" else f"{len(FEW_SHOT)} examples"
    )
    lowered = f", lowered to {final} when memory ran out" if final != first else ""
    return {
        "model": f"{identity.name} ({identity.architecture}, {identity.n_layers} layers, {identity.d_model} wide, "
        f"{identity.parameters / 1e6:,.0f} million parameters)",
        "weights": f"{identity.source}, fingerprint {identity.fingerprint[:16]}",
        "questions": ", ".join(recipe.datasets)
        + (f", at most {recipe.limit} each" if recipe.limit else ""),
        "prompt": f"{recipe.prompt}, {examples}"
        + " as earlier turns" * (recipe.prompt == "chat"),
        "answers": _join_by_dataset(
            {
                dataset.name: _answers(dataset, recipe.max_new_tokens)
                for dataset in results
            }
        ),
        "labels": _join_by_dataset(
            {dataset.name: _describe_labels(dataset) for dataset in results}
        ),
        "exact tokens": _describe_exact_tokens(results),
        "headline": f"site {recipe.site}, position {recipe.position}, edges {recipe.edges}",
        "balance": _join_by_dataset(
            {
                dataset.name: f"{_BALANCED[dataset.balanced_by]}; {_GROUPED[dataset.grouped_by]}"
                for dataset in results
            }
        ),
        "statistics": f"{recipe.folds} folds, {recipe.bootstrap} bootstrap resamples, seed {recipe.seed}",
        "device": f"{identity.device}, {identity.dtype}, batches of {first} tokens{lowered}",
        "versions": ", ".join(
            f"{name} {version}" for name, version in versions().items()
        ),
    }


def _answers(dataset: DatasetResult, longest: int) -> str:
    """How many answers were generated, and how many supplied."""
    (asked,), (supplied,) = (
        dataset.tables["counts"]["asked"],
        dataset.tables["counts"]["supplied"],
    )
    generated = (
        f"{asked - supplied:,} generated (greedy, at most {longest} tokens)"
        if asked > supplied
        else ""
    )
    return ", ".join(
        filter(None, (generated, f"{supplied:,} supplied" if supplied else ""))
    )


def _describe_labels(dataset: DatasetResult) -> str:
    counts = dataset.tables["counts"].row(0, named=True)
    graded = counts["true"] + counts["false"] - counts["supplied_labels"]
    counted = {
        "graded against the accepted answers": graded,
        "supplied": counts["supplied_labels"],
    }
    return ", ".join(f"{count:,} {how}" for how, count in counted.items() if count)


def _describe_exact_tokens(results: Sequence[DatasetResult]) -> str:
    """How many questions' key words were found in which way."""
    totals = {
        name: sum(
            int(dataset.tables["counts"][f"words_by_{name}"].sum())
            for dataset in results
        )
        for name in RULES
    }
    return ", ".join(
        f"{count:,} questions by {RULES[name]}"
        for name, count in totals.items()
        if count
    )


def _join_by_dataset(facts: Mapping[str, str]) -> str:
    """What is the same for all datasets once, anything else with its dataset's name."""
    different = set(facts.values())
    return (
        different.pop()
        if len(different) == 1
        else "; ".join(f"{name}: {text}" for name, text in facts.items())
    )


def versions() -> dict[str, str]:
    found_versions = {"python": platform.python_version()}
    for name in _NAMED_VERSIONS:
        try:
            found_versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found_versions[name] = "not installed as a package"
    return found_versions | {plugin.package: plugin.version for plugin in installed()}


def run_warnings(
    recipe: Recipe,
    identity: ModelIdentity,
    results: Sequence[DatasetResult],
    left_out: Iterable[TooFewAnswers],
) -> list[str]:
    warnings = (
        [f"{MARK}: {identity.name} knows nothing, its chart is noise"]
        if identity.random_weights
        else []
    )
    warnings += [f"not measured: {reason}" for reason in left_out]
    for dataset in results:
        named = f"{dataset.name}: " if len(results) > 1 else ""
        warnings += [named + text for text in _warn_of_data(dataset, recipe.balance)]
    for dataset in results:
        warnings += _warn_of_unavailable(dataset)
        warnings += dataset.notes
    return warnings


def _warn_of_data(dataset: DatasetResult, balance: str) -> Iterator[str]:
    """What a dataset's questions and answers don't allow."""
    (supplied,), (asked,) = (
        dataset.tables["counts"]["supplied"],
        dataset.tables["counts"]["asked"],
    )
    used = dataset.tables["items"].filter(pl.col("status") == "used")
    if supplied:
        yield (
            f"{supplied:,} of {asked:,} answers were supplied: the probe reads the model's states on texts that it did "
            "not write"
        )
    if dataset.balanced_by == "none":
        yield f"true and false answers are not balanced (--balance none), {_BASE_RATES}"
    elif dataset.balanced_by == "dataset":
        why = (
            "no relations: balanced"
            if balance == "relation"
            else "balanced (--balance dataset)"
        )
        yield f"{why} over the whole dataset, {_BASE_RATES}"
    elif without := _count_missing(used, "relation"):
        yield f"{without}: balanced as one relation"
    if dataset.grouped_by == "question":
        yield "no subjects: every question is its own group, so questions about one thing may stand in several folds"
    elif dataset.grouped_by == "subject" and (
        without := _count_missing(used, "subject")
    ):
        yield f"{without}: each is its own group, so questions about one thing may stand in several folds"
    if used.height < FOR_A_CHART:
        yield (
            f"{used.height:,} answers used, fewer than {FOR_A_CHART}: intervals are wide, and small differences stay "
            "undecided"
        )
    yield from _warn_of_thin_folds(used)


def _count_missing(used: pl.DataFrame, column: str) -> str:
    missing = used[column].null_count()
    verb = "has" if missing == 1 else "have"
    return (
        f"{missing:,} of {used.height:,} used questions {verb} no {column}"
        if missing
        else ""
    )


def _warn_of_thin_folds(used: pl.DataFrame) -> Iterator[str]:
    """The fold with the fewest true or false answers, if these are very few."""
    true, every = (
        Counter(used.filter(pl.col("truthful"))["fold"]),
        Counter(used["fold"]),
    )
    fewest, kind = min(
        (count, kind)
        for fold in every
        for count, kind in ((true[fold], "true"), (every[fold] - true[fold], "false"))
    )
    if fewest < FEW_IN_FOLD:
        yield (
            f"one of {len(every)} folds holds {counted(fewest, f'{kind} answer')}: what is measured in it "
            "depends on single ones (fewer --folds, or more questions)"
        )


def _warn_of_unavailable(dataset: DatasetResult) -> Iterator[str]:
    for (experiment,), rows in dataset.tables["unavailable"].group_by(
        "experiment", maintain_order=True
    ):
        more = (
            f" (and {rows.height - 1} more, see the report)" if rows.height > 1 else ""
        )
        reason = textwrap.shorten(rows["reason"][0], 240, placeholder=" …")
        yield f"not available on {dataset.name}, {experiment}: {reason}{more}"
