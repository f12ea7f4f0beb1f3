"""Findings whose curves have bootstrap draws: the shapes are made by hand, the noise has a seed."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from anchorscope.report.findings import SAMPLE_SCHEMA, Findings
from report_synthetic import LAYERS, curve_rows, make_findings

DRAWS = 200

run_of = cache(make_findings)


def valley(depth: float, end: float, place: int = 15, layers: int = LAYERS) -> np.ndarray:
    """Straight from zero down to a trough, and straight on to the end."""
    return np.interp(np.arange(layers), [0, place, layers - 1], [0.0, depth, end])


def sample_rows(dataset: str, values: np.ndarray, noise: float, seed: int, **about: str) -> list[dict[str, object]]:
    """Rows of curve_samples.parquet of one curve; noise is partly the same in all layers, as in real draws."""
    rng = np.random.default_rng(seed)
    strays = noise * (0.8 * rng.normal(size=(DRAWS, len(values))) + 0.6 * rng.normal(size=(DRAWS, 1)))
    draws = np.vstack([values, values + strays])
    where = {"dataset": dataset, "site": "mlp", "position": "final", "assignment": "plain", "group": "Q-Anchored"}
    return [where | about | {"layer": layer, "delta_p": draws[:, layer].tolist()} for layer in range(len(values))]


def with_draws(
    findings: Findings, shapes: dict[tuple[str, str, str], np.ndarray], noise: float = 1.0, seed: int = 0
) -> Findings:
    """The run with these curves, by (dataset, assignment, group), and no others."""
    tables, rows = [], []
    for number, ((dataset, assignment, group), values) in enumerate(shapes.items()):
        about = {"assignment": assignment, "group": group}
        tables.append(curve_rows(dataset, np.asarray(values, float), width=2 * noise, **about))
        rows += sample_rows(dataset, np.asarray(values, float), noise, seed + number, **about)
    samples = pl.DataFrame(rows, schema=SAMPLE_SCHEMA)
    return replace(findings, curves=pl.concat(tables), curve_samples=samples)


def sampled(
    q: np.ndarray,
    a: np.ndarray | None = None,
    noise: float = 1.0,
    datasets: tuple[str, ...] = ("atlas",),
    rules: tuple[str, ...] = ("plain", "corrected"),
) -> Findings:
    """A run whose datasets all have the same two curves, under every rule."""
    flat = np.zeros(LAYERS) if a is None else a
    shapes = {
        (dataset, rule, group): values
        for dataset in datasets
        for rule in rules
        for group, values in (("Q-Anchored", q), ("A-Anchored", flat))
    }
    findings = run_of(datasets)
    return with_draws(findings, shapes, noise)
