"""What `detect` is given, checked without torch: its options, and what the runs kept."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.catalogue import DETECTION_RUNS, DETECTORS, KNOCKOUT, OWN_DETECTORS
from anchorscope.errors import UserError, shortened, unknown
from anchorscope.finished import FinishedRun, open_finished
from anchorscope.models.sources import is_hub_id, is_shape
from anchorscope.plugins import check
from anchorscope.recipe import LARGEST_SEED, MOST_RESAMPLES

LEAST_PER_CLASS = 30
"""True and false answers that a dataset needs for a detector."""
BUNDLES = ("confidence", "probe", "probe+confidence", "auto")
"""Detectors that are saved where none are named."""
IN_ITEMS = ("log_prob_mean", "log_prob_min", "question_text", "answer_text")
"""Columns that every run has, in items.parquet."""

ONE_PASS = tuple(
    name
    for name, entry in OWN_DETECTORS.items()
    if entry.variant_of is None
    and set(entry.runs) <= {"question-only"}
    and set(entry.columns) <= set(IN_ITEMS)
)
"""Detectors that read one pass over question and answer: what `anchorscope fit` compares."""

OPTION_LIMITS = {
    "folds": (2, 100),
    "seeds": (1, 1_000),
    "tosses": (0, 10_000),
    "resamples": (100, MOST_RESAMPLES),
    "seed": (0, LARGEST_SEED),
}


@dataclass(frozen=True)
class DetectOptions:
    detectors: tuple[str, ...] = ()
    """Detectors to compare; none: all."""
    bundles: tuple[str, ...] | None = None
    """Detectors to save; where none are named, those of `BUNDLES` that the runs allow."""
    folds: int = 5
    seeds: int = 5
    tosses: int = 20
    resamples: int = 1000
    risks: tuple[float, ...] = ()
    """Risks that bundles have thresholds for; the first is used where none is named. None: see `thresholds_at`."""
    seed: int = 0
    device: str = "auto"
    fresh: bool = False
    """Whether a finished result of the same runs and options is made again."""

    def __post_init__(self) -> None:
        for name in (*self.detectors, *(self.bundles or ())):
            if name not in DETECTORS:
                raise unknown("detector", name, tuple(DETECTORS))
        check((), (*(self.detectors or DETECTORS), *(self.bundles or ())))
        for name in self.bundles or ():
            if not DETECTORS[name].saved:
                others = [
                    other
                    for other, entry in DETECTORS.items()
                    if entry.saved and entry.variant_of is None
                ]
                raise UserError(
                    f"The detector {name!r} cannot be saved: it is there to compare with, and new answers do not have "
                    f"what it reads; choose others with --bundles: {', '.join(others)}."
                )
        for name, (least, most) in OPTION_LIMITS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                limit = (
                    f"at least {least} is needed"
                    if value < least
                    else f"at most {most:,} is allowed"
                )
                raise UserError(f"--{name} is {shortened(value)}; {limit}.")
        for risk in self.risks:
            if not 0 < risk < 1:
                raise UserError(
                    f"--risk is {risk:g}; it is a share of the accepted answers, between 0 and 1."
                )

    @property
    def wanted(self) -> tuple[str, ...]:
        """Detectors that were asked for; bundles that nobody named are saved where the runs allow it."""
        return tuple(
            dict.fromkeys([*(self.detectors or DETECTORS), *(self.bundles or ())])
        )


def needed_keep(detectors: Iterable[str]) -> tuple[str, ...]:
    """What a run has to keep (`--keep`) so that these detectors can be fitted."""
    entries = [DETECTORS[name] for name in detectors]
    needed = {
        "states": True,
        "states-cut": any(KNOCKOUT in entry.runs for entry in entries),
        "detection": any(
            {*entry.runs} & {*DETECTION_RUNS} or {*entry.columns} - {*IN_ITEMS}
            for entry in entries
        ),
    }
    return tuple(name for name, is_read in needed.items() if is_read)


def fit_options(**options: Any) -> tuple[DetectOptions, dict[str, Any]]:
    """The options of `fit`: those of `detect`, and those of a run that keeps what the detectors read."""
    device = str(options.pop("device", None) or "auto").replace("balanced", "auto")
    chosen = DetectOptions(
        **{
            **options,
            "detectors": options.get("detectors") or ONE_PASS,
            "device": device,
        }
    )
    keep = needed_keep(chosen.wanted)
    return chosen, {
        "keep": keep,
        **({"random_cuts": 1} if "states-cut" in keep else {}),
    }


def missing_keep(run: FinishedRun, detectors: Iterable[str]) -> tuple[str, ...]:
    """What of it the run did not keep."""
    names, kept = tuple(detectors), run.manifest["sha256"]
    read_before = any("question-only" in DETECTORS[name].runs for name in names)
    files = {
        "states": ("clean.safetensors", *["question-only.safetensors"] * read_before),
        "states-cut": (f"{KNOCKOUT}.safetensors",),
        "detection": ("features.parquet", "answer-mean.safetensors"),
    }
    datasets = run.manifest["reference_layers"]
    return tuple(
        name
        for name in needed_keep(names)
        if any(
            f"states/{dataset}/{file}" not in kept
            for dataset in datasets
            for file in files[name]
        )
    )


def completion(run: FinishedRun, missing: Sequence[str]) -> str:
    """What is said before that is computed; a recipe may be a stranger's, so a model of the hub is named first."""
    model = run.recipe.model
    is_local = is_shape(model) or os.path.exists(model) or not is_hub_id(model)
    fetched = "" if is_local else f" with {model}, fetched from the hub if need be"
    return (
        f"{run.path}: detectors need {' and '.join(missing)}, which the run did not keep: they are computed first"
        f"{fetched}, and resume if stopped"
    )


def open_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """The runs, refused where detectors cannot be fitted on them."""
    if not paths:
        raise UserError("No run is named; give at least one folder of a finished run.")
    runs, seen = [open_finished(path) for path in paths], set()
    first = runs[0]
    for run in runs:
        for what, mine, theirs in (
            (
                "model",
                first.manifest["model"]["fingerprint"],
                run.manifest["model"]["fingerprint"],
            ),
            ("site", first.recipe.site, run.recipe.site),
            ("position", first.recipe.position, run.recipe.position),
        ):
            if mine != theirs:
                raise UserError(
                    f"The runs {str(first.path)!r} and {str(run.path)!r} differ in their {what} ({mine[:16]!r} and "
                    f"{theirs[:16]!r}); a detector reads one. Give runs that share it, or call detect for each."
                )
        for name in run.manifest["reference_layers"]:
            shown = shown_name(run, name, first)
            if shown in seen:
                raise UserError(
                    f"Two runs have the dataset {shown!r} ({str(run.path)!r} is the second); give each dataset once, "
                    f"or under another prompt."
                )
            seen.add(shown)
            used = run.parquet("items").filter(
                (pl.col("dataset") == name) & (pl.col("status") == "used")
            )
            n_true = used["truthful"].sum()
            if min(n_true, used.height - n_true) < LEAST_PER_CLASS:
                raise UserError(
                    f"Dataset {name!r} of {str(run.path)!r} has {n_true} true and {used.height - n_true} false "
                    f"answers; a detector needs at least {LEAST_PER_CLASS} of each: ask more questions (--limit)."
                )
    return runs


def shown_name(run: FinishedRun, name: str, first: FinishedRun) -> str:
    """What a dataset of a run is called beside those of the first run."""
    return (
        name
        if run.recipe.prompt == first.recipe.prompt
        else f"{name} (prompt {run.recipe.prompt})"
    )
