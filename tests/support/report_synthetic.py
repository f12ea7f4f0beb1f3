"""A believable finished run, made of smooth curves and a seed: nothing here has seen a model.

The shapes follow what real runs show: a trough in the middle for Q-Anchored, a flat A-Anchored line, groups that follow
the label.
"""

from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.report.findings import Findings

LAYERS = 30
SITES = ("attention", "mlp", "residual")
GROUPS = ("Q-Anchored", "A-Anchored")
_DEPTH = {"Q-Anchored": -52.0, "A-Anchored": -5.0}


def trough(depth: float, last: float, layers: int = LAYERS) -> np.ndarray:
    """A curve that falls from zero to `depth` in the middle and comes back to `last`."""
    x = np.arange(layers) / (layers - 1)
    return depth * np.exp(-(((x - 0.55) / 0.22) ** 2)) + last / (
        1 + np.exp(-(x - 0.7) * 18)
    )


def curve_rows(
    dataset: str,
    values: np.ndarray,
    *,
    width: float = 3.0,
    n: int = 300,
    **about: object,
) -> pl.DataFrame:
    """Rows of curves.csv for one curve, with a constant interval."""
    base = {
        "model": "m",
        "dataset": dataset,
        "intervention": "knockout",
        "variant": "all",
        "site": "mlp",
        "position": "final",
        "group": "Q-Anchored",
        "truth": "all",
    } | about
    return pl.DataFrame(
        [
            base
            | {
                "layer": layer,
                "delta_p": float(v),
                "ci_low": float(v - width),
                "ci_high": float(v + width),
                "n": n,
                "n_groups": n,
            }
            for layer, v in enumerate(values)
        ]
    )


def curves(rng: np.random.Generator, datasets: tuple[str, ...]) -> pl.DataFrame:
    tables = []
    for number, dataset in enumerate(datasets):
        for group, depth in _DEPTH.items():
            for site in SITES:
                for truth, factor in (("all", 1.0), ("true", 1.1), ("false", 0.55)):
                    about = {"group": group, "truth": truth, "site": site}
                    bent = trough(
                        depth * factor + 7 * number, -0.3 * abs(depth)
                    ) + rng.normal(0, 0.8, LAYERS)
                    tables.append(curve_rows(dataset, bent, **about))
                    flat = rng.normal(0, 1.0, LAYERS)
                    tables.append(
                        curve_rows(dataset, flat, intervention="random", **about)
                    )
                    none = rng.normal(0, 0.01, LAYERS)
                    tables.append(
                        curve_rows(
                            dataset, none, intervention="none", width=0.02, **about
                        )
                    )
    return pl.concat(tables)


def probe_scores(rng: np.random.Generator, datasets: tuple[str, ...]) -> pl.DataFrame:
    """AUC per layer for all sites, and the baselines."""
    rows: list[dict[str, object]] = []
    x = np.arange(LAYERS) / (LAYERS - 1)

    def add(
        dataset: str,
        intervention: str,
        kind: str,
        site: str | None,
        layer: int | None,
        auc: float,
    ) -> None:
        rows.append(
            {
                "model": "m",
                "dataset": dataset,
                "intervention": intervention,
                "kind": kind,
                "site": site,
                "position": site and "final",
                "layer": layer,
                "auc": auc,
                "ci_low": auc - 0.02,
                "ci_high": auc + 0.02,
                "log_loss": 0.5,
                "brier": 0.2,
                "n": 600,
                "n_groups": 580,
            }
        )

    for dataset in datasets:
        for number, site in enumerate(SITES):
            clean = (
                0.55
                + 0.33 * np.sin(np.pi * x**0.7 * 0.9)
                + 0.02 * number
                + rng.normal(0, 0.006, LAYERS)
            )
            for layer in range(LAYERS):
                add(dataset, "clean", "transfer", site, layer, clean[layer])
                add(
                    dataset,
                    "clean",
                    "within-relation",
                    site,
                    layer,
                    clean[layer] - 0.07,
                )
                add(
                    dataset,
                    "knockout",
                    "transfer",
                    site,
                    layer,
                    0.5 + 0.3 * (clean[layer] - 0.5),
                )
                add(dataset, "random", "transfer", site, layer, clean[layer] - 0.015)
                if site == "mlp":
                    add(
                        dataset,
                        "knockout",
                        "refit",
                        site,
                        layer,
                        0.5 + 0.6 * (clean[layer] - 0.5),
                    )
            add(dataset, "clean", "nested", site, None, clean[15] - 0.005)
            add(
                dataset,
                "clean",
                "nested-within-relation",
                site,
                None,
                clean[15] - 0.075,
            )
            add(
                dataset, "knockout", "nested", site, None, 0.5 + 0.3 * (clean[15] - 0.5)
            )
            add(dataset, "random", "nested", site, None, clean[15] - 0.02)
            if site == "mlp":
                add(
                    dataset,
                    "knockout",
                    "nested-refit",
                    site,
                    None,
                    0.5 + 0.6 * (clean[15] - 0.5),
                )
                add(dataset, "clean", "nested+confidence", site, None, clean[15] + 0.03)
        for kind, auc in {
            "relation-only": 0.5,
            "words": 0.61,
            "confidence-mean": 0.68,
            "confidence-min": 0.71,
        }.items():
            add(dataset, "clean", kind, None, None, auc)
    return pl.DataFrame(rows, infer_schema_length=None)


SUMMARY_SCHEMA = dict.fromkeys(
    ("dataset", "site", "position", "intervention", "group", "quantity"), pl.String
) | {
    "value": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
    "n": pl.Int64,
    "method": pl.String,
}


def summary_row(
    dataset: str, quantity: str, value: float, half: float = 0.0, **about: object
) -> dict[str, object]:
    """One number of the summary; an interval only where it has a width."""
    empty = dict.fromkeys(SUMMARY_SCHEMA)
    interval = {"ci_low": value - half, "ci_high": value + half} if half else {}
    where = {
        "site": "mlp",
        "position": "final",
        "n": 300,
        "method": "bootstrap over groups",
    }
    return (
        empty
        | where
        | {"dataset": dataset, "quantity": quantity, "value": value}
        | interval
        | about
    )


def summary(datasets: tuple[str, ...]) -> pl.DataFrame:
    """The numbers of a run that behaves as real ones do."""
    rows = []

    def add(quantity: str, value: float, half: float = 0.0, **about: object) -> None:
        rows.extend(
            summary_row(dataset, quantity, value, half, **about) for dataset in datasets
        )

    add("null_share", 0.50, 0.02, group="Q-Anchored", intervention="knockout")
    add("kappa", 0.12, 0.04, intervention="knockout")
    add("flip_rate", 0.44, 0.03, intervention="knockout")
    add("flip_rate", 0.03, 0.01, intervention="random")
    add("flip_rate", 0.0, n=170, intervention="none")
    for group, of_all, true, half in (
        ("Q-Anchored", 0.44, 0.98, 0.015),
        ("A-Anchored", 0.56, 0.11, 0.03),
    ):
        about = {"group": group, "intervention": "knockout"}
        add("group_share", of_all, 0.03, **about)
        add("true_share", true, half, **about)
        add("delta_p_reference", _DEPTH[group], 2.5, **about)
        add("delta_p_reference", -1.2, 0.9, group=group, intervention="random")
    add("mean_probability_before", 0.50, 0.01, intervention="knockout")
    add("mean_probability_after", 0.17, 0.012, intervention="knockout")
    add("noise_log_odds_p99", 0.0003, intervention="none", n=200)
    for kind, gain in {
        "relation-only": 0.37,
        "words": 0.26,
        "confidence-mean": 0.19,
        "confidence-min": 0.16,
    }.items():
        add("auc_difference", gain, 0.03, intervention="clean", group=kind)
    add("auc_beyond_confidence", 0.2, 0.03, intervention="clean", group="nested")
    add("auc_beyond_confidence", 0.01, 0.02, intervention="clean", group="words")
    add("auc_permuted", 0.5, 0.06, intervention="knockout", group="refit")
    add("auc_beyond_permuted", 0.22, 0.06, intervention="knockout", group="refit")
    return pl.DataFrame(rows, schema=SUMMARY_SCHEMA)


def items(datasets: tuple[str, ...]) -> pl.DataFrame:
    cities = (
        "Bern",
        "Lima",
        "Oslo",
        "Cairo",
        "Quito",
        "Hanoi",
        "Sofia",
        "Dakar",
        "Minsk",
        "Tunis",
    )
    rows = [
        {
            "dataset": dataset,
            "item_id": f"{dataset}-{number}",
            "relation": ("capital", "currency", "author")[number % 3],
            "question": f"What is the capital of the country of {city}, asked number {number}?",
            "answers": [city, f"{city} City"],
            "model_answer": city if number % 2 else "Paris",
            "truthful": bool(number % 2),
            "status": "used" if number < 18 else "unbalanced",
            "pathway": ("A-Anchored", "Q-Anchored", "misclassified")[number % 3]
            if number < 18
            else None,
        }
        for dataset in datasets
        for number, city in enumerate(cities * 2)
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def make_findings(
    datasets: tuple[str, ...] = ("popqa", "triviaqa"), seed: int = 7
) -> Findings:
    rng = np.random.default_rng(seed)
    counts = pl.DataFrame(
        [
            {
                "dataset": d,
                "read": 14267,
                "repeated": 12,
                "few_shot": 3,
                "asked": 6000,
                "empty": 4,
                "truncated": 31,
                "true": 611,
                "false": 5354,
                "used": 1214,
                "used_true": 607,
                "groups": 1190,
                "relations": 16,
            }
            for d in datasets
        ]
    )
    pathways = items(datasets).select(
        "dataset",
        "item_id",
        pathway=pl.col("pathway"),
        site=pl.lit("mlp"),
        position=pl.lit("final"),
        reference_layer=pl.lit(15),
    )
    return Findings(
        model="SmolLM2-135M-Instruct",
        n_layers=LAYERS,
        site="mlp",
        position="final",
        datasets=datasets,
        items=items(datasets),
        probe_scores=probe_scores(rng, datasets),
        curves=curves(rng, datasets),
        pathways=pathways,
        summary=summary(datasets),
        counts=counts,
        reference_layers={d: (15, 15 + i, 17, 15, 16) for i, d in enumerate(datasets)},
        facts={
            "model": "smollm2-135m (sha256 0f3a…)",
            "prompt": "three examples, then the question",
            "device": "cpu",
            "precision": "float32",
            "seed": "0",
            "versions": "anchorscope 0.1.0, torch 2.13.0",
        },
        command="anchorscope run runs/demo/recipe.toml --out runs/again",
    )


def without(findings: Findings, *quantities: str) -> Findings:
    return replace(
        findings, summary=findings.summary.filter(~pl.col("quantity").is_in(quantities))
    )
