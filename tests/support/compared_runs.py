"""Finished run folders made by hand: synthetic findings written as the files that a run leaves, no model involved."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from anchorscope.artefacts.schema import ITEM_SCHEMA, SCHEMA_VERSION
from anchorscope.files import canonical_hash, sha256
from anchorscope.recipe import make_recipe, to_toml
from anchorscope.report.findings import Findings
from drawn_curves import run_of, with_curves
from report_shares import run_with_shares
from report_synthetic import GROUPS, trough


def model_findings(
    model: str = "small",
    *,
    layers: int = 12,
    depth: float = -50.0,
    parameters: int = 135_000_000,
    datasets: tuple[str, ...] = ("popqa", "triviaqa"),
    random_weights: bool = False,
) -> Findings:
    """A run whose Q-Anchored curves fall to `depth`, and draws that scatter around them."""
    base, shapes = run_of(datasets), {}
    for number, dataset in enumerate(datasets):
        for group in GROUPS:
            low = (depth if group == "Q-Anchored" else -4.0) + 4 * number
            shapes[dataset, group] = trough(low, 0.4 * low, layers)
    drawn = with_curves(base, shapes, draws=60, seed=layers)
    return replace(
        drawn,
        model=model,
        n_layers=layers,
        parameters=parameters,
        random_weights=random_weights,
        curves=drawn.curves.with_columns(model=pl.lit(model)),
        probe_scores=base.probe_scores.filter(
            pl.col("layer").is_null() | (pl.col("layer") < layers)
        ),
        pathways=base.pathways.with_columns(reference_layer=pl.lit(layers // 2)),
        reference_layers=dict.fromkeys(datasets, (layers // 2,) * 5),
    )


def with_random(findings: Findings) -> Findings:
    """The run with its random control: a part of what the knockout does."""
    random = findings.curves.filter(pl.col("intervention") == "knockout").with_columns(
        pl.lit("random").alias("intervention"),
        *(pl.col(name) * 0.15 for name in ("delta_p", "ci_low", "ci_high")),
    )
    return replace(findings, curves=pl.concat([findings.curves, random]))


def write_run(
    folder: Path,
    findings: Findings,
    *,
    fingerprint: str | None = None,
    answer: str | None = None,
    **options: Any,
) -> Path:
    """The files of a finished run; `options` are the recipe's, `versions` and `inputs` go into the manifest."""
    folder.mkdir(parents=True)
    said = {name: options.pop(name, {}) for name in ("versions", "inputs")}
    recipe = make_recipe(
        {
            "datasets": findings.datasets,
            "model": findings.model,
            "dtype": "float32",
            **options,
        }
    )
    (folder / "recipe.toml").write_text(to_toml(recipe), encoding="utf-8")
    items = findings.items
    left_out = [name for name in ITEM_SCHEMA if name not in items.columns]
    items.with_columns(pl.lit(None).alias(name) for name in left_out).write_parquet(
        folder / "items.parquet"
    )
    for name in (
        "pathways",
        "curve_samples",
        "experiment_items",
        "evidence_items",
        "effects",
    ):
        getattr(findings, name).write_parquet(folder / f"{name}.parquet")
    for name in (
        "curves",
        "probe_scores",
        "summary",
        "experiments",
        "evidence_parts",
        "evidence_tests",
    ):
        getattr(findings, name).write_csv(folder / f"{name}.csv")
    if answer is not None:
        (folder / "answer.json").write_text(answer, encoding="utf-8")
    model = {
        "name": findings.model,
        "source": recipe.model,
        "n_layers": findings.n_layers,
        "d_model": 64,
        "parameters": findings.parameters,
        "fingerprint": fingerprint or f"{findings.model}-weights",
        "random_weights": findings.random_weights,
    }
    about = {
        "counts": findings.counts.to_dicts(),
        "facts": dict(findings.facts),
        "reference_layers": {
            name: list(layers) for name, layers in findings.reference_layers.items()
        },
        "unavailable": [],
    }
    return seal_run(folder, model, **said, **about)


def made_run(folder: Path) -> Path:
    """A run with a report and a figure, as trackers take it."""
    findings = run_with_shares(datasets=("popqa",))
    write_run(
        folder, findings, inputs={"popqa": "a1" * 32}, versions={"anchorscope": "0.1.0"}
    )
    (folder / "report.html").write_text("<p>report</p>", encoding="utf-8")
    (folder / "figures").mkdir()
    (folder / "figures" / "delta_p.png").write_bytes(b"png")
    return folder


def seal_run(folder: Path, model: dict[str, Any], **about: Any) -> Path:
    """Writes the manifest of a run whose files are there."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    manifest = {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "architecture": "LlamaForCausalLM",
            "device": "cpu",
            "dtype": "float32",
            **model,
        },
        **about,
        "sha256": {path.relative_to(folder).as_posix(): sha256(path) for path in files},
    }
    (folder / "manifest.json").write_text(
        json.dumps({**manifest, "seal": canonical_hash(manifest)}), encoding="utf-8"
    )
    return folder
