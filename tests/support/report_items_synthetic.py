"""Single items of a believable run: log-odds from a seed, everything else by the functions that a run uses."""

from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.delta_p import (
    Curve,
    Measured,
    curves,
    noise_at_reference,
    pathways,
)
from anchorscope.evidence.draws import Draws
from anchorscope.evidence.effects import Effect
from anchorscope.report.findings import (
    EXPERIMENT_ITEM_SCHEMA,
    Findings,
    headline_effects,
)
from anchorscope.result_tables import effects_frame
from report_synthetic import SUMMARY_SCHEMA, make_findings, summary_row

FOLDS = 5
SITE = SITES.index("mlp")
DONORS = (3, 1, 2)
"""How many donors an item has, by turns."""


def measured_items(n: int, layers: int, rng: np.random.Generator) -> Measured:
    """Log-odds of one dataset: the cut moves them towards "false", a random one hardly, nothing by nothing."""
    labels = rng.random(n) < 0.5
    before = np.where(labels, 1.4, -1.4) + rng.normal(0, 1.2, (layers, n))
    donors = np.repeat(np.arange(n), [DONORS[item % len(DONORS)] for item in range(n)])
    some = np.arange(0, n, 3)
    ran = {
        "knockout": np.arange(n),
        "random": np.arange(n),
        "none": some,
        "patch-same": donors,
    }
    moved = {
        "knockout": (-1.6, 1.0),
        "random": (0.0, 0.3),
        "none": (0.0, 1e-4),
        "patch-same": (-1.0, 1.5),
    }
    return Measured(
        labels=labels,
        groups=np.arange(n),
        folds=np.arange(n) % FOLDS,
        before=before,
        after={
            name: before[..., ran[name]]
            + rng.normal(*moved[name], (layers, len(ran[name])))
            for name in ran
        },
        ran=ran,
        reference=np.array([layers // 2 + fold % 2 for fold in range(FOLDS)]),
    )


def effects_of(measured: Measured, dataset: str, ids: list[str]) -> pl.DataFrame:
    """effects.parquet of one dataset, as a run writes it; the other sites hold other numbers."""

    def placed(log_odds: np.ndarray) -> np.ndarray:
        everywhere = np.full(
            (log_odds.shape[-1], 1, len(SITES), log_odds.shape[-2]),
            9.0,
            dtype=np.float32,
        )
        everywhere[:, 0, SITE] = log_odds.T
        return everywhere

    effects = []
    for name, ran in measured.ran.items():
        _, first, runs = np.unique(ran, return_index=True, return_counts=True)
        run = (
            np.arange(len(ran)) - np.repeat(first, runs)
            if name == "patch-same"
            else None
        )
        variant, n_cut = (
            "donor" if run is not None else "all",
            np.where(name == "none", 0, 1 + ran % 4),
        )
        effects.append(
            Effect(name, variant, ran, n_cut, placed(measured.after[name]), run)
        )
    return effects_frame(dataset, ids, ("final",), placed(measured.before), effects)


def make_items(
    n: int = 40, layers: int = 12, datasets: tuple[str, ...] = ("popqa", "triviaqa")
) -> tuple[Findings, dict[str, Measured]]:
    """A run with `n` used items per dataset and three that are not used, and the numbers behind its effects."""
    rng = np.random.default_rng(1)
    items, effects, assigned, summary, behind, values = [], [], [], [], {}, []
    for dataset in datasets:
        measured = behind[dataset] = measured_items(n, layers, rng)
        ids = [f"{dataset}-{number}" for number in range(n)]
        ways = pathways(measured).names()
        items += [_item(dataset, number, measured, ways) for number in range(n)]
        items += [
            _item(dataset, n + number, None, [], status)
            for number, status in enumerate(("unbalanced", "empty"))
        ]
        effects.append(effects_of(measured, dataset, ids))
        assigned += [
            {
                "dataset": dataset,
                "item_id": item_id,
                "site": site,
                "position": "final",
                "reference_layer": int(measured.reference[place % FOLDS])
                if site == "mlp"
                else 0,
                "pathway": name if site == "mlp" else "misclassified",
            }
            for site in ("attention", "mlp")
            for place, (item_id, name) in enumerate(zip(ids, ways, strict=True))
        ]
        floor = noise_at_reference(measured)
        summary.append(
            summary_row(dataset, "noise_log_odds_p99", floor, intervention="none")
        )
        values += [
            (dataset, item_id, "saliency", "loss", "share", 0.25 + place)
            for place, item_id in enumerate(ids[:5])
        ]
    base = make_findings(datasets)
    noise = pl.DataFrame(summary, schema=SUMMARY_SCHEMA)
    rest = base.summary.filter(pl.col("quantity") != "noise_log_odds_p99")
    return replace(
        base,
        n_layers=layers,
        items=pl.DataFrame(items, infer_schema_length=None),
        effects=headline_effects(pl.concat(effects), "mlp", "final"),
        pathways=pl.DataFrame(assigned),
        summary=pl.concat([rest, noise]),
        experiment_items=pl.DataFrame(
            values, schema=EXPERIMENT_ITEM_SCHEMA, orient="row"
        ),
        curves=base.curves.filter(pl.col("layer") < layers),
        probe_scores=base.probe_scores.filter(
            pl.col("layer").is_null() | (pl.col("layer") < layers)
        ),
        reference_layers={
            name: tuple(one.reference.tolist()) for name, one in behind.items()
        },
    ), behind


def curves_of(measured: Measured, intervention: str) -> dict[str, Curve]:
    """The curves of both groups, all answers together, by the function that makes curves.csv."""
    draws = Draws.of(np.ones((1, len(measured.labels))))
    return {
        one.group: one
        for one in curves(measured, intervention, draws)
        if one.truth == "all"
    }


def with_texts(findings: Findings, row: int, **texts: object) -> Findings:
    """The same run with other texts in one row of its items."""
    rows = findings.items.to_dicts()
    rows[row] |= texts
    return replace(findings, items=pl.DataFrame(rows, infer_schema_length=None))


def _item(
    dataset: str,
    number: int,
    measured: Measured | None,
    ways: list[str],
    status: str = "used",
) -> dict[str, object]:
    city = ("Bern", "Lima", "Oslo", "São Paulo", "Quito")[number % 5]
    question = f"What is the capital of the land of {city}, number {number}?"
    at = question.index(city)
    return {
        "dataset": dataset,
        "item_id": f"{dataset}-{number}",
        "question": question,
        "answers": [city, f"{city} City"],
        "subject": city,
        "relation": ("capital", "author")[number % 2],
        "question_words": [[12, 19], [at, at + len(city)]],
        "model_answer": "" if status == "empty" else city,
        "truthful": None
        if status == "empty"
        else bool(measured.labels[number])
        if measured
        else True,
        "confidence_mean": None if status == "empty" else -0.01 * (1 + number),
        "status": status,
        "fold": number % FOLDS if measured else None,
        "pathway": ways[number] if measured else None,
    }
