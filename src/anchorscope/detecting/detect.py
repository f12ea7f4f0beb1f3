"""`detect` from top to bottom: read finished runs, fit every detector, test it at home and elsewhere, save, report.

Everything comes from what the runs kept; what they did not keep is computed first, into the run's own folder. The
result folder is written whole or not at all, and a finished one of the same runs and options is returned as it is.
Runs of one model may be given together; a dataset asked under another prompt is only tested on.
"""

import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from jaxtyping import Bool, Float, Int

from anchorscope.answers.template import Template
from anchorscope.artefacts.schema import (
    DETECTION_VERSION,
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.artefacts.sealed_folder import SealedFolder
from anchorscope.catalogue import DETECTION_RUNS, DETECTORS, LOADED
from anchorscope.cost import DatasetSize, ModelSize, measured_rate, report_cost, step_costs
from anchorscope.datasets.text import normalise, question_key, words
from anchorscope.detecting.inputs import BUNDLES, IN_ITEMS, missing_keep, open_runs, shown_name
from anchorscope.detecting.inputs import DetectOptions as DetectOptions
from anchorscope.detecting.tables import Evaluation, Tables
from anchorscope.detectors.bundle import write_bundle
from anchorscope.detectors.evaluation import Dataset, Plan, TrainedOn, pooled
from anchorscope.detectors.features import CLEAN, Features, StateKey
from anchorscope.detectors.fits import Texts
from anchorscope.detectors.fitted import Fitted, TrainingRange, WithFallback
from anchorscope.detectors.layer_probes import LayerProbes, fit_layer_probes
from anchorscope.detectors.trained import Card, DetectorSetting, TrainedDetector
from anchorscope.detectors.training import INNER_FOLDS, Examples
from anchorscope.engine.sequences import SITES
from anchorscope.errors import UserError, faults_as_user_errors
from anchorscope.files import canonical_hash
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.kept_states import features_place, kept_bytes, place_of, read_header, read_layer, refuse_full_disk
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.models.sources import is_shape, locate
from anchorscope.pipeline import run_recipe
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import Recipe
from anchorscope.report.detection.detection_page import write_detection_report
from anchorscope.report.detection.results import DatasetFacts, DetectionContext
from anchorscope.results import versions
from anchorscope.stats.calibration import Calibration, Threshold, threshold_at_coverage, threshold_at_risk
from anchorscope.stats.detection_metrics import BINS, reliability_bins
from anchorscope.stats.streams import priorities

ENOUGH_TRUE = 200
"""True answers from which on a dataset is trained on where others can be as well."""
_STEPS = {
    "states": ("clean-states",),
    "states-cut": ("effects-knockout",),
    "detection": ("answer-alone", "detection-samples", "detection-columns", "detection-states"),
}
"""Passes of a run behind each word of `--keep`, as `cost.step_costs` names them."""


def complete_runs(
    runs: Sequence[FinishedRun], options: DetectOptions, progress: Progress
) -> tuple[list[FinishedRun], list[str]]:
    """The runs with all that the wanted detectors read, and warnings about what stays missing.

    What a run did not keep is computed by running its recipe again in its folder, where only that is new.
    """
    completed, warnings = [], []
    for run in runs:
        missing = missing_keep(run, options.wanted)
        reason = _why_not_computed(run, options) if missing else None
        if missing and reason is None:
            recipe = run.recipe.model_copy(update={"keep": tuple(dict.fromkeys([*run.recipe.keep, *missing]))})
            progress.note(_announce(run, recipe, missing))
            run_recipe(Recipe.model_validate(recipe.model_dump()), run.path, progress=progress)
            run = open_finished(run.path, checked=False)
        elif "states" in missing:
            raise UserError(f"The run {str(run.path)!r} kept no states, and they cannot be computed now: {reason}.")
        elif missing:
            warnings.append(f"{run.path.name} did not keep {' and '.join(missing)}, not computed now: {reason}")
        completed.append(run)
    return completed, warnings


def _why_not_computed(run: FinishedRun, options: DetectOptions) -> str | None:
    """Why a run cannot be completed; None where it can."""
    keep = f"--keep {','.join(missing_keep(run, options.wanted))}"
    if not options.compute:
        return "--no-compute leaves the model alone"
    if run.manifest["model"]["source"] == LOADED:
        return f"its model was given in memory, so call anchorscope.run again with keep={keep.split()[1]!r}"
    if run.recipe.trust_remote_code:
        again = f"anchorscope run {run.path}/recipe.toml --out {run.path} {keep} --trust-remote-code"
        return f"code that comes with its model would run; if you trust it: {again}"
    try:
        if not is_shape(run.recipe.model):
            locate(run.recipe.model)
    except UserError as error:
        return str(error).rstrip(".")
    return None


def _announce(run: FinishedRun, recipe: Recipe, missing: Sequence[str]) -> str:
    """What computing takes in minutes and disk; a disk that is too small is refused."""
    facts, cuts = run.manifest["model"], recipe.random_cuts or 1
    model = ModelSize(facts["parameters"], facts["n_layers"], facts["d_model"])
    operations, size = report_cost(recipe), 0
    places = len(SITES) * len({"final", recipe.position})
    n_places = {"states": places, "states-cut": (1 + cuts) * places, "detection": len(DETECTION_RUNS)}
    used = run.parquet("items").filter(pl.col("status") == "used")
    for (_,), items in used.group_by("dataset"):
        tokens = float(items["input_ids"].list.len().mean())  # type: ignore[arg-type]
        costs = step_costs(recipe, model, DatasetSize(items.height, 0, items.height, tokens))
        operations += sum(costs[step] for name in missing for step in _STEPS[name])
        itemsize = getattr(torch, facts["dtype"]).itemsize
        kept = sum(n_places[name] for name in missing)
        size += kept_bytes(kept, model.n_layers, items.height, model.width, itemsize)
    refuse_full_disk(run.path, 0, size)
    minutes = operations / measured_rate(choose_device(recipe.device), facts["dtype"], model.width) / 60
    return (
        f"{run.path}: detectors need {' and '.join(missing)}, which the run did not keep; computing that takes about "
        f"{max(1, round(minutes))} min and {size / 1e6:,.0f} MB of disk, and resumes if stopped"
    )


@dataclass(frozen=True)
class RunDataset:
    """One dataset of one run."""

    data: Dataset
    run: FinishedRun
    own_name: str
    """Its name in the run."""
    n_graded: int
    """Answers that were graded, used or not."""
    natural_prevalence: float
    """Share of true ones among them."""
    other_prompt: bool
    """Whether it is there to show what another prompt does."""

    @property
    def n_true(self) -> int:
        """True answers among the used ones."""
        return int(self.data.examples.labels.sum())


def read_runs(runs: Sequence[FinishedRun]) -> list[RunDataset]:
    """Every dataset of the runs, in order."""
    return [
        _read(run, name, shown_name(run, name, runs[0]), run.recipe.prompt != runs[0].recipe.prompt)
        for run in runs
        for name in run.manifest["reference_layers"]
    ]


def _read(run: FinishedRun, name: str, shown: str, other_prompt: bool) -> RunDataset:
    items = run.parquet("items").filter(pl.col("dataset") == name)
    ids = [str(one) for one in read_header(run.place(place_of(name, CLEAN)))["item_ids"]]
    used = items.filter(pl.col("status") == "used").with_columns(pl.col("item_id").cast(pl.String))
    used = pl.DataFrame({"item_id": ids}).join(used, on="item_id", how="left", maintain_order="left")
    labels = used["truthful"].to_numpy().astype(bool)
    states = _states(run, name)
    _refuse_nan(states, run, name)
    graded = items.filter(pl.col("truthful").is_not_null() & pl.col("status").is_in(["used", "unbalanced"]))
    weight = used["weight"].to_numpy().astype(np.float64)
    relations = used["relation"].to_list()
    examples = Examples(labels, used["group"].to_numpy().astype(np.int64), relations, ids, np.ones(len(labels)))
    questions, answers = used["question"].to_list(), used["model_answer"].to_list()
    documents = [
        [*(f"question {word}" for word in words(question)), *(f"answer {word}" for word in words(answer))]
        for question, answer in zip(questions, answers, strict=True)
    ]
    texts = Texts(relations, documents, examples.groups)
    keys = [_group_keys(*row) for row in zip(questions, used["subject"].to_list(), strict=True)]
    data = Dataset(shown, Features(len(labels), states, _columns(run, name, used)), examples, texts, weight, keys)
    share = float(graded["truthful"].cast(pl.Float64).mean() or 0.0)  # type: ignore[arg-type]
    return RunDataset(data, run, name, graded.height, share, other_prompt)


def _group_keys(question: str, subject: str | None) -> frozenset[str]:
    """What ties items of several datasets together, as the groups of a run do."""
    own = {f"question {question_key(question)}"}
    if subject and normalise(subject):
        own.add(f"subject {normalise(subject)}")
    return frozenset(own)


def _states(run: FinishedRun, name: str) -> dict[StateKey, torch.Tensor]:
    """Clean states at the headline site and in the residual stream; other runs' at the site."""
    found: dict[StateKey, torch.Tensor] = {}
    for listed in sorted(run.manifest["sha256"]):  # what lies there beside them is none of ours
        place = run.path / listed
        if listed != place_of(name, place.stem) or " " in place.stem:  # a further draw of a random control
            continue
        run.place(listed)
        sites = dict.fromkeys((run.recipe.site, "residual") if place.stem == CLEAN else (run.recipe.site,))
        for site in sites:
            for layer in map(int, read_header(place)["layers"]):
                found[place.stem, site, layer] = read_layer(place, site, run.recipe.position, layer)
    return found


def _refuse_nan(states: dict[StateKey, torch.Tensor], run: FinishedRun, name: str) -> None:
    for (kind, site, layer), found in states.items():
        if not bool(torch.isfinite(found).all()):
            raise UserError(
                f"The {kind} states of {name!r} in {str(run.path)!r} hold NaN or infinity (site {site}, layer {layer})"
                f"; run it again with --dtype float32 or bfloat16."
            )


def _columns(run: FinishedRun, name: str, used: pl.DataFrame) -> dict[str, np.ndarray]:
    """Plain numbers: those that were kept for detectors, or the two that every run has."""
    place = features_place(name)
    if place in run.manifest["sha256"]:
        numbers = run.parquet(place.removesuffix(".parquet")).with_columns(pl.col("item_id").cast(pl.String))
        kept = used.select("item_id").join(numbers, on="item_id", how="left", maintain_order="left")
        found = {column: kept[column].to_numpy().astype(np.float64) for column in kept.columns if column != "item_id"}
    else:
        in_items = zip(IN_ITEMS, ("confidence_mean", "confidence_min"), strict=True)
        found = {name: used[column].to_numpy().astype(np.float64) for name, column in in_items}
    return {column: values for column, values in found.items() if np.isfinite(values).all()}


LIMITS = (
    "The probability is calibrated for questions like those of the training data, at their natural share of true "
    "answers; on other questions it is a score.",
    "A threshold keeps its risk for exchangeable answers only: drawn as the training answers were.",
    "Truth is what the grader calls true.",
)

CUT_LIMIT = (
    "Where a question comes without its subject, rules find the key words that are cut; in training the dataset named "
    "them where it could."
)


def trained_detector(
    trained: TrainedOn,
    name: str,
    sources: Sequence[RunDataset],
    rows: Sequence[dict[str, Any]],
    risks: Sequence[float],
    layer_probes: LayerProbes | None = None,
) -> TrainedDetector:
    """One detector, ready for use; `rows` are those of `detectors.csv` that speak of it, `layer_probes` those of the
    same training data."""
    build = trained.fits.fit(name).build
    if build is None:
        raise UserError(f"The baseline {name!r} is there to compare with, and cannot be saved; choose a detector.")
    scale = trained.calibration(name, natural=True)
    number, dataset = trained.whole, trained.dataset
    labels, natural = dataset.examples.labels, dataset.natural
    prevalence = float(natural[labels].sum() / natural.sum())
    calibration = Calibration(
        float(scale.weight[number, INNER_FOLDS, 0]), float(scale.bias[number, INNER_FOLDS]), prevalence
    )
    probability = 1 / (1 + np.exp(-scale.scores[number].cpu().numpy()))
    one_each = _one_of_each_group(dataset, trained.plan.seed)
    thresholds = thresholds_at(probability[one_each], labels[one_each], natural[one_each], risks)
    data, fitted = trained.fits.data, build(number)
    key = (CLEAN, data.site, data.layers[int(data.best[number])])
    return TrainedDetector(
        name=name,
        fitted=fitted,
        calibration=calibration,
        setting=setting(sources[0]),
        card=_card(name, dataset.features.n_items, sources, rows, calibration_rows(probability, labels, natural)),
        thresholds=thresholds,
        range=_range(fitted, key, dataset, max(map(_longest, sources))),
        layer_probes=layer_probes,
    )


RISKS = (0.1, 0.05, 0.2, 0.3)
"""Risks that bundles have thresholds for where none are named."""
LEADING_COVERAGE = 0.3
"""Answers that are accepted where nobody names a risk; the risk is what was measured on these."""


def thresholds_at(
    probability: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    weights: Float[np.ndarray, " item"],
    risks: Sequence[float] = (),
) -> tuple[Threshold, ...]:
    """Thresholds for these risks; where none are named, one that accepts `LEADING_COVERAGE` leads the usual ones.

    None where all answers are of one kind: no risk can be measured on them.
    """
    if not 0 < labels.sum() < len(labels):
        return ()
    found = [threshold_at_risk(probability, labels, risk, weights=weights) for risk in risks or RISKS]
    if risks:
        return tuple(found)
    leading = threshold_at_coverage(probability, labels, LEADING_COVERAGE, weights=weights)
    if leading.probability is None:
        return tuple(found)
    return (leading, *(threshold for threshold in found if threshold.risk != leading.risk))


def _one_of_each_group(dataset: Dataset, seed: int) -> Int[np.ndarray, " group"]:
    """An item of every group, drawn by lot: those of one group are not independent, and files have an order."""
    lots = priorities(seed, "threshold items", dataset.examples.item_ids)
    by_lot = np.argsort(lots, kind="stable")
    return by_lot[np.unique(dataset.examples.groups[by_lot], return_index=True)[1]]


def setting(source: RunDataset) -> DetectorSetting:
    """The model and the prompt of a run."""
    manifest, recipe = source.run.manifest, source.run.recipe
    if "template" not in manifest:
        raise UserError(
            f"The run {str(source.run.path)!r} did not write down its prompt: it was made by an older version. Run the "
            f"same command again into the same folder (only what is new is done)."
        )
    model = {name: value for name, value in manifest["model"].items() if name != "files"}  # the fingerprint says enough
    return DetectorSetting.of(
        ModelIdentity(**model),
        Template(**manifest["template"]),
        recipe.position,
        edges=recipe.edges,
        exact_tokens=recipe.exact_tokens,
        max_new_tokens=recipe.max_new_tokens,
    )


def _longest(source: RunDataset) -> int:
    """Tokens of the longest used prompt with its answer."""
    items = source.run.parquet("items")
    used = items.filter((pl.col("dataset") == source.own_name) & (pl.col("status") == "used"))
    return int(used["input_ids"].list.len().max())  # type: ignore[arg-type]


def calibration_rows(
    probability: Float[np.ndarray, " item"], labels: Bool[np.ndarray, " item"], weights: Float[np.ndarray, " item"]
) -> tuple[dict[str, Any], ...]:
    """What was so where it said so: bins of equal width that hold answers, as `Card.calibration` has them."""
    bins = reliability_bins(probability, labels, weights, BINS, equal_width=True)
    counted = reliability_bins(probability, labels, None, BINS, equal_width=True)
    return tuple(
        {
            "low": place / BINS,
            "high": (place + 1) / BINS,
            "n": round(float(counted.mass[place]) * len(labels)),
            "said": round(float(bins.probability[place]), 4),
            "true": round(float(bins.rate[place]), 4),
        }
        for place in range(BINS)
        if bins.mass[place] > 0
    )


def layer_probes_of(trained: TrainedOn, warnings: list[str]) -> LayerProbes | None:
    """Probes of every layer, on the data that the detectors learn from; too few items are reported."""
    data = trained.fits.data
    try:
        return fit_layer_probes(data.features, trained.dataset.examples, data.site, trained.plan.seed, trained.device)
    except UserError as error:
        warnings.append(f"bundles have no probes of every layer: {error}")
        return None


def _card(
    name: str,
    n: int,
    sources: Sequence[RunDataset],
    rows: Sequence[dict[str, Any]],
    calibration: tuple[dict[str, Any], ...],
) -> Card:
    about = "; ".join(
        f"{source.data.name}: {source.data.features.n_items} answers, {source.n_true} true, "
        f"{source.natural_prevalence:.1%} true among all that were graded"
        for source in sources
    )
    shifts = tuple(sorted({str(row["test"]) for row in rows if row["test"] != row["train"]}))
    data = f"{DETECTORS[name].about}; trained on {n} answers ({about})"
    limits = (*LIMITS, CUT_LIMIT) if DETECTORS[name].passes > 1 else LIMITS
    return Card(data, tuple(map(_plain, rows)), shifts, limits, versions(), calibration)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row without numbers that are not there: JSON has none."""
    return {name: value for name, value in row.items() if not (isinstance(value, float) and np.isnan(value))}


def _range(fitted: Fitted, key: StateKey, dataset: Dataset, longest: int) -> TrainingRange:
    """The range of the training states: the detector's own where it has one."""
    if isinstance(fitted, WithFallback) and isinstance(fitted.range, TrainingRange):
        return replace(fitted.range, longest=longest)
    return TrainingRange.fit(key, dataset.features.states[key].float(), longest, dataset.examples.groups)


MANIFEST = "detection.json"
_FOLDER = SealedFolder(
    "comparison of detectors",
    "anchorscope detect",
    MANIFEST,
    (
        "detectors.csv",
        "differences.csv",
        "detector_curves.csv",
        "controls.csv",
        "observations.json",
        "bundles",
        "figures",
        "report.html",
        "report.md",
        *DETECTORS,
        MANIFEST,
    ),
)


def accepted_words(thresholds: Sequence[Mapping[str, float | None]]) -> str | None:
    """What a detector accepts at which risk."""
    reached = [(found["risk"], found["coverage"]) for found in thresholds if found["probability"] is not None]
    if not thresholds:
        return None
    return ", ".join(f"{coverage:.0%} at {risk:.0%}" for risk, coverage in sorted(reached)) or "none at any risk"


def default_out(runs: Sequence[Path]) -> Path:
    """Where results go if nobody says where."""
    if len(runs) != 1:
        raise UserError(f"{len(runs)} runs are given, and no folder for the result; name one with --out.")
    return runs[0] / "detectors"


@dataclass(frozen=True)
class SavedDetector:
    """A bundle of a finished comparison, in the words of its card."""

    name: str
    path: Path
    auroc: str | None
    """In the mean over the datasets that it was trained on, with its interval; None where nothing was compared."""
    accepted: str | None
    """What it accepts at which risk; None where no risk could be measured."""
    passes: int
    """Passes through the model per answer, beyond those that wrote it."""
    is_recommended: bool


class Detection:
    """A finished comparison of detectors; tables are read when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = _FOLDER.read(path)

    def __repr__(self) -> str:
        return f"Detection({str(self.path)!r}, model={self.manifest['model']!r})"

    @cached_property
    def detectors(self) -> pl.DataFrame:
        """Every metric of every detector."""
        return self._table("detectors", DETECTOR_SCHEMA)

    @cached_property
    def differences(self) -> pl.DataFrame:
        """Paired differences to the probe, and to probe and confidence."""
        return self._table("differences", DETECTOR_DIFFERENCE_SCHEMA)

    @property
    def saved_detectors(self) -> list[SavedDetector]:
        """The saved detectors, the recommended one first."""
        compared, answer = "detectors.csv" in self.manifest["sha256"], str(self.manifest["answer"] or "")
        made = [
            SavedDetector(
                name,
                self.path / "bundles" / name if compared else self.path / name,
                self._auroc(name) if compared else None,
                accepted_words(self.manifest.get("thresholds", {}).get(name, ())),
                DETECTORS[name].passes if name in DETECTORS else 0,
                answer.startswith(f"Use {name} (") or len(self.manifest["bundles"]) == 1,
            )
            for name in self.manifest["bundles"]
        ]
        return sorted(made, key=lambda saved: not saved.is_recommended)

    def _auroc(self, name: str) -> str | None:
        own = (pl.col("detector") == name) & (pl.col("train") == pl.col("test"))
        rows = self.detectors.filter(own & (pl.col("metric") == "auroc") & (pl.col("prevalence") == "balanced"))
        return ", ".join(
            f"{row['value']:.3f} [{row['ci_low']:.3f}, {row['ci_high']:.3f}]"
            + (f" {row['test']}" if rows.height > 1 else "")
            for row in rows.iter_rows(named=True)
        )

    def _table(self, name: str, schema: dict[str, pl.DataType]) -> pl.DataFrame:
        file = f"{name}.csv"
        if file not in self.manifest["sha256"]:
            raise UserError(f"{str(self.path)!r} has no {file}: detectors were fitted and not compared (fit only).")
        return pl.read_csv(_FOLDER.place(self.path, self.manifest, file), schema=schema)


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
    began, listener, chosen = time.monotonic(), progress or Silent(), DetectOptions(**options)
    given: Sequence[Any] = [runs] if isinstance(runs, str | Path) or hasattr(runs, "path") else runs
    paths = [Path(getattr(run, "path", run)) for run in given]
    place = default_out(paths) if out is None else Path(out)
    opened = open_runs(paths)
    device = checked_device(choose_device(chosen.device))
    opened, warnings = complete_runs(opened, chosen, listener)
    key = _key(opened, chosen)
    if not chosen.fresh and (finished := _finished(place, key)) is not None:
        return finished
    listener.start("read states", 1)
    sources = read_runs(opened)
    listener.advance(1)
    listener.finish()
    job = _Job(sources, chosen, device, listener)
    job.warnings += warnings
    job.check_bundles()
    with _FOLDER.fresh(place) as folder:
        tables, answer = Tables(), None
        if not chosen.fit_only:
            job.compare(tables)
        saved = job.save(folder if chosen.fit_only else folder / "bundles", tables)
        if not chosen.fit_only:
            _write(folder, tables)
            card = write_detection_report(folder, job.context(paths, place, saved, time.monotonic() - began))
            answer = card.sentence
        _FOLDER.seal(
            folder,
            {
                "version": DETECTION_VERSION,
                "model": job.model,
                "runs": [path.name for path in paths],
                "command": _command(paths, place, chosen),
                "trained_on": [dataset.name for dataset in job.trainable],
                "bundles": sorted(saved),
                "thresholds": job.thresholds,
                "answer": answer,
                "choices": job.choices,
                "left_out": dict(job.left_out),
                "warnings": list(job.warnings),
                "seconds": round(time.monotonic() - began, 1),
                "inputs_sha256": key,
            },
        )
    return Detection(place)


def _key(runs: Sequence[FinishedRun], options: DetectOptions) -> str:
    """What a result depends on: the runs' tables and states, wherever they are, the options, the versions."""
    chosen = {name: value for name, value in vars(options).items() if name not in ("compute", "fresh")}
    hashes = [
        {name: sha256 for name, sha256 in run.manifest["sha256"].items() if name.endswith((".parquet", ".safetensors"))}
        for run in runs
    ]
    return canonical_hash([hashes, chosen, versions(), DETECTION_VERSION])


def _finished(place: Path, key: str) -> Detection | None:
    """The result that is there already, whole and of the same key."""
    try:
        made = Detection(place)
        for name in made.manifest["sha256"]:
            _FOLDER.place(place, made.manifest, name)
    except UserError:
        return None
    return made if made.manifest.get("inputs_sha256") == key else None


def _command(paths: Sequence[Path], out: Path, options: DetectOptions) -> str:
    """What repeats it: every option that was set, and the folders by their names, which say nothing of the machine."""
    told = ["anchorscope", "detect", *(path.name for path in paths), "--out", out.name]
    for one in fields(options):
        value, name = getattr(options, one.name), {"risks": "risk"}.get(one.name, one.name.replace("_", "-"))
        if value == one.default or one.name == "fresh":
            continue
        if one.name == "compute":
            told.append("--no-compute")
            continue
        told.append(f"--{name}")
        if value is not True:
            told.append(",".join(map(str, value)) if isinstance(value, tuple) else str(value))
    return shlex.join(told)


def _write(folder: Path, tables: Tables) -> None:
    for name, rows, schema in (
        ("detectors", tables.detectors, DETECTOR_SCHEMA),
        ("differences", tables.differences, DETECTOR_DIFFERENCE_SCHEMA),
        ("detector_curves", tables.curves, DETECTOR_CURVE_SCHEMA),
        ("controls", tables.controls, DETECTOR_CONTROL_SCHEMA),
    ):
        pl.DataFrame(rows, schema=schema, orient="row").write_csv(folder / f"{name}.csv")


def _kept_less(sources: Sequence[RunDataset]) -> list[str]:
    """Datasets that lack what others have: detectors that read it cannot be tried there."""
    kept = [
        {f"states of {run}" for run, _, _ in source.data.features.states} | set(source.data.features.columns)
        for source in sources
    ]
    lacking = [sorted(set().union(*kept) - own) for own in kept]
    return [
        f"{one.data.name} lacks {', '.join(missing)}, which other datasets here have: detectors that read them are not "
        f"tried there"
        for one, missing in zip(sources, lacking, strict=True)
        if missing
    ]


class _Job:
    """One call of `detect`."""

    def __init__(
        self, sources: Sequence[RunDataset], options: DetectOptions, device: torch.device, progress: Progress
    ) -> None:
        self.sources, self.options, self.device, self.progress = sources, options, device, progress
        self.model = str(sources[0].run.manifest["model"]["name"])
        self.site = sources[0].run.recipe.site
        self.plan = Plan(options.folds, options.seeds, options.tosses, options.seed)
        self.trainable = self._trainable()
        self.left_out: dict[str, str] = {}
        self.warnings: list[str] = []
        self.thresholds: dict[str, list[dict[str, float | None]]] = {}
        """Of every saved detector: risk, probability and share of answers accepted."""
        self.choices: dict[str, dict[str, int]] = {}
        few = [dataset for dataset in self.trainable if int(dataset.examples.labels.sum()) < ENOUGH_TRUE]
        self.warnings += [f"{one.name} has fewer than {ENOUGH_TRUE} true answers: intervals are wide" for one in few]
        self.warnings += _kept_less(sources)

    def _trainable(self) -> list[Dataset]:
        """Datasets that detectors learn from; those with few true answers only where no other has more."""
        own = [source for source in self.sources if not source.other_prompt]
        enough = [source for source in own if source.n_true >= ENOUGH_TRUE]
        return [source.data for source in (enough or own)]

    def compare(self, tables: Tables) -> None:
        """Every detector on every dataset."""
        names = self.options.detectors or tuple(DETECTORS)
        evaluation = Evaluation(self.plan, self.options.resamples, names, self.progress, len(self.trainable))
        for dataset in self.trainable:
            trained = TrainedOn(dataset, self.site, self.plan, self.device)
            evaluation.in_domain(trained, tables)
            self._note(trained)
            others = [source.data for source in self.sources if source.data is not dataset]
            if others:
                evaluation.elsewhere(trained, others, tables)
        if len(self.trainable) > 1:
            self._leave_one_out(evaluation, tables)

    def _leave_one_out(self, evaluation: Evaluation, tables: Tables) -> None:
        """Every dataset by detectors of all the others together."""
        for target in (source.data for source in self.sources if not source.other_prompt):
            others = [dataset for dataset in self.trainable if dataset is not target]
            if len(others) < 2:
                continue
            trained = TrainedOn(
                pooled(others, f"all but {target.name}"),
                self.site,
                Plan(self.plan.folds, 1, 0, self.plan.seed),
                self.device,
            )
            evaluation.elsewhere(trained, [target], tables)

    def _note(self, trained: TrainedOn) -> None:
        wanted = set(self.options.detectors or DETECTORS)
        for name, reason in trained.left_out.items():
            if name in wanted:
                self.left_out[name] = reason
        for choice in trained.fits.choices[: trained.whole + 1]:
            counted = self.choices.setdefault(trained.dataset.name, {})
            counted[choice] = counted.get(choice, 0) + 1

    def check_bundles(self) -> None:
        """Refuses a detector that is to be saved and cannot be; those that nobody named are left out."""
        setting(self.sources[0])  # a bundle must know its prompt: told before hours of fits, not after
        named = self.options.bundles
        for dataset in self.trainable:
            trained = TrainedOn(dataset, self.site, Plan(self.plan.folds, 1, 0, self.plan.seed), self.device)
            for name in BUNDLES if named is None else named:
                if name in trained.names:
                    continue
                if named is not None:
                    raise UserError(
                        f"The detector {name!r} cannot be saved: {trained.left_out[name]} ({dataset.name}); leave it "
                        f"out of --bundles, or allow the model to be run (--compute)."
                    )
                self.left_out[name] = trained.left_out[name]

    def save(self, folder: Path, tables: Tables) -> dict[str, str]:
        """Fits the detectors that are to be saved on all trainable datasets together, and writes their bundles."""
        data = self.trainable[0] if len(self.trainable) == 1 else pooled(self.trainable, "all")
        trained = TrainedOn(data, self.site, Plan(self.plan.folds, 0, 0, self.plan.seed), self.device)
        sources = [source for source in self.sources if any(source.data is two for two in self.trainable)]
        saved: dict[str, str] = {}
        wanted = BUNDLES if self.options.bundles is None else self.options.bundles
        names = [name for name in wanted if name in trained.names]
        self.progress.start("bundles", len(names))
        probes = layer_probes_of(trained, self.warnings) if names else None
        for name in names:
            rows = [row for row in tables.detectors if row["detector"] == name]
            made = trained_detector(trained, name, sources, rows, self.options.risks, probes)
            write_bundle(folder / name, made)
            self._note_thresholds(made)
            saved[name] = f"{folder.name}/{name}" if not self.options.fit_only else name
            self.progress.advance(1)
        self.progress.finish()
        return saved

    def _note_thresholds(self, made: TrainedDetector) -> None:
        """Writes down what a detector accepts, and warns of one that accepts nothing."""
        names = ("risk", "probability", "coverage")
        found = [{name: getattr(threshold, name) for name in names} for threshold in made.thresholds]
        self.thresholds[made.name] = found
        if found and all(threshold.probability is None for threshold in made.thresholds):
            risks = ", ".join(f"{threshold.risk:.0%}" for threshold in made.thresholds)
            self.warnings.append(
                f"{made.name} accepts no answer at any of its risks ({risks}): it can only rank answers; ask more "
                f"questions (--limit), or name a higher --risk"
            )

    def context(self, paths: Sequence[Path], out: Path, saved: dict[str, str], seconds: float) -> DetectionContext:
        """What the page says of how its tables came about."""
        facts = tuple(
            DatasetFacts(
                source.data.name,
                source.data.features.n_items,
                source.n_true,
                source.n_graded,
                source.natural_prevalence,
                all(source.data is not two for two in self.trainable),
            )
            for source in self.sources
        )
        command = _command(paths, out, self.options)
        return DetectionContext(
            self.model,
            tuple(path.name for path in paths),
            facts,
            tuple(range(self.plan.seed, self.plan.seed + self.plan.seeds)),
            seconds,
            command,
            saved,
            tuple(self.warnings),
            self.left_out,
        )
