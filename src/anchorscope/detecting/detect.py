"""`detect`, told from top to bottom: read the runs, fit every detector, judge it at home and abroad, save, report.

Nothing is run through a model: everything comes from what the runs kept. The folder is written whole or not at all.
"""

import shlex
import time
from collections.abc import Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
import torch

from anchorscope.artefacts.sealed_folder import SealedFolder
from anchorscope.catalogue import DETECTORS
from anchorscope.detecting.bundles import layer_probes_of, setting, trained_detector
from anchorscope.detecting.inputs import KEEP, open_runs
from anchorscope.detecting.inputs import DetectOptions as DetectOptions
from anchorscope.detecting.read_runs import ENOUGH_TRUE, RunDataset, read_runs
from anchorscope.detecting.tables import Evaluation, Tables
from anchorscope.detectors.bundle import write_bundle
from anchorscope.detectors.evaluation import Dataset, Plan, TrainedOn, pooled
from anchorscope.errors import UserError, faults_as_user_errors
from anchorscope.models.loading import checked_device, choose_device
from anchorscope.progress import Progress, Silent
from anchorscope.report.detection.context import DatasetFacts, DetectionContext
from anchorscope.report.detection.detection_page import write_detection_report
from anchorscope.schema import (
    DETECTION_VERSION,
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)

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
        tables = Tables()
        if not chosen.fit_only:
            job.compare(tables)
        saved = job.save(folder if chosen.fit_only else folder / "bundles", tables)
        if not chosen.fit_only:
            _write(folder, tables)
            write_detection_report(folder, job.context(paths, place, saved, time.monotonic() - began))
        _FOLDER.seal(
            folder,
            {
                "version": DETECTION_VERSION,
                "model": job.model,
                "runs": [path.name for path in paths],
                "command": _command(paths, place, chosen),
                "trained_on": [one.name for one in job.trainable],
                "bundles": sorted(saved),
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
        {f"states of {run}" for run, _, _ in one.data.features.states} | set(one.data.features.columns)
        for one in sources
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
        few = [one for one in self.trainable if int(one.examples.labels.sum()) < ENOUGH_TRUE]
        self.warnings += [f"{one.name} has fewer than {ENOUGH_TRUE} true answers: intervals are wide" for one in few]
        self.warnings += _kept_less(sources)

    def _trainable(self) -> list[Dataset]:
        """Datasets that detectors learn from; those with few true answers only where no other has more."""
        own = [one for one in self.sources if not one.other_prompt]
        enough = [one for one in own if one.n_true >= ENOUGH_TRUE]
        return [one.data for one in (enough or own)]

    def compare(self, tables: Tables) -> None:
        """Every detector on every dataset."""
        names = self.options.detectors or tuple(DETECTORS)
        evaluation = Evaluation(self.plan, self.options.resamples, names, self.progress)
        for dataset in self.trainable:
            trained = TrainedOn(dataset, self.site, self.plan, self.device)
            evaluation.in_domain(trained, tables)
            self._note(trained)
            others = [one.data for one in self.sources if one.data is not dataset]
            if others:
                evaluation.elsewhere(trained, others, tables)
        if len(self.trainable) > 1:
            self._leave_one_out(evaluation, tables)

    def _leave_one_out(self, evaluation: Evaluation, tables: Tables) -> None:
        """Every dataset by detectors of all the others together."""
        for target in (one.data for one in self.sources if not one.other_prompt):
            others = [one for one in self.trainable if one is not target]
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
        sources = [one for one in self.sources if any(one.data is two for two in self.trainable)]
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
                one.data.name,
                one.data.features.n_items,
                one.n_true,
                one.n_graded,
                one.natural_prevalence,
                all(one.data is not two for two in self.trainable),
            )
            for one in self.sources
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
