"""`detect` from top to bottom: read finished runs, fit every detector, judge it at home and elsewhere, save, report.

Nothing is run through a model: everything comes from what the runs kept. The folder is written whole or not at all.
Runs of one model may be given together; a dataset asked under another prompt is only tested on.
"""

import shlex
import time
from collections.abc import Sequence
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
from anchorscope.catalogue import DETECTORS, EXACT_TOKEN
from anchorscope.datasets.text import normalise, question_key, words
from anchorscope.detecting.inputs import KEEP, open_runs, shown_name
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
from anchorscope.errors import UserError, faults_as_user_errors
from anchorscope.finished import FinishedRun
from anchorscope.kept_states import features_place, place_of, read_header, read_layer
from anchorscope.models.language_model import ModelIdentity
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.progress import Progress, Silent
from anchorscope.report.detection.detection_page import write_detection_report
from anchorscope.report.detection.results import DatasetFacts, DetectionContext
from anchorscope.results import versions
from anchorscope.stats.calibration import Calibration, threshold_at_risk
from anchorscope.stats.detection_metrics import BINS, reliability_bins
from anchorscope.stats.streams import priorities

ENOUGH_TRUE = 200
"""True answers from which on a dataset is trained on where others can be as well."""


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
    """Clean states at the headline site, in the residual stream and at the exact token; other runs' at the site."""
    found: dict[StateKey, torch.Tensor] = {}
    for listed in sorted(run.manifest["sha256"]):  # what lies there beside them is none of ours
        place = run.path / listed
        if listed != place_of(name, place.stem) or " " in place.stem:  # a further draw of a random control
            continue
        run.place(listed)
        header, site, position = read_header(place), run.recipe.site, run.recipe.position
        reads = [(place.stem, site, position)]
        if place.stem == CLEAN:
            reads.append((CLEAN, "residual", position))
            if "answer_end" in header["positions"]:
                reads.append((EXACT_TOKEN, site, "answer_end"))
        for kind, read_site, read_position in reads:
            for layer in map(int, header["layers"]):
                found[kind, read_site, layer] = read_layer(place, read_site, read_position, layer)
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
        found = {
            "log_prob_mean": used["confidence_mean"].to_numpy().astype(np.float64),
            "log_prob_min": used["confidence_min"].to_numpy().astype(np.float64),
        }
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
    both = 0 < labels[one_each].sum() < len(one_each)  # from answers of one kind no risk can be told
    thresholds = tuple(
        threshold_at_risk(probability[one_each], labels[one_each], risk, weights=natural[one_each])
        for risk in (risks if both else ())
    )
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
BUNDLES = ("confidence", "probe", "probe+confidence", "counterfactual", "auto")
"""Detectors that are saved where none are named."""
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

    def _table(self, name: str, schema: dict[str, pl.DataType]) -> pl.DataFrame:
        file = f"{name}.csv"
        if file not in self.manifest["sha256"]:
            raise UserError(f"{str(self.path)!r} has no {file}: detectors were fitted and not compared (fit only).")
        return pl.read_csv(_FOLDER.place(self.path, self.manifest, file), schema=schema)


@faults_as_user_errors()
def detect(
    runs: Sequence[str | Path | Any], *, out: str | Path, progress: Progress | None = None, **options: Any
) -> Detection:
    """Fits and compares detectors on what finished runs kept, into the folder `out`; options as `DetectOptions`."""
    began, listener, chosen = time.monotonic(), progress or Silent(), DetectOptions(**options)
    paths = [Path(getattr(run, "path", run)) for run in runs]
    opened = open_runs(paths)
    device = checked_device(choose_device(chosen.device))
    listener.start("read states", 1)
    sources = read_runs(opened)
    listener.advance(1)
    listener.finish()
    job = _Job(sources, chosen, device, listener)
    job.check_bundles()
    place = Path(out)
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
                "trained_on": [one.name for one in job.trainable],
                "bundles": sorted(saved),
                "answer": answer,
                "choices": job.choices,
                "left_out": dict(job.left_out),
                "warnings": list(job.warnings),
                "seconds": round(time.monotonic() - began, 1),
            },
        )
    return Detection(place)


def _command(paths: Sequence[Path], out: Path, options: DetectOptions) -> str:
    """What repeats it: every option that was set, and the folders by their names, which say nothing of the machine."""
    told = ["anchorscope", "detect", *(path.name for path in paths), "--out", out.name]
    for one in fields(options):
        value, name = getattr(options, one.name), {"risks": "risk"}.get(one.name, one.name.replace("_", "-"))
        if value == one.default:
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
                        f"The detector {name!r} cannot be saved: {trained.left_out[name]} ({dataset.name}). Run it "
                        f"again into the same folder with {KEEP} (only what is new is done), or do without it."
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
            write_bundle(folder / name, trained_detector(trained, name, sources, rows, self.options.risks, probes))
            saved[name] = f"{folder.name}/{name}" if not self.options.fit_only else name
            self.progress.advance(1)
        self.progress.finish()
        return saved

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
