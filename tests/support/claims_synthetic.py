"""Finished runs whose curves and draws are made by hand: every answer about them is known."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.report.findings import Findings
from report_synthetic import curve_rows, make_findings

LAYERS = 31
DEPTH = np.arange(LAYERS) / (LAYERS - 1)
FLAT = np.zeros(LAYERS)
_BASE = make_findings(("atlas",))


def falling_to(depth: float, place: float = 0.5, last: float | None = None, layers: int = LAYERS) -> np.ndarray:
    """A straight fall from zero to `depth` at a place along the depth, then a straight line to `last`."""
    x = np.arange(layers) / (layers - 1)
    return np.interp(x, [0, place, 1], [0, depth, depth if last is None else last])


def run_with(
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]],
    *,
    corrected: Mapping[str, tuple[np.ndarray, np.ndarray]] | None = None,
    noise: float = 0.5,
    draws: int = 200,
    seed: int = 1,
    **about: object,
) -> Findings:
    """A run with these curves (dataset: Q-Anchored, A-Anchored); every layer of every draw strays by `noise`."""
    rng = np.random.default_rng(seed)
    samples, drawn = [], []
    layers = len(next(iter(curves.values()))[0])
    for assignment, pairs in (("plain", curves), ("corrected", corrected or curves)):
        for dataset, pair in pairs.items():
            for group, value in zip(("Q-Anchored", "A-Anchored"), pair, strict=True):
                drawn.append(curve_rows(dataset, value, group=group, assignment=assignment))
                strayed = value + rng.normal(0, noise, (draws, len(value)))
                samples += [
                    {
                        "dataset": dataset,
                        "site": "mlp",
                        "position": "final",
                        "assignment": assignment,
                        "group": group,
                        "layer": layer,
                        "delta_p": [float(value[layer]), *strayed[:, layer].tolist()],
                    }
                    for layer in range(len(value))
                ]
    return replace(
        _BASE,
        **{
            "datasets": tuple(curves),
            "n_layers": layers,
            "curves": pl.concat(drawn),
            "parameters": 10**9,
            "curve_samples": pl.DataFrame(samples, schema=_BASE.curve_samples.schema),
        }
        | about,
    )


PAPER = ("popqa", "triviaqa", "hotpotqa", "nq")
BACK = falling_to(-60, 0.5, -30)
LOW = falling_to(-60, 0.3)
DOWN = falling_to(-80, 1.0)


def four(q: np.ndarray | Mapping[str, np.ndarray], a: np.ndarray = FLAT, **options: object) -> Findings:
    """A run on the paper's datasets, with one Q-Anchored curve for all or one for each."""
    return run_with({name: (q[name] if isinstance(q, dict) else q, a) for name in PAPER}, **options)
