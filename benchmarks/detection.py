"""How long `detect` takes to fit and judge detectors on kept states.

    python benchmarks/detection.py [--device cuda] [--detectors probe,auto] [--json]

States are made, not read: noise along directions of falling weight, and along one of them the truth, most in the middle
layers; a cut leaves half of it. So are the plain numbers. What is timed is what `detect` does between reading a run and
writing its page: all fits of the nested evaluation, tossed labels included, every metric with its interval, and the
fits of the saved detectors. A detector pays for what it is the first to need: `probe` for directions and probes.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from anchorscope.artefacts.schema import FEATURE_SCHEMA
from anchorscope.catalogue import DETECTION_RUNS, DETECTORS
from anchorscope.detecting.inputs import BUNDLES
from anchorscope.detectors.evaluation import Evaluation, Plan, TrainedOn
from anchorscope.detectors.features import (
    CLEAN,
    QUESTION_ONLY,
    Features,
    StateKey,
    text_columns,
)
from anchorscope.detectors.training import Dataset
from anchorscope.engine.sequences import SITES
from anchorscope.progress import Silent
from anchorscope.stats.streams import stream
from reporting import Parser, Report, at_least, machine, names, run_script

SITE = "mlp"
FURTHER_RUNS = ("knockout", QUESTION_ONLY, *DETECTION_RUNS)
SHARE = {
    "knockout": 0.5,
    "question-only": 0.6,
    "answer-only": 0.4,
    "random-weights": 0.0,
}
"""What a run leaves of the truth's direction; all of it, where nothing is said."""
COLUMNS = tuple(name for name in FEATURE_SCHEMA if name != "item_id")


@dataclass
class Clock:
    """Seconds of named pieces of work, the device's own work included."""

    device: torch.device
    seconds: dict[str, float] = field(default_factory=dict)

    def now(self) -> float:
        """The time at which all that was asked for is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Times what is inside."""
        began = self.now()
        yield
        self.seconds[name] = self.now() - began


def made_states(
    n: int,
    n_layers: int,
    width: int,
    dtype: torch.dtype,
    device: torch.device,
    truth: np.ndarray,
) -> dict[StateKey, torch.Tensor]:
    """States of all runs that `--keep states,states-cut,detection` keeps, on the CPU, as they are read from files."""
    generator = torch.Generator(device).manual_seed(
        int(stream(0, "benchmark states").integers(2**31))
    )
    scale = torch.arange(1, width + 1, device=device).float().rsqrt()
    sign = torch.from_numpy(truth).to(device)
    found: dict[StateKey, torch.Tensor] = {}
    for layer in range(n_layers):
        signal = 1.2 * np.exp(-(((layer + 0.5) / n_layers - 0.6) ** 2) / 0.08)
        own = torch.randn(n, width, generator=generator, device=device)
        for run, site in [
            *((CLEAN, site) for site in SITES),
            *((run, SITE) for run in FURTHER_RUNS),
        ]:
            noise = torch.randn(n, width, generator=generator, device=device)
            states = (0.8 * own + 0.6 * noise) * scale
            states[:, width // 8] += (
                float(signal * SHARE.get(run, 1.0) * scale[width // 8]) * sign
            )
            found[run, site, layer] = states.to(dtype).cpu()
    return found


def made_dataset(given: argparse.Namespace, device: torch.device) -> Dataset:
    """Items in groups of one or two, twelve relations, half of the answers true."""
    n = given.items
    rng = stream(0, "benchmark items")
    labels = rng.permutation(np.arange(n) % 2 == 0)
    truth = np.where(labels, 1.0, -1.0).astype(np.float32)
    states = made_states(
        n, given.layers, given.width, getattr(torch, given.dtype), device, truth
    )
    columns = {name: rng.normal(size=n) + 0.25 * truth for name in COLUMNS}
    relations = [f"relation {one}" for one in rng.integers(12, size=n)]
    groups = np.sort(rng.integers(3 * n // 4, size=n))
    questions = [
        " ".join(f"word{one}" for one in rng.integers(2000, size=8)) for _ in range(n)
    ]
    answers = [f"word{one}" for one in rng.integers(2000, size=n)]
    columns |= text_columns(questions, answers)
    names = [f"item {place}" for place in range(n)]
    keys = [frozenset({f"question {place}"}) for place in range(n)]
    natural = np.where(labels, 1.0, 5.0)
    features = Features(n, states, columns)
    return Dataset("made", features, labels, groups, relations, names, natural, keys)


def measure(given: argparse.Namespace) -> Report:
    """Seconds of every part, and the AUROC of every detector."""
    device = torch.device(given.device)
    clock = Clock(device)
    with clock.of("make states"):
        dataset = made_dataset(given, device)
    plan = Plan(given.folds, given.seeds, given.tosses)
    trained = TrainedOn(dataset, SITE, plan, device)
    fitted = Clock(device)
    with clock.of("fit"):
        for name in given.detectors:
            with fitted.of(name):
                trained.fits.fit(name)
    with clock.of("judge"):
        evaluation = Evaluation(
            plan, given.resamples, given.detectors, Silent(), device=device
        )
        evaluation.in_domain(trained)
    with clock.of("saved detectors"):
        again = TrainedOn(dataset, SITE, Plan(given.folds, 1, 0), device)
        for name in BUNDLES:
            if name in given.detectors:
                again.calibration(name, natural=True)
    return _report(given, evaluation, clock, fitted)


def _report(
    given: argparse.Namespace, evaluation: Evaluation, clock: Clock, fitted: Clock
) -> Report:
    device = clock.device
    auroc = {
        row["detector"]: row["value"]
        for row in evaluation.tables["detectors"]
        if (row["metric"], row["prevalence"]) == ("auroc", "balanced")
    }
    rows: list[dict[str, Any]] = [
        {"part": name, "seconds": fitted.seconds[name], "auroc": auroc[name]}
        for name in given.detectors
    ]
    rows += [{"part": name, "seconds": spent} for name, spent in clock.seconds.items()]
    total = sum(clock.seconds[part] for part in ("fit", "judge", "saved detectors"))
    rows.append({"part": "total (states at hand)", "seconds": total})
    facts = {name: getattr(given, name) for name in (*SIZES, "dtype")}
    facts |= {"device": str(device), "machine": machine(device)}
    if device.type == "cuda":
        facts["peak_gpu_gb"] = torch.cuda.max_memory_allocated(device) / 1e9
    columns = {"part": "{}", "seconds": "{:.2f}", "auroc": "{:.3f}"}
    return Report(facts, columns, rows)


SIZES = {
    "items": 3000,
    "layers": 28,
    "width": 1536,
    "folds": 5,
    "seeds": 5,
    "tosses": 20,
    "resamples": 1000,
}


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    for name, value in SIZES.items():
        parser.add_argument(f"--{name}", type=at_least(1), default=value)
    kinds = ("bfloat16", "float32")
    parser.add_argument("--dtype", choices=kinds, default=kinds[0], help="of states")
    usual = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=usual)
    detectors = tuple(DETECTORS)
    parser.add_argument("--detectors", type=names(detectors), default=detectors)
    return run_script(parser, measure)


if __name__ == "__main__":
    sys.exit(main())
