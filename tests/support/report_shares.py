"""The parts of the evidence of a made-up run: worlds in which the answer is known, with the columns of the run's files.

A world is described by its parts over the band. Along the depth they rise from "answer alone" and fall back a little
towards the end, as on real models.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from anchorscope.artefacts.schema import BAND, EVIDENCE_TEST_SCHEMA, PART_SCHEMA
from anchorscope.report.findings import Findings
from report_synthetic import LAYERS, make_findings

LAYER = 17
"""The middle of the band."""
METHOD = "half splits, influence over groups"


@dataclass(frozen=True)
class World:
    """What is so in a made-up run, over the band."""

    together: float = 0.30
    question: float = 0.12
    answer: float = 0.48
    random: float = 0.08
    """What needs random words."""
    permuted: float = 0.0
    floor: float = 0.03
    random_weights: float | None = None
    paraphrase: float | None = None
    resample: float | None = None
    moved: float = 0.95
    """How far the random cut moves states, over the knockout."""
    half: float = 0.06
    """Half the width of every interval."""
    n: int = 360
    groups: int = 348
    probe: float = 0.784

    @property
    def share(self) -> float:
        """What needs the key words."""
        return self.together + self.question

    def parts(self) -> dict[tuple[str, str], float]:
        either = 1 - self.together - self.question - self.answer
        shares = {
            ("knockout", "together"): self.together,
            ("knockout", "question"): self.question,
            ("knockout", "answer"): self.answer,
            ("knockout", "either"): either,
            ("knockout", "needs-question"): self.share,
            ("knockout", "needs-answer"): self.together + self.answer,
            ("random", "together"): 0.02,
            ("random", "question"): self.random - 0.02,
            ("random", "answer"): self.together + self.answer - 0.02,
            ("random", "either"): 1 - self.random - self.together - self.answer + 0.02,
            ("random", "needs-question"): self.random,
            ("permuted", "needs-question"): self.permuted,
        }
        further = {
            "random-weights": self.random_weights,
            "paraphrase": self.paraphrase,
            "resample": self.resample,
        }
        return shares | {
            (name, "needs-question"): share
            for name, share in further.items()
            if share is not None
        }


def rise_and_fall(layers: int = LAYERS) -> np.ndarray:
    """From 0 to 1 at about half of the depth, and back to 0.6 at the end."""
    x = np.arange(layers) / (layers - 1)
    return (1 / (1 + np.exp(-(x - 0.3) * 18))) * (
        1 - 0.4 / (1 + np.exp(-(x - 0.85) * 22))
    )


def share_frame(dataset: str, world: World, layers: int = LAYERS) -> pl.DataFrame:
    if world.n < 300:
        return pl.DataFrame(schema=PART_SCHEMA)
    rows = []
    for (intervention, part), share in world.parts().items():
        half = 0.4 * world.half if intervention == "random" else world.half
        by_layer = {
            str(layer): share * part_of
            for layer, part_of in enumerate(rise_and_fall(layers))
        }
        for layer, value in {BAND: share, **by_layer}.items():
            rows.append(
                {
                    "model": "m",
                    "dataset": dataset,
                    "intervention": intervention,
                    "site": "mlp",
                    "position": "final",
                    "layer": layer,
                    "part": part,
                    "share": float(value),
                    "ci_low": float(value - half),
                    "ci_high": float(value + half),
                    "n": world.n,
                    "n_groups": world.groups,
                    "method": METHOD,
                }
            )
    return pl.DataFrame(rows, schema=PART_SCHEMA)


def frame_of_tests(dataset: str, world: World) -> pl.DataFrame:
    rows = [
        ("answers", None, None, float(world.n), None),
        ("groups", None, None, float(world.groups), None),
        ("directions", None, None, 90.0, None),
        ("auc", None, "probe", world.probe, 0.03),
        ("auc", None, "question only", 0.61, 0.04),
        ("auc", None, "answer only", 0.66, 0.04),
        ("auc", None, "words + confidence", 0.79, 0.03),
        ("auc", None, "permuted labels", 0.50, 0.04),
        (
            "above_random",
            "knockout",
            "needs-question",
            world.share - world.random,
            1.1 * world.half,
        ),
        (
            "above_random",
            "knockout",
            "together",
            world.together - 0.02,
            1.1 * world.half,
        ),
        ("floor", "knockout", "other-site", world.floor, 0.4 * world.half),
        ("displacement", "knockout", None, 0.8, None),
        ("displacement", "random", None, 0.8 * world.moved, None),
    ]
    made = [
        {
            "model": "m",
            "dataset": dataset,
            "site": "mlp",
            "position": "final",
            "layers": "15–19",
            "quantity": quantity,
            "intervention": intervention,
            "group": group,
            "value": float(value),
            "ci_low": None if half is None else float(value - half),
            "ci_high": None if half is None else float(value + half),
            "p_value": None,
            "n": world.n,
            "method": METHOD,
        }
        for quantity, intervention, group, value, half in rows
    ]
    return pl.DataFrame(made, schema=EVIDENCE_TEST_SCHEMA)


def with_shares(findings: Findings, *worlds: World) -> Findings:
    """The run with the parts of these worlds, one per dataset; the last stands for all further ones."""
    worlds = worlds or (World(),)
    pairs = [
        (name, worlds[min(place, len(worlds) - 1)])
        for place, name in enumerate(findings.datasets)
    ]
    return replace(
        findings,
        evidence_parts=pl.concat(share_frame(name, world) for name, world in pairs),
        evidence_tests=pl.concat(frame_of_tests(name, world) for name, world in pairs),
    )


def run_with_shares(*worlds: World, datasets: tuple[str, ...] = ("atlas",)) -> Findings:
    return with_shares(make_findings(datasets), *worlds)
