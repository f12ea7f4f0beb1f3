"""The question share of a made-up run: worlds in which the answer is known, with the columns of the run's files.

A world is told by the shares at its plateau. Along the depth they rise from zero and fall a little towards the end, as
on real models.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from anchorscope.report.findings import Findings
from anchorscope.schema import SHARE_SCHEMA, SHARE_TEST_SCHEMA
from report_synthetic import LAYERS, make_findings

LAYER = 17
"""The headline layer."""
METHOD = "bootstrap over groups"
GIVEN = "words, confidence, relation"


@dataclass(frozen=True)
class World:
    """What is so in a made-up run."""

    share: float = 0.70
    random: float = 0.08
    floor: float = 0.01
    permuted: float = 0.0
    random_weights: float | None = None
    lower: float = 0.30
    upper: float = 0.95
    given: float = 0.52
    half: float = 0.08
    """Half the width of every interval."""
    n: int = 360
    spoilt: dict[tuple[str, int], float] = field(default_factory=dict)
    """Shares at single layers, by intervention and layer."""


def rise_and_fall(layers: int = LAYERS) -> np.ndarray:
    """From 0 to 1 at about half of the depth, and back to 0.6 at the end."""
    x = np.arange(layers) / (layers - 1)
    return (1 / (1 + np.exp(-(x - 0.3) * 18))) * (1 - 0.4 / (1 + np.exp(-(x - 0.85) * 22)))


def share_frame(dataset: str, world: World, layers: int = LAYERS) -> pl.DataFrame:
    """question_share.csv of one dataset."""
    shape = rise_and_fall(layers)
    lines = {
        ("knockout", "all", "all"): world.share * shape,
        ("knockout", "all", "true"): (world.share - 0.02) * shape,
        ("knockout", "all", "false"): (world.share + 0.02) * shape,
        ("knockout", "lower third", "all"): world.lower * shape,
        ("knockout", "middle third", "all"): (world.lower + world.upper) / 2 * shape,
        ("knockout", "upper third", "all"): world.upper * shape,
        ("random", "all", "all"): world.random * shape,
        ("none", "all", "all"): world.floor * np.ones(layers),
        ("permuted", "all", "all"): world.permuted * shape,
    }
    if world.random_weights is not None:
        lines["random-weights", "all", "all"] = world.random_weights * shape
    rows = []
    for (intervention, group, truth), values in lines.items():
        half = {"none": 0.02, "random": 0.4 * world.half}.get(intervention, world.half)
        half = 1.6 * half if group != "all" else half
        for layer, plain in enumerate(values):
            value = world.spoilt.get((intervention, layer), plain) if (group, truth) == ("all", "all") else plain
            rows.append(
                {
                    "model": "m",
                    "dataset": dataset,
                    "intervention": intervention,
                    "site": "mlp",
                    "position": "final",
                    "layer": layer,
                    "group": group,
                    "truth": truth,
                    "share": float(value),
                    "ci_low": float(value - half),
                    "ci_high": float(value + half),
                    "n": world.n,
                    "n_groups": world.n - 12,
                    "method": METHOD,
                }
            )
    return pl.DataFrame(rows, schema=SHARE_SCHEMA)


def frame_of_tests(dataset: str, world: World, layers: int = LAYERS) -> pl.DataFrame:
    """question_share_tests.csv of one dataset."""
    here = rise_and_fall(layers)[LAYER]
    share, random, given = (here * value for value in (world.share, world.random, world.given))
    apart, half = here * (world.upper - world.lower), world.half

    def p(value: float, spread: float) -> float:
        return float(min(1.0, 2 * np.exp(-0.7 * (abs(value) / (spread / 2)) ** 1.3)))

    rows = [
        ("share_above_zero", "knockout", None, 2 * share / half, None, p(share, half)),  # T, with no interval
        ("share_above_random", "knockout", None, share - random, 1.1 * half, None),
        ("share_beyond_floor", "knockout", None, (share - world.floor) / (1 - world.floor), half, None),
        ("true_minus_false", "knockout", None, -0.04 * here, 1.5 * half, 0.4),
        ("thirds_difference", "knockout", None, apart, 2.2 * half, p(apart, 2.2 * half)),
        ("share_given", "knockout", GIVEN, given, 1.2 * half, p(given, 1.2 * half)),
        ("share_by_feature", "knockout", "confidence", 0.10, 1.6 * half, 0.21),
        ("share_by_feature", "knockout", "answer length", -0.02, 1.6 * half, 0.83),
        ("mixture_gain", "knockout", None, 0.013, 0.012, None),
        ("auc", None, "probe", 0.784, 0.03, None),
        ("auc", None, "question only", 0.61, 0.04, None),
        ("auc", None, "answer only", 0.66, 0.04, None),
        ("auc", None, "words + confidence", 0.79, 0.03, None),
        ("auc", None, "random weights", 0.62, 0.04, None),
        ("auc", None, "permuted labels", 0.50, 0.04, None),
        ("minimum_n", "knockout", None, 1100.0, None, None),
        ("kept_slope", "random", None, 0.94, None, None),
        ("directions", None, None, 96.0, None, None),
    ]
    made = [
        {
            "model": "m",
            "dataset": dataset,
            "site": "mlp",
            "position": "final",
            "layer": LAYER,
            "quantity": quantity,
            "intervention": intervention,
            "group": group,
            "value": float(value),
            "ci_low": None if half is None else float(value - half),
            "ci_high": None if half is None else float(value + half),
            "p_value": found,
            "n": world.n,
            "method": METHOD,
        }
        for quantity, intervention, group, value, half, found in rows
    ]
    return pl.DataFrame(made, schema=SHARE_TEST_SCHEMA)


def with_shares(findings: Findings, *worlds: World) -> Findings:
    """The run with the question share of these worlds, one per dataset; the last stands for all further ones."""
    told = [worlds[min(place, len(worlds) - 1)] for place in range(len(findings.datasets))] if worlds else []
    told = told or [World()] * len(findings.datasets)
    pairs = list(zip(findings.datasets, told, strict=True))
    return replace(
        findings,
        question_share=pl.concat(share_frame(name, world) for name, world in pairs),
        question_share_tests=pl.concat(frame_of_tests(name, world) for name, world in pairs),
    )


def run_with_shares(*worlds: World, datasets: tuple[str, ...] = ("atlas",)) -> Findings:
    """A whole run."""
    return with_shares(make_findings(datasets), *worlds)
