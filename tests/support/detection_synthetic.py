"""Tables of `anchorscope detect` with known truth: every detector has an AUROC, and every interval a width."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from anchorscope.artefacts.schema import (
    DETECTOR_CONTROL_SCHEMA,
    DETECTOR_CURVE_SCHEMA,
    DETECTOR_DIFFERENCE_SCHEMA,
    DETECTOR_SCHEMA,
)
from anchorscope.catalogue import DETECTORS
from anchorscope.detectors.recommend import recommend
from anchorscope.report.detection import (
    DetectionContext,
    DetectionResults,
    write_detection_report,
)

FOUR = ("popqa", "triviaqa", "hotpotqa", "nq")
TRUTH = {
    "confidence": 0.80,
    "probe": 0.82,
    "residual-probe": 0.815,
    "question-orthogonal": 0.80,
    "mean-token-probe": 0.815,
    "semantic-entropy-probe": 0.78,
    "saplma": 0.82,
    "probe+confidence": 0.86,
    "mop": 0.822,
    "pr-attention": 0.81,
    "auto": 0.861,
    "length": 0.58,
    "relation": 0.66,
    "text": 0.70,
    "question-only": 0.69,
    "random-weights": 0.63,
    "p-true": 0.55,
    "self-consistency-5": 0.74,
    "self-consistency-10": 0.76,
    "semantic-entropy-5": 0.75,
    "semantic-entropy-10": 0.77,
    "eigen-score-10": 0.76,
    "mop-random-gate": 0.8225,
    "mop-constant-gate": 0.822,
    "pr-attention-random-gate": 0.81,
    "pr-attention-constant-gate": 0.81,
}
"""A world in which confidence adds much, and pathways nothing."""
LOST = 0.1
"""AUROC that every detector but confidence loses on other data."""


@dataclass(frozen=True)
class World:
    """What is true, and what was measured."""

    datasets: tuple[str, ...] = FOUR
    truth: dict[str, float] = field(default_factory=lambda: dict(TRUTH))
    lost: dict[str, float] = field(
        default_factory=lambda: {
            name: 0.0 if name == "confidence" else LOST for name in TRUTH
        }
    )
    width: float = 0.02
    paired: float = 0.004
    tossed: float = 0.501
    prompt: str = ""

    def auroc(self, detector: str, train: str, test: str) -> float:
        """Datasets differ a little, all detectors alike."""
        shift = 0.01 * (FOUR.index(test) if test in FOUR else 0)
        away = (
            0.0
            if train == test
            else self.lost[detector] * (0.7 if train.startswith("all but") else 1.0)
        )
        return self.truth[detector] - shift - away

    def cells(self) -> list[tuple[str, str]]:
        names = self.datasets
        found = [(name, name) for name in names]
        if len(names) > 1:
            found += [
                (train, test) for train in names for test in names if train != test
            ]
            found += [(f"all but {name}", name) for name in names]
        if self.prompt:
            found += [(name, f"{name} (prompt {self.prompt})") for name in names]
        return found


def write_world(world: World, folder: Path) -> DetectionContext:
    folder.mkdir(parents=True, exist_ok=True)
    _table(_values(world), DETECTOR_SCHEMA).write_csv(folder / "detectors.csv")
    _table(_differences(world), DETECTOR_DIFFERENCE_SCHEMA).write_csv(
        folder / "differences.csv"
    )
    _table(_curves(world), DETECTOR_CURVE_SCHEMA).write_csv(
        folder / "detector_curves.csv"
    )
    _table(_controls(world), DETECTOR_CONTROL_SCHEMA).write_csv(folder / "controls.csv")
    return DetectionContext(
        "Made-up-1B",
        dict.fromkeys(
            world.datasets,
            "1000 answers, 500 true; 12.5% true among all 4000 that were graded",
        ),
        "2 runs, 5 fold seeds, 42 s",
        "anchorscope detect runs/a runs/b --out DIR",
        {"auto": "bundles/auto", "probe": "bundles/probe"},
        ("Labels of TriviaQA are strict.",),
        {"random-weights": "no states of random weights were kept"},
    )


def write_detection_page(world: World, folder: Path) -> tuple[str, str]:
    """The page of a world; its first sentence, and the detector that is recommended."""
    context = write_world(world, folder)
    results = DetectionResults(folder)
    chosen = recommend(results.names, results.mean)
    assert chosen is not None
    card = write_detection_report(results, context, chosen, folder)
    return card.sentence, chosen.detector


def _values(world: World):
    for detector in world.truth:
        passes = DETECTORS[detector].passes
        for train, test in world.cells():
            height = world.auroc(detector, train, test)
            for prevalence in ("balanced", "natural"):
                metrics = {
                    "auroc": height,
                    "auprc": height - (0.4 if prevalence == "natural" else 0.02),
                    "brier": 0.25 - height / 9,
                    "ece": 0.02 if train == test else 0.12,
                    "e-aurc": 0.12,
                    "prr": 2 * height - 1,
                    "accuracy@50": height,
                    "accuracy@80": height - 0.08,
                    "accuracy@90": height - 0.1,
                    "auroc-spread": 0.004,
                }
                for metric, value in metrics.items():
                    width = (
                        math.nan
                        if metric == "auroc-spread"
                        else world.width / (4 if metric == "ece" else 1)
                    )
                    yield (
                        detector,
                        train,
                        test,
                        metric,
                        prevalence,
                        value,
                        value - width,
                        value + width,
                        1000,
                        passes,
                    )


def _differences(world: World):
    for detector in world.truth:
        for against in (
            "confidence",
            "probe",
            "probe+confidence",
            DETECTORS[detector].variant_of,
        ):
            if against not in world.truth or against == detector:
                continue
            for train, test in world.cells():
                gap = world.auroc(detector, train, test) - world.auroc(
                    against, train, test
                )
                ends = gap - world.paired, gap + world.paired
                for prevalence in ("balanced", "natural"):
                    yield (
                        detector,
                        against,
                        train,
                        test,
                        "auroc",
                        prevalence,
                        gap,
                        *ends,
                        1000,
                    )


def _curves(world: World):
    for detector in world.truth:
        for name in world.datasets:
            height = world.auroc(detector, name, name)
            for coverage in np.linspace(0, 1, 21):
                yield (
                    detector,
                    name,
                    coverage,
                    0.875 * coverage ** (1.5 - (1 - height) / height),
                )


def _controls(world: World):
    for name in world.datasets:
        for detector in world.truth:
            yield (
                "permuted-labels",
                detector,
                name,
                world.tossed,
                world.tossed - 0.006,
                world.tossed + 0.006,
                20,
            )


def _table(rows, schema) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=schema, orient="row")
