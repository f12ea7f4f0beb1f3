"""Further experiments of a believable run: 12 layers, 6 heads, made of smooth curves and a seed.

Names of experiments, variants and quantities are those that `experiments/` writes.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from anchorscope.report.checks import read
from anchorscope.report.findings import (
    EXPERIMENT_ITEM_SCHEMA,
    EXPERIMENT_SCHEMA,
    UNAVAILABLE_SCHEMA,
    Findings,
)
from anchorscope.report.run_page import write_report
from report_synthetic import SUMMARY_SCHEMA, curve_rows, make_findings, summary_row

LAYERS, HEADS, WINDOW = 12, 6, 3
GROUPS = {"Q-Anchored": -40.0, "A-Anchored": -6.0}
EFFECTS = {
    "subject": 0.8,
    "property": 0.3,
    "content": 1.05,
    "direct": 0.5,
    "zeroing": 0.95,
    "patch-same": 0.85,
    "patch-random": 1.05,
    "answer-template": 1.1,
    "answer-bare": 1.3,
    "template": 0.08,
    "patch-control": 0.06,
    "patch-self": 0.0,
}
"""How much of the knockout each intervention does."""


class Experiments:
    def __init__(self, dataset: str, seed: int) -> None:
        self.dataset, self.rng, self.rows = dataset, np.random.default_rng(seed), []

    def add(
        self,
        experiment: str,
        quantity: str,
        value: float,
        half: float | None = 3.0,
        **more: object,
    ) -> None:
        """One statistic; without `half` it has no interval."""
        ends = {} if half is None else {"ci_low": value - half, "ci_high": value + half}
        place = {
            "model": "m",
            "dataset": self.dataset,
            "site": "mlp",
            "position": "final",
            "experiment": experiment,
        }
        common = {
            "quantity": quantity,
            "value": value,
            "n": 120,
            "method": "bootstrap over groups",
        }
        self.rows.append(
            dict.fromkeys(EXPERIMENT_SCHEMA) | place | common | ends | more
        )

    def groups(
        self,
        experiment: str,
        quantity: str,
        q: float,
        a: float,
        half: float,
        **more: object,
    ) -> None:
        for group, value in (("Q-Anchored", q), ("A-Anchored", a)):
            self.add(
                experiment, quantity, value, half, group=group, truth="all", **more
            )


def layers(found: Experiments) -> None:
    """One layer reads the question, others help."""
    for group in GROUPS:
        about = {"variant": "single", "group": group, "truth": "all"}
        found.add(
            "layers", "share_of_cumulative", 0.7, 0.2, against="cumulative", **about
        )
        found.add("layers", "deepest_layer", 6.0, 1.0, **about)
    for cut in range(9):
        bump = 0.3 * np.exp(-(((cut - 6) / 1.6) ** 2))
        found.groups(
            "layers",
            "delta_p_reference",
            -40 * bump,
            -6 * bump,
            2.5,
            variant="single",
            layer=cut,
            q_value=0.01,
        )
    for cut in (0, 3, 6):
        about = {"variant": f"window {WINDOW}", "layer": cut, "q_value": 0.01}
        found.groups("layers", "delta_p_reference", -8.0 - 4 * cut, -2.0, 3.5, **about)


def heads(found: Experiments) -> None:
    """Head 2 carries most."""
    for head in range(HEADS):
        q = -5.4 if head == 2 else found.rng.normal(-0.3, 0.4)
        about = {
            "variant": f"head {head}",
            "layer": 8,
            "q_value": 0.003 if head == 2 else 0.6,
        }
        found.groups("heads", "delta_p_reference", q, q * 0.15, 1.6, **about)
    found.groups(
        "heads", "delta_p_reference", -8.4, -2.0, 2.0, variant="all heads", layer=8
    )


def mediation(found: Experiments) -> None:
    """The key words' states carry the truth in the lower half."""
    found.add("mediation", "gap_log_odds", 3.1, 0.4, truth="all")
    for quantity, size in (("necessity", 0.6), ("sufficiency", 0.4)):
        for layer in range(9):
            share = size / (1 + np.exp(layer - 5))
            about = {"truth": "all", "layer": layer, "p_value": 0.004, "q_value": 0.01}
            for kind, part in (
                ("opposite truth", 1.0),
                ("same truth", 0.15),
                ("other tokens", 0.05),
            ):
                found.add(
                    "mediation", quantity, share * part, 0.08, variant=kind, **about
                )
            about |= {"variant": "opposite truth", "against": "same truth"}
            found.add("mediation", f"{quantity}_difference", share * 0.85, 0.1, **about)


def saliency(found: Experiments) -> None:
    for variant in ("loss", "log_odds"):
        about = {"variant": variant, "truth": "all"}
        found.add("saliency", "auc", 0.71, 0.05, p_value=0.0002, **about)
        found.add("saliency", "auc_within_truth", 0.62, 0.06, p_value=0.01, **about)
    found.add("saliency", "auc_share_within_truth", 0.66, 0.05, p_value=0.001, **about)


def boundary(found: Experiments) -> None:
    for quantity, (q, a, half) in {
        "accuracy": (0.35, 0.12, 0.05),
        "dont_know_rate": (0.1, 0.3, 0.06),
        "popularity": (3.4, 3.1, 0.15),
        "confidence_mean": (-0.6, -0.9, 0.08),
    }.items():
        found.groups("boundary", quantity, q, a, half, variant="weighted")
        about = {"variant": "weighted", "truth": "all", "p_value": 0.0004}
        found.add("boundary", f"{quantity}_difference", q - a, 1.4 * half, **about)
    found.add("boundary", "coverage", 0.83, 0.02, variant="weighted", n=2000)


def self_awareness(found: Experiments) -> None:
    """A little is left within truth."""
    for layer in range(LAYERS):
        for suffix, top in (("", 0.68), ("_within_truth", 0.62)):
            value = (
                0.5
                + (top - 0.5) * (1 - np.exp(-layer / 3))
                + found.rng.normal(0, 0.008)
            )
            found.add("self-awareness", f"auc{suffix}", value, 0.03, probe_layer=layer)
    for quantity, value in {
        "auc_truth_label": 0.87,
        "auc_truth_margin_within_truth": 0.58,
        "auc_at_reference": 0.8,
        "auc_at_reference_within_truth": 0.61,
    }.items():
        found.add("self-awareness", quantity, value, 0.03)
    found.add("self-awareness", "auc_below", 0.78, 0.03, probe_layer=7)
    found.add(
        "self-awareness",
        "auc_below_within_truth",
        0.6,
        0.03,
        probe_layer=7,
        p_value=0.04,
    )


def matched(found: Experiments) -> None:
    """The probe knows more than words, and nearly all of it from the question."""
    found.add("matched", "pairs", 120, None, variant="matched")
    for name, auc, share in (("matched", 0.7, 0.93), ("free", 0.8, 0.6)):
        about = {"variant": name, "truth": "all", "probe_layer": 8}
        for quantity, value in (
            ("auc", auc),
            ("together", share),
            ("needs-question, random", 0.1),
        ):
            found.add(
                "matched", quantity, value, 0.04 if quantity == "auc" else 0.08, **about
            )
    own = {"variant": "matched", "truth": "all"}
    for quantity, value in {
        "auc_words": 0.5,
        "auc_confidence_mean": 0.74,
        "auc_free_probe": 0.62,
    }.items():
        found.add("matched", quantity, value, 0.03, **own)


def wordings(found: Experiments) -> None:
    """Shares repeat themselves a little."""
    found.add("wordings", "wordings", 8, None)
    for truth, value in {"all": 0.45, "true": 0.41, "false": 0.4}.items():
        about = {
            "variant": "lost",
            "against": "other probes",
            "truth": truth,
            "probe_layer": 0,
        }
        found.add("wordings", "reliability", value, 0.09, **about)


MAKERS = (
    layers,
    heads,
    mediation,
    saliency,
    boundary,
    self_awareness,
    matched,
    wordings,
)


def experiments(datasets: tuple[str, ...], seed: int = 3) -> pl.DataFrame:
    rows = []
    for number, dataset in enumerate(datasets):
        found = Experiments(dataset, seed + number)
        for make in MAKERS:
            make(found)
        rows += found.rows
    return pl.DataFrame(rows, schema=EXPERIMENT_SCHEMA)


def items(
    datasets: tuple[str, ...], n: int = 160, seed: int = 5
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Items with pathways, and their saliency: two humps, of which the label explains a part."""
    rng, rows, values = np.random.default_rng(seed), [], []
    for dataset in datasets:
        for number in range(n):
            true, asks = bool(number % 2), bool(rng.random() < 0.45)
            rows.append(
                {
                    "dataset": dataset,
                    "item_id": f"{dataset}-{number}",
                    "relation": "capital",
                    "question": f"Number {number}?",
                    "answers": ["Bern"],
                    "model_answer": "Bern",
                    "truthful": true,
                    "status": "used",
                    "pathway": "Q-Anchored" if asks else "A-Anchored",
                }
            )
            flow = 10 ** rng.normal(-1.6 if asks else -2.8, 0.35)
            wrong = float(rng.uniform(0.02, 0.5))
            for variant, value in (("log_odds", flow), ("loss", flow * wrong)):
                values.append(
                    (
                        dataset,
                        f"{dataset}-{number}",
                        "saliency",
                        variant,
                        "question_to_answer",
                        value,
                    )
                )
            values.append(
                (
                    dataset,
                    f"{dataset}-{number}",
                    "saliency",
                    "log_odds",
                    "share",
                    flow / (flow + 0.1),
                )
            )
    return pl.DataFrame(rows), pl.DataFrame(
        values, schema=EXPERIMENT_ITEM_SCHEMA, orient="row"
    )


def intervention_rows(
    datasets: tuple[str, ...], seed: int = 11
) -> tuple[pl.DataFrame, pl.DataFrame]:
    rng, tables, rows = np.random.default_rng(seed), [], []
    for dataset in datasets:
        for name, part in EFFECTS.items():
            about = {"intervention": name}
            for group, depth in GROUPS.items():
                end = part * depth
                rise = 1 - np.exp(-np.arange(LAYERS) / 4)
                curve = end * rise + rng.normal(0, 0.4, LAYERS) * bool(part)
                own = about | {"group": group}
                flips = abs(end) / 60
                tables.append(curve_rows(dataset, curve, **own))
                rows.append(summary_row(dataset, "delta_p_reference", end, 2.0, **own))
                rows.append(summary_row(dataset, "flip_rate", flips, 0.03, **own))
            gap = part * (GROUPS["Q-Anchored"] - GROUPS["A-Anchored"])
            difference = "delta_p_reference_difference"
            rows.append(summary_row(dataset, "flip_rate", part * 0.4, 0.02, **about))
            rows.append(summary_row(dataset, difference, gap, 4.0, **about))
    return pl.concat(tables), pl.DataFrame(rows, schema=SUMMARY_SCHEMA)


def make_further(
    datasets: tuple[str, ...] = ("popqa", "triviaqa"), lacking: tuple[str, ...] = ()
) -> Findings:
    """A run with every further experiment; datasets in `lacking` were run without any of them."""
    findings, made = (
        make_findings(datasets),
        tuple(name for name in datasets if name not in lacking),
    )
    curves, summary = intervention_rows(made)
    people, values = items(datasets)
    return replace(
        findings,
        n_layers=LAYERS,
        curves=pl.concat(
            [findings.curves.filter(pl.col("layer") < LAYERS), curves],
            how="vertical_relaxed",
        ),
        probe_scores=findings.probe_scores.filter(
            pl.col("layer").is_null() | (pl.col("layer") < LAYERS)
        ),
        reference_layers=dict.fromkeys(datasets, (8, 8, 9, 8, 7)),
        summary=pl.concat([findings.summary, summary]),
        items=people,
        experiments=experiments(made),
        experiment_items=values.filter(pl.col("dataset").is_in(made)),
        unavailable=pl.DataFrame(
            [
                (
                    datasets[-1],
                    "boundary",
                    "popularity: none of 160 items say how well known their subject is",
                )
            ],
            schema=UNAVAILABLE_SCHEMA,
            orient="row",
        ),
    )


def write_page_of(findings: Findings, out: Path) -> Path:
    out.mkdir(exist_ok=True)
    write_report(findings, read(findings), out)
    return out
