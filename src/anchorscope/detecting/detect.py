"""`detect` from top to bottom: read finished runs, fit every detector, test it at home and elsewhere, save, report.

Everything comes from what the runs kept; what they did not keep is computed first, into the run's own folder. The
result folder is written whole or not at all, and a finished one of the same runs and options is returned as it is.
Runs of one model may be given together; a dataset asked under another prompt is only tested on.
"""

import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float
from scipy.special import expit

from anchorscope.answers.label import group_keys
from anchorscope.answers.template import Template
from anchorscope.artefacts.forms import DETECTION_VERSION
from anchorscope.artefacts.sealed_folder import SealedFolder, damage, only_hashes
from anchorscope.catalogue import DETECTORS, KNOCKOUT, LOADED
from anchorscope.detecting.inputs import (
    BUNDLES,
    completion,
    missing_keep,
    open_runs,
    shown_name,
)
from anchorscope.detecting.inputs import DetectOptions as DetectOptions
from anchorscope.detectors.auto import Ranges
from anchorscope.detectors.bundle import (
    Card,
    DetectorSetting,
    TrainedDetector,
    write_bundle,
)
from anchorscope.detectors.evaluation import TABLES, Evaluation, Plan, TrainedOn, pooled
from anchorscope.detectors.features import CLEAN, Features, StateKey, text_columns
from anchorscope.detectors.fits import missing_feature
from anchorscope.detectors.fitted import TrainingRange
from anchorscope.detectors.recommend import recommend
from anchorscope.detectors.training import Dataset
from anchorscope.errors import UserError, counted, faults_as_user_errors
from anchorscope.evidence.source_use import FOLLOWED, UseCalibration, calibrate_use
from anchorscope.files import canonical_hash
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.kept_states import features_file, read_header, read_layer, states_file
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.models.sources import is_shape, locate
from anchorscope.pipeline import run_recipe
from anchorscope.probes.chunks import chunk_bytes
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import Recipe
from anchorscope.report.detection import (
    DetectionContext,
    DetectionResults,
    write_detection_report,
)
from anchorscope.results import versions
from anchorscope.stats.calibration import (
    Calibration,
    Threshold,
    threshold_at_coverage,
    threshold_at_risk,
    without_dominated,
)
from anchorscope.stats.detection_metrics import BINS, CPU, reliability_bins
from anchorscope.stats.streams import priorities

_EPOCH = 3  # raised when detectors come to give other numbers: a comparison made before is made again
ENOUGH_TRUE = 200
"""True answers from which on a dataset is trained on where others can be as well."""


def complete_runs(
    runs: Sequence[FinishedRun], options: DetectOptions, progress: Progress
) -> tuple[list[FinishedRun], list[str]]:
    """The runs with all that the wanted detectors read, and warnings about what stays missing.

    What a run did not keep is computed by running its recipe again in its folder, where only that is new.
    """
    completed, warnings = [], []
    for run in runs:
        missing = missing_keep(run, options.wanted)
        reason = _why_not_computed(run, missing) if missing else None
        if missing and reason is None:
            progress.note(completion(run, missing))
            keep = tuple(dict.fromkeys([*run.recipe.keep, *missing]))
            recipe = Recipe.model_validate(run.recipe.model_dump() | {"keep": keep})
            run_recipe(
                recipe,
                run.path,
                progress=progress,
                for_detectors=run.is_for_detectors,
                fit_seeds=options.seeds,
            )
            run = open_finished(run.path, checked=False)
        elif any(
            states_file(name, CLEAN) not in run.manifest["sha256"]
            for name in run.manifest["reference_layers"]
        ):
            raise UserError(
                f"The run {str(run.path)!r} kept no states, and they cannot be computed now: {reason}."
            )
        elif missing:
            warnings.append(
                f"{run.path.name} did not keep {' and '.join(missing)}, not computed now: {reason}"
            )
        completed.append(run)
    return completed, warnings


def _why_not_computed(run: FinishedRun, missing: Sequence[str]) -> str | None:
    """Why a run cannot be completed; None where it can."""
    keep = ",".join(missing)
    if run.manifest["model"]["source"] == LOADED:
        return f"its model was given in memory, so call anchorscope.run again with keep={keep!r}"
    if run.recipe.trust_remote_code:
        again = f"anchorscope run {run.path}/recipe.toml --out {run.path} --keep {keep} --trust-remote-code"
        return f"code that comes with its model would run; if you trust it: {again}"
    try:
        if not is_shape(run.recipe.model):
            locate(run.recipe.model)
    except UserError as error:
        return str(error).rstrip(".")
    return None


@dataclass(frozen=True)
class RunDataset:
    data: Dataset
    run: FinishedRun
    longest: int
    """Tokens of the longest used prompt with its answer."""
    about: str
    """Its answers in a few words, for card and page."""
    other_prompt: bool
    """Whether it is there to show what another prompt does."""

    @property
    def setting(self) -> DetectorSetting:
        manifest, recipe = self.run.manifest, self.run.recipe
        chosen = {
            name: getattr(recipe, name)
            for name in ("position", "edges", "exact_tokens", "max_new_tokens")
        }
        return DetectorSetting.of(
            manifest["model"], Template(**manifest["template"]), **chosen
        )


def read_runs(
    runs: Sequence[FinishedRun],
    detectors: Sequence[str] = (),
    device: torch.device = CPU,
) -> list[RunDataset]:
    """Every dataset of the runs, in order, with the states that the named detectors read; all by default.

    The states go to the device where they take no more of it than what is fitted at once.
    """
    wanted = {
        CLEAN,
        KNOCKOUT,
        *(run for name in detectors or DETECTORS for run in DETECTORS[name].runs),
    }
    kept = [
        run.path / name
        for run in runs
        for name in run.manifest["sha256"]
        if Path(name).stem in wanted
    ]
    place = (
        device
        if sum(path.stat().st_size for path in kept) <= chunk_bytes(device)
        else CPU
    )
    return [
        _read(run, name, runs[0], wanted, place)
        for run in runs
        for name in run.manifest["reference_layers"]
    ]


_OF_MANIFEST = ("template", "source", "tokenizer", "d_model")
_OF_USED = ("question", "model_answer", "truthful", "group", "weight", "input_ids")
"""Columns in which every item with states has a value."""
_OF_ITEMS = (*_OF_USED, "relation", "subject", "confidence_mean", "confidence_min")
"""Columns that are read."""


def _read(
    run: FinishedRun,
    name: str,
    first: FinishedRun,
    wanted: Collection[str],
    place: torch.device,
) -> RunDataset:
    facts = {**run.manifest, **run.manifest["model"]}
    missing = [entry for entry in _OF_MANIFEST if facts.get(entry) is None]
    if missing:
        raise UserError(
            f"The run {str(run.path)!r} has no {missing[0]} in its manifest.json; run it again into another folder."
        )
    items = run.parquet("items").filter(pl.col("dataset") == name)
    ids = read_header(run.checked_file(states_file(name, CLEAN))).item_ids
    used = items.filter(pl.col("status") == "used").with_columns(
        pl.col("item_id").cast(pl.String)
    )
    used = pl.DataFrame({"item_id": ids}).join(
        used, on="item_id", how="left", maintain_order="left"
    )
    there = used.columns
    empty = [column for column in _OF_ITEMS if column not in there]
    empty += [
        column for column in _OF_USED if column in there and used[column].null_count()
    ]
    if empty or not ids:
        raise UserError(
            f"The run {str(run.path)!r} has states of items of {name!r} that lack {', '.join(empty) or 'everything'}; "
            f"run it again into another folder."
        )
    graded = items.filter(
        pl.col("truthful").is_not_null()
        & pl.col("status").is_in(["used", "unbalanced"])
    )
    questions, answers = used["question"].to_list(), used["model_answer"].to_list()
    data = Dataset(
        shown_name(run, name, first),
        Features(
            len(ids),
            _states(run, name, wanted, place),
            _columns(run, name, used) | text_columns(questions, answers),
        ),
        used["truthful"].to_numpy().astype(bool),
        used["group"].to_numpy().astype(np.int64),
        used["relation"].to_list(),
        ids,
        used["weight"].to_numpy().astype(np.float64),
        [
            frozenset(group_keys(*row))
            for row in zip(questions, used["subject"].to_list(), strict=True)
        ],
    )
    share = float(graded["truthful"].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]
    longest = int(used["input_ids"].list.len().max())  # type: ignore[arg-type]
    about = f"{len(ids)} answers, {data.labels.sum()} true; {share:.1%} true among all {graded.height} that were graded"
    return RunDataset(
        data, run, longest, about, run.recipe.prompt != first.recipe.prompt
    )


def _states(
    run: FinishedRun, name: str, wanted: Collection[str], place: torch.device
) -> dict[StateKey, torch.Tensor]:
    """Clean states at the headline site and in the residual stream; other runs' at the site."""
    states: dict[StateKey, torch.Tensor] = {}
    for listed in sorted(
        run.manifest["sha256"]
    ):  # what lies there beside them is none of ours
        path = run.path / listed
        if listed != states_file(name, path.stem) or path.stem not in wanted:
            continue
        run.checked_file(listed)
        sites = dict.fromkeys(
            (run.recipe.site, "residual") if path.stem == CLEAN else (run.recipe.site,)
        )
        for site in sites:
            for layer in read_header(path).layers:
                states[path.stem, site, layer] = read_layer(
                    path, site, run.recipe.position, layer
                ).to(place)
                if not bool(torch.isfinite(states[path.stem, site, layer]).all()):
                    raise UserError(
                        f"The {path.stem} states of {name!r} in {str(run.path)!r} hold NaN or infinity (site {site}, "
                        f"layer {layer}); run it again with --dtype float32 or bfloat16."
                    )
    return states


def _columns(run: FinishedRun, name: str, used: pl.DataFrame) -> dict[str, np.ndarray]:
    """Plain numbers: those that were kept for detectors, or the two that every run has."""
    numbers, kept_file = (
        used.select(log_prob_mean="confidence_mean", log_prob_min="confidence_min"),
        features_file(name),
    )
    if kept_file in run.manifest["sha256"]:
        kept = run.parquet(kept_file.removesuffix(".parquet")).with_columns(
            pl.col("item_id").cast(pl.String)
        )
        numbers = (
            used.select("item_id")
            .join(kept, on="item_id", how="left", maintain_order="left")
            .drop("item_id")
        )
    values = {
        column: numbers[column].to_numpy().astype(np.float64)
        for column in numbers.columns
    }
    return {column: each for column, each in values.items() if np.isfinite(each).all()}


MANIFEST = "detection.json"
FOLDER = SealedFolder("comparison of detectors", "anchorscope detect", MANIFEST)


class Detection:
    """A finished comparison of detectors; tables are read when they are first asked for.

    `manifest["saved"]` has every saved detector: its folder, its AUROC with interval by dataset, its thresholds, and
    its passes through the model beyond those that wrote the answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = FOLDER.read(path)

    def __repr__(self) -> str:
        return f"Detection({str(self.path)!r}, model={self.manifest['model']!r})"

    @cached_property
    def detectors(self) -> pl.DataFrame:
        return self._table("detectors")

    @cached_property
    def differences(self) -> pl.DataFrame:
        """Paired differences to confidence, to the probe, and to both together."""
        return self._table("differences")

    @property
    def recommended(self) -> Path | None:
        """The bundle to use; None where none is recommended or it was not saved."""
        saved = self.manifest.get("saved", {}).get(self.manifest.get("recommended"))
        return None if saved is None else self.path / saved["path"]

    def _table(self, name: str) -> pl.DataFrame:
        return pl.read_csv(
            FOLDER.checked_file(self.path, self.manifest, f"{name}.csv"),
            schema=TABLES[name],
        )


@faults_as_user_errors()
def detect(
    runs: Sequence[str | Path | Any] | str | Path | Any,
    *,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Detection:
    """Fits and compares detectors on finished runs, into the folder `out`; options as `DetectOptions`.

    Where one run is given, `out` is by default the folder `detectors` in it. What a run did not keep is computed.
    """
    began, listener, chosen = (
        time.monotonic(),
        progress or Silent(),
        DetectOptions(**options),
    )
    given: Sequence[Any] = (
        [runs] if isinstance(runs, str | Path) or hasattr(runs, "path") else runs
    )
    paths = [Path(getattr(run, "path", run)) for run in given]
    if out is None and len(paths) > 1:
        raise UserError(
            f"{len(paths)} runs are given, and no folder for the result; name one with --out."
        )
    opened = open_runs(paths)
    folder_path = paths[0] / "detectors" if out is None else Path(out)
    FOLDER.refuse_foreign(folder_path)
    device = checked_device(choose_device(chosen.device))
    opened, warnings = complete_runs(opened, chosen, listener)
    key = _key(opened, chosen)
    if not chosen.fresh:
        with suppress(UserError):
            made = Detection(folder_path)
            if (
                made.manifest.get("inputs_sha256") == key
                and damage(folder_path, only_hashes(made.manifest["sha256"])) is None
            ):
                return made
    listener.plan(())
    listener.start("read states", 1)
    sources = read_runs(opened, (*chosen.wanted, *BUNDLES), device)
    listener.advance(1)
    listener.finish()
    job = _Job(sources, chosen, device, listener, warnings)
    command, model = (
        _command(paths, folder_path, chosen),
        str(sources[0].run.manifest["model"]["name"]),
    )
    with FOLDER.fresh(folder_path) as folder:
        job.compare()
        for name, rows in job.evaluation.tables.items():
            pl.DataFrame(rows, schema=TABLES[name], orient="row").write_csv(
                folder / f"{name}.csv"
            )
        results = DetectionResults(folder)
        recommendation = recommend(results.names, results.mean)
        best = () if recommendation is None else (recommendation.detector,)
        saved = job.save(folder / "bundles", (*job.bundles, *best))
        context = DetectionContext(
            model,
            {source.data.name: source.about for source in sources},
            f"{'run' if len(paths) == 1 else 'runs'} {', '.join(path.name for path in paths)}; "
            f"{counted(chosen.seeds, 'fold seed')}; "
            f"{time.monotonic() - began:.0f} s",
            command,
            {name: record["path"] for name, record in saved.items()},
            tuple(job.warnings),
            job.left_out,
        )
        card = write_detection_report(results, context, recommendation, folder)
        is_trusted = card.trust is not None and card.trust.verdict != "no"
        recommended = best[0] if best and is_trusted else None
        FOLDER.seal(
            folder,
            {
                "version": DETECTION_VERSION,
                "model": model,
                "runs": [path.name for path in paths],
                "command": command,
                "trained_on": [dataset.name for dataset in job.trainable],
                "bundles": sorted(saved),
                "saved": saved,
                "recommended": recommended,
                "recommendation": recommendation and recommendation.record(),
                "answer": card.sentence,
                "trust": card.trust.words() if card.trust else "",
                "left_out": dict(job.left_out),
                "warnings": list(job.warnings),
                "seconds": round(time.monotonic() - began, 1),
                "inputs_sha256": key,
            },
        )
    return Detection(folder_path)


def _key(runs: Sequence[FinishedRun], options: DetectOptions) -> str:
    """What a result depends on: the runs' tables and states, wherever they are, the options, the versions."""
    chosen = {
        name: value for name, value in vars(options).items() if name != "fresh"
    } | {"detectors": options.wanted}
    hashes = [
        {
            name: sha256
            for name, sha256 in run.manifest["sha256"].items()
            if name.endswith((".parquet", ".safetensors"))
        }
        for run in runs
    ]
    return canonical_hash([hashes, chosen, versions(), DETECTION_VERSION, _EPOCH])


def _command(paths: Sequence[Path], out: Path, options: DetectOptions) -> str:
    """What repeats it from where it was made: every option that was set."""
    command = ["anchorscope", "detect", *map(_named, paths)]
    if out != paths[0] / "detectors":
        command += ["--out", _named(out)]
    for option in fields(options):
        value = getattr(options, option.name)
        if value != option.default and option.name != "fresh":
            words = value if isinstance(value, tuple) else (value,)
            command += [
                "--risk" if option.name == "risks" else f"--{option.name}",
                ",".join(map(str, words)),
            ]
    return shlex.join(filter(None, command))


def _named(path: Path) -> str:
    """A folder in a command that is printed; of an absolute path the name alone, which says nothing of the machine."""
    return path.name if path.is_absolute() else str(path)


class _Job:
    def __init__(
        self,
        sources: Sequence[RunDataset],
        options: DetectOptions,
        device: torch.device,
        progress: Progress,
        warnings: Sequence[str],
    ) -> None:
        self.sources, self.options, self.device, self.progress = (
            sources,
            options,
            device,
            progress,
        )
        self.site = sources[0].run.recipe.site
        own = [source for source in sources if not source.other_prompt]
        enough = [source for source in own if source.data.labels.sum() >= ENOUGH_TRUE]
        self.trained_on = enough or own
        """What detectors learn from; datasets with few true answers only where no other has more."""
        self.trainable = [source.data for source in self.trained_on]
        plan = Plan(options.folds, options.seeds, options.tosses, options.seed)
        names = options.detectors or tuple(DETECTORS)
        self.evaluation = Evaluation(
            plan, options.resamples, names, progress, len(self.trained_on), device
        )
        few = () if enough else own
        self.warnings = [
            f"{it.data.name} has fewer than {ENOUGH_TRUE} true answers: intervals are wide"
            for it in few
        ]
        self.warnings += warnings
        self.left_out: dict[str, str] = {}
        self.bundles = (
            tuple(name for name in BUNDLES if name in names)
            if options.bundles is None
            else options.bundles
        )
        for name in self.bundles:
            for dataset in self.trainable:
                missing = missing_feature(name, dataset.features, self.site)
                if missing is not None and options.bundles is not None:
                    raise UserError(
                        f"The detector {name!r} cannot be saved: {missing} ({dataset.name}); leave it out of --bundles."
                    )
                if missing is not None:
                    self.left_out[name] = missing

    def compare(self) -> None:
        """Every detector on every dataset; then every dataset by detectors of all the others together."""
        evaluation = self.evaluation
        for dataset in self.trainable:
            trained = TrainedOn(dataset, self.site, evaluation.plan, self.device)
            evaluation.in_domain(trained)
            self.left_out |= {
                name: why
                for name, why in trained.left_out.items()
                if name in evaluation.names
            }
            others = [
                source.data for source in self.sources if source.data is not dataset
            ]
            if others:
                evaluation.elsewhere(trained, others)
        # What cannot be taken to other data (the relation) need not be fitted again.
        movable = {
            row["detector"]
            for row in evaluation.tables["detectors"]
            if row["train"] != row["test"]
        }
        evaluation = replace(
            evaluation, names=[name for name in evaluation.names if name in movable]
        )
        once = replace(evaluation.plan, seeds=1, tosses=0)
        for target in (
            source.data for source in self.sources if not source.other_prompt
        ):
            others = [dataset for dataset in self.trainable if dataset is not target]
            if len(others) > 1:
                evaluation.elsewhere(
                    TrainedOn(
                        pooled(others, f"all but {target.name}"),
                        self.site,
                        once,
                        self.device,
                    ),
                    [target],
                )

    def save(self, folder: Path, wanted: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Fits the wanted detectors on all trainable datasets together, and writes their bundles."""
        data = (
            self.trainable[0]
            if len(self.trainable) == 1
            else pooled(self.trainable, "all")
        )
        plan = replace(self.evaluation.plan, seeds=0, tosses=0)
        trained = TrainedOn(data, self.site, plan, self.device)
        saved: dict[str, dict[str, Any]] = {}
        names = [name for name in dict.fromkeys(wanted) if name in trained.names]
        self.progress.start("bundles", len(names))
        span = Ranges(trained.fits.data, trained.dataset.groups, CLEAN).build(
            trained.whole
        )
        for name in names:
            rows = [
                row
                for row in self.evaluation.tables["detectors"]
                if row["detector"] == name
            ]
            made = trained_detector(
                trained, name, self.trained_on, span, rows, self.options.risks
            )
            write_bundle(folder / name, made)
            saved[name] = self._describe_saved(made, f"{folder.name}/{name}", rows)
            self.progress.advance(1)
        self.progress.finish()
        return saved

    def _describe_saved(
        self, made: TrainedDetector, path: str, rows: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """What the manifest says of a bundle; warns of one that accepts nothing."""
        if made.thresholds and all(
            threshold.probability is None for threshold in made.thresholds
        ):
            risks = ", ".join(f"{threshold.risk:.0%}" for threshold in made.thresholds)
            self.warnings.append(
                f"{made.name} calls no answer true at any of its risks ({risks}): it can only rank answers; ask more "
                f"questions (--limit), or name a higher --risk"
            )
        return {
            "path": path,
            "auroc": {
                row["test"]: [row["value"], row["ci_low"], row["ci_high"]]
                for row in rows
                if (row["train"], row["metric"], row["prevalence"])
                == (row["test"], "auroc", "balanced")
            },
            "thresholds": [
                {
                    name: getattr(threshold, name)
                    for name in ("risk", "probability", "coverage")
                }
                for threshold in made.thresholds
            ],
            "passes": DETECTORS[made.name].passes,
        }


LIMITS = (
    "The probability is calibrated for questions like those of the training data, at their natural share of true "
    "answers; on other questions it is a score.",
    "A threshold keeps its risk for exchangeable answers only: drawn as the training answers were.",
    "Truth is what the grader calls true.",
)
RISKS = (0.1, 0.05, 0.2, 0.3)
"""Risks that bundles have thresholds for where none are named."""
LEADING_COVERAGE = 0.3
"""Answers that are accepted where no risk is named; the risk is what was measured on these."""


def trained_detector(
    trained: TrainedOn,
    name: str,
    sources: Sequence[RunDataset],
    span: TrainingRange,
    rows: Sequence[dict[str, Any]],
    risks: Sequence[float],
) -> TrainedDetector:
    """One detector, ready for use; `sources` are its data, `span` their range, `rows` those of `detectors.csv`."""
    build, dataset, number = (
        trained.fits.fit(name).build,
        trained.dataset,
        trained.whole,
    )
    assert build is not None, "what cannot be saved is refused before"
    fitted, scale = build(number), trained.calibration(name, natural=True)
    labels, natural, groups = dataset.labels, dataset.natural, dataset.groups
    (slope,), bias = scale.of_set(number)
    probability = expit(scale.scores[number].cpu().numpy())
    # One item of each group, drawn by lot: those of one group are not independent, and files have an order.
    by_lot = np.argsort(
        priorities(trained.plan.seed, "threshold items", dataset.item_ids),
        kind="stable",
    )
    one_each = by_lot[np.unique(groups[by_lot], return_index=True)[1]]
    about = "; ".join(f"{source.data.name}: {source.about}" for source in sources)
    card = Card(
        about if len(sources) == 1 else f"{dataset.features.n_items} answers ({about})",
        tuple(
            {key: value for key, value in row.items() if value == value} for row in rows
        ),  # NaN: JSON has none
        tuple(
            sorted({str(row["test"]) for row in rows if row["test"] != row["train"]})
        ),
        LIMITS,
        versions(),
        calibration_rows(probability, labels, natural),
    )
    return TrainedDetector(
        name=name,
        fitted=fitted,
        calibration=Calibration(
            slope, bias, float(natural[labels].sum() / natural.sum())
        ),
        setting=sources[0].setting,
        card=card,
        thresholds=thresholds_at(
            probability[one_each], labels[one_each], natural[one_each], risks
        ),
        range=replace(span, longest=max(source.longest for source in sources)),
        context_use=calibrate_context_use([source.run for source in sources]),
    )


def calibrate_context_use(runs: Sequence[FinishedRun]) -> UseCalibration | None:
    """How `context_used` becomes a probability, from items that show what their answers went by; None for too few."""
    frames, on = [], ["dataset", "item_id"]
    by_path = {
        run.path: run
        for run in runs
        if "experiment_items.parquet" in run.manifest["sha256"]
    }
    for path, run in by_path.items():
        of_context = (pl.col("experiment") == "sources") & (
            pl.col("variant") == "context"
        )
        values = run.parquet("experiment_items").filter(of_context)
        used, followed = (
            values.filter(pl.col("quantity") == quantity).select(
                *on, pl.col("value").alias(quantity)
            )
            for quantity in ("context_used", FOLLOWED)
        )
        groups = run.parquet("items").select(
            *on, group=pl.lit(f"{path} ") + pl.col("group").cast(pl.String)
        )
        frames.append(used.join(followed, on=on).join(groups, on=on))
    if not frames:
        return None
    every = pl.concat(frames)
    return calibrate_use(
        *(every[name].to_numpy() for name in ("context_used", FOLLOWED, "group"))
    )


def thresholds_at(
    probability: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    weights: Float[np.ndarray, " item"],
    risks: Sequence[float] = (),
) -> tuple[Threshold, ...]:
    """Thresholds for these risks; where none are named, one that accepts `LEADING_COVERAGE` leads the usual ones.

    A larger risk never accepts less. None where all answers are of one kind: no risk can be measured on them.
    """
    if not 0 < labels.sum() < len(labels):
        return ()
    at_risks = [
        threshold_at_risk(probability, labels, risk, weights=weights)
        for risk in risks or RISKS
    ]
    leading = threshold_at_coverage(
        probability, labels, LEADING_COVERAGE, weights=weights
    )
    if not risks and leading.probability is not None:
        at_risks.insert(0, leading)
    return without_dominated(at_risks)


def calibration_rows(
    probability: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    weights: Float[np.ndarray, " item"],
) -> tuple[dict[str, Any], ...]:
    """Predicted and true shares in bins of equal width that hold answers, as `Card.calibration` has them."""
    bins = reliability_bins(probability, labels, weights, BINS, equal_width=True)
    counted = reliability_bins(probability, labels, None, BINS, equal_width=True)
    rows = zip(
        bins.probability.tolist(),
        bins.rate.tolist(),
        (counted.mass * len(labels)).tolist(),
        strict=True,
    )
    return tuple(
        {
            "low": index / BINS,
            "high": (index + 1) / BINS,
            "n": round(n),
            "said": round(mean, 4),
            "true": round(rate, 4),
        }
        for index, (mean, rate, n) in enumerate(rows)
        if bins.mass[index] > 0
    )
