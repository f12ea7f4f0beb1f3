"""Findings whose curves are made by hand, with bootstrap draws that have a seed: every answer about them is known."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl

from anchorscope.report.findings import SAMPLE_SCHEMA, Findings
from report_synthetic import GROUPS, LAYERS, curve_rows, make_findings

FLAT = np.zeros(LAYERS)
DRAWS = 200

run_of = cache(make_findings)


def falling_to(depth: float, place: int = 15, last: float | None = None) -> np.ndarray:
    """Straight from zero down to `depth` at a layer, and straight on to `last`."""
    return np.interp(
        np.arange(LAYERS),
        [0, place, LAYERS - 1],
        [0.0, depth, depth if last is None else last],
    )


def with_curves(
    findings: Findings,
    shapes: Mapping[tuple[str, str], np.ndarray],
    noise: float = 1.0,
    draws: int = DRAWS,
    seed: int = 0,
) -> Findings:
    """The run with these curves, by (dataset, group), and no others.

    Noise is partly the same in all layers of a draw, as in real ones.
    """
    tables, rows = [], []
    rng = np.random.default_rng(seed)
    for (dataset, group), values in shapes.items():
        tables.append(curve_rows(dataset, values, width=2 * noise, group=group))
        strays = noise * (
            0.8 * rng.normal(size=(draws, len(values)))
            + 0.6 * rng.normal(size=(draws, 1))
        )
        drawn = np.vstack([values, values + strays])
        where = {"dataset": dataset, "site": "mlp", "position": "final", "group": group}
        rows += [
            where | {"layer": layer, "delta_p": drawn[:, layer].tolist()}
            for layer in range(len(values))
        ]
    return replace(
        findings,
        curves=pl.concat(tables),
        curve_samples=pl.DataFrame(rows, schema=SAMPLE_SCHEMA),
    )


def run_with(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    noise: float = 0.5,
    draws: int = DRAWS,
    seed: int = 1,
    **about: object,
) -> Findings:
    """A run with these curves (dataset: Q-Anchored, A-Anchored)."""
    shapes = {
        (dataset, group): values
        for dataset, pair in curves.items()
        for group, values in zip(GROUPS, pair, strict=True)
    }
    return replace(
        with_curves(run_of(tuple(curves)), shapes, noise, draws, seed), **about
    )
