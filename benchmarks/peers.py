"""Speed here against other ways to do the same work, each checked to compute the same.

    python benchmarks/peers.py [--work knockout,probes] [--ways anchorscope,plain] [--model shape:qwen3-8b] [--json]

Every way is tuned, checked on a few items against the plain loop in float32, then timed in turns with the others (A B C
A B C); slow ones run fewer items. Greedy answers are compared with transformers' own `generate`. Probes race a
scikit-learn loop with the same standardisation, precision and tolerance; their objectives are compared. Needs nothing
but torch, transformers, NumPy, SciPy and scikit-learn: `PYTHONPATH=src python benchmarks/peers.py`.
"""

import argparse
import copy
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.errors import UserError
from anchorscope.models import sources
from anchorscope.models.devices import is_out_of_memory
from anchorscope.models.embedded import installed_path
from anchorscope.models.language_model import LanguageModel
from anchorscope.models.loading import (
    BALANCED,
    DTYPES,
    checked_device,
    choose_device,
    choose_dtype,
    load,
)
from anchorscope.models.wrapping import wrap
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import STRENGTHS
from anchorscope.probes.logistic import TOLERANCE, TrainingSets, fit_layers
from anchorscope.stats.streams import unnamed
from reporting import Parser, Report, at_least, machine, names, run_script, say
from ways import KINDS, CannotDo, Implementation, Own, Plain, PlainBatched, make
from workload import LEAST_OWN, Measured, Workload, made_items, measure, refuse_windows

Row = dict[str, Any]
STATES = tuple(KINDS)
WAYS_OF = {
    "knockout": STATES,
    "single-layer": STATES,
    "probes": ("anchorscope", "scikit-learn"),
    "generation": ("anchorscope", "plain-batched"),
}
"""What is measured (a clean pass and one cut in all layers; a cut in every single layer; fits; greedy answers), and who
does it."""
WAYS = (*STATES, "scikit-learn")
FOLDS = 5
_TOKENIZER_OF = "smollm2-135m"  # serves all shapes
_EXPLAINED = 1e-4  # of the largest state; what the order of sums can do in float32
_EXPLAINED_COARSE = 0.15  # in half precision, over tens of layers
_LEAST = 4  # items of a timed repeat
_WARM = 8  # prompts of our untimed run
_CHECKED = {"knockout": 8, "single-layer": 2}  # items whose states are compared
_MAX_ITERATIONS = 10_000  # none of them may stop the loop before its tolerance does


@dataclass(frozen=True)
class Setting:
    """One benchmark that is running."""

    options: argparse.Namespace
    lm: LanguageModel

    def workload(self, n: int) -> Workload:
        options = self.options
        length = options.shared + options.own
        refuse_windows(self.lm, length)
        vocabulary = int(self.lm.config.vocab_size)
        items = made_items(n, options.shared, options.own, vocabulary, options.seed)
        return Workload(items, options.new_tokens)

    def ways_of(self, work: str) -> list[str]:
        return [way for way in WAYS_OF[work] if way in self.options.ways]

    def race(
        self, work: str, runs: Mapping[str, Callable[[], Any]]
    ) -> dict[str, list[Measured]]:
        """All runs in turn, so that noise affects all alike."""
        taken: dict[str, list[Measured]] = {name: [] for name in runs}
        for repeat in range(self.options.repeats):
            for name, run in runs.items():
                measured = measure(run, self.lm.device)
                taken[name].append(measured)
                say(f"{work}: {name}, repeat {repeat + 1}: {measured.seconds:.2f} s")
        return taken


def load_model(options: argparse.Namespace) -> LanguageModel:
    """The model; a shape has no tokenizer if the embedded model isn't installed."""
    device = choose_device(options.device)
    if device == BALANCED:
        raise UserError(
            f"A benchmark runs on one device, not {BALANCED}; choose cuda or cpu."
        )
    dtype = choose_dtype(options.dtype, device)
    has_tokenizer = installed_path(_TOKENIZER_OF) is not None
    if has_tokenizer or dtype not in DTYPES or not sources.is_shape(options.model):
        return load(options.model, dtype, device)
    vocabulary = sources.SHAPES[_TOKENIZER_OF].vocabulary
    config = sources.shape_config(options.model, vocabulary)
    target = checked_device(device)
    model = sources.build_shape(config, DTYPES[dtype], target).to(target)
    title = sources.shape_title(options.model)
    return wrap(model, None, title, options.model, random_weights=True)


def timed(row: Row, items: int, taken: Sequence[Measured]) -> Row:
    """The row with what its repeats took."""
    seconds = [repeat.seconds for repeat in taken]
    peaks = [repeat.peak_gpu_mb for repeat in taken if repeat.peak_gpu_mb is not None]
    return row | {
        "done": items,
        "seconds": seconds,
        "per_s": items / median(seconds),
        "spread": (max(seconds) - min(seconds)) / median(seconds),
        "peak_gpu_mb": max(peaks, default=None),
    }


def with_speedups(rows: Sequence[Row]) -> list[Row]:
    """The rows with the rate of `anchorscope` over each one's, within one work."""
    ours = {
        row["work"]: row.get("per_s") for row in rows if row["way"] == "anchorscope"
    }
    return [
        row | {"speedup": ours[row["work"]] / row["per_s"]}
        if row.get("per_s") and ours.get(row["work"])
        else row
        for row in rows
    ]


# States


@dataclass(frozen=True)
class Ready:
    """A way that was made and tuned, once for both works."""

    way: Implementation
    tuned: str
    """What it chose."""

    def run(self, work: str, workload: Workload) -> Tensor:
        if work == "knockout":
            return self.way.knockout(workload)
        return self.way.single_layer(workload)


def prepare(name: str, setting: Setting, workload: Workload) -> Ready | str:
    """The way, or why it can't run."""
    try:
        way = make(name, setting.lm)
        tuned = way.tune(workload)
    except Exception as error:
        return _why_not(name, error)
    say(f"{name}: {tuned}")
    return Ready(way, tuned)


def _why_not(name: str, error: Exception) -> str:
    """Too little memory, or another library's failure; ours is raised again."""
    reason = (str(error).splitlines() or [""])[0][:160]
    if isinstance(error, CannotDo):
        return str(error)
    if is_out_of_memory(error):
        return f"memory does not suffice ({reason})"
    if KINDS[name][1] is None:
        raise error
    return f"fails here with {type(error).__name__}: {reason}"


def state_rows(
    setting: Setting, work: str, workload: Workload, ready: Mapping[str, Ready | str]
) -> list[Row]:
    """One row per chosen way."""
    part = workload.first(_CHECKED[work])
    wanted = _wanted_states(setting, work, part)
    rows: dict[str, Row] = {}
    runs: dict[str, Callable[[], Tensor]] = {}
    parts: dict[str, Workload] = {}
    for name in setting.ways_of(work):
        way = ready[name]
        rows[name] = {"work": work, "way": name}
        if isinstance(way, str):
            rows[name]["note"] = way
            continue
        rows[name]["setting"] = way.tuned
        try:
            began = time.perf_counter()
            rows[name] |= compared(way.run(work, part), wanted)
            rate = len(part.items) / (time.perf_counter() - began)
        except Exception as error:
            rows[name]["note"] = _why_not(name, error)
            continue
        n = affordable(rate * setting.options.seconds, way.way.size)
        parts[name] = workload.first(n)
        runs[name] = partial(way.run, work, parts[name])
    for name, taken in setting.race(work, runs).items():
        rows[name] = timed(rows[name], len(parts[name].items), taken)
    return list(rows.values())


def affordable(fits: float, batch: int) -> int:
    """Items that one repeat has time for: whole batches, or a part of one, but never very few."""
    if fits >= batch:
        return int(fits // batch * batch)
    return max(_LEAST, int(fits))


def _wanted_states(setting: Setting, work: str, part: Workload) -> Tensor:
    """What the plain loop gives in float32, or in the model's precision if a float32 copy doesn't fit."""
    lm = setting.lm
    needed = 4 * sum(tensor.numel() for tensor in lm.model.parameters())
    on_cpu = lm.device.type != "cuda"
    fits = on_cpu or torch.cuda.mem_get_info(lm.device)[0] >= 1.5 * needed
    if fits and lm.dtype != torch.float32:
        lm = replace(lm, model=copy.deepcopy(lm.model).float())
    say(f"{work}: states of {len(part.items)} items by the plain loop in {lm.dtype}")
    return Ready(Plain(lm), "").run(work, part).float()


def compared(states: Tensor, wanted: Tensor) -> Row:
    """The largest absolute difference, and whether the precision explains it."""
    off = float((states.float() - wanted).abs().max())
    relative = off / float(wanted.abs().max())
    is_exact = states.dtype == torch.float32
    same = relative <= (_EXPLAINED if is_exact else _EXPLAINED_COARSE)
    found: Row = {"difference": off, "same": same}
    if not same:
        found["note"] = f"DIFFERS by {relative:.1%}, more than the precision explains"
    return found


# Greedy answers


def generation_rows(setting: Setting, workload: Workload) -> list[Row]:
    chosen = setting.ways_of("generation")
    n = len(workload.items)
    generate: dict[str, Callable[[Workload], list[tuple[int, ...]]]] = {}
    rows: dict[str, Row] = {}
    for name in chosen:
        if name == "anchorscope":
            own = Own(setting.lm)
            own.generate(workload.first(_WARM))
            tuned = f"batches of {own.batch_tokens} tokens"
            generate[name] = own.generate
        else:
            plain = PlainBatched(setting.lm)
            tuned = plain.tune_size(n, partial(_generate_first, plain, workload))
            generate[name] = plain.generate
        rows[name] = {"work": "generation", "way": name, "setting": tuned}
    answers: dict[str, list[tuple[int, ...]]] = {}

    def run(name: str) -> None:
        answers[name] = generate[name](workload)

    races = {name: partial(run, name) for name in chosen}
    for name, taken in setting.race("generation", races).items():
        rows[name] = timed(rows[name], n, taken)
    if len(answers) == 2:
        pairs = zip(*answers.values(), strict=True)
        differ = sum(mine != other for mine, other in pairs) / n
        is_exact = setting.lm.dtype == torch.float32
        for row in rows.values():
            row["difference"] = differ
            row["same"] = differ == 0 or not is_exact
    return list(rows.values())


def _generate_first(way: PlainBatched, workload: Workload, size: int) -> None:
    way.generate(workload.first(size))


# Probes


@dataclass(frozen=True)
class Problem:
    states: Tensor
    """[layer, item, d_model], where the solver runs."""
    labels: NDArray[np.bool_]
    folds: NDArray[np.int64]


@dataclass(frozen=True)
class Fitted:
    """The fits of a layer: strength by strength within fold by fold."""

    weight: NDArray[np.float32]
    """Acting on raw states, [d_model, column]."""
    logits: NDArray[np.float32]
    """Log-odds of every item, [item, column]."""
    unconverged: int = 0


COLUMNS = FOLDS * len(STRENGTHS)


def make_problem(setting: Setting) -> Problem:
    """Clean states of what attention adds, and folds of single items."""
    workload = setting.workload(setting.options.probe_items)
    say(f"probes: states of {len(workload.items)} items")
    labels = np.array([item.label for item in workload.items])
    states = Own(setting.lm).clean(workload).to(setting.lm.device)
    order = unnamed(setting.options.seed, "folds", len(labels))
    strata = truth_strata(labels)
    folds = grouped_folds(np.arange(len(labels)), strata, FOLDS, order)
    return Problem(states, labels, folds)


def fit_own(problem: Problem, layers: Sequence[int]) -> list[Fitted]:
    """All layers, folds and strengths at once."""
    states = problem.states
    if len(layers) < len(states):
        states = states[list(layers)]
    learns = torch.as_tensor(np.stack([problem.folds != fold for fold in range(FOLDS)]))
    fold_of_column = torch.arange(FOLDS).repeat_interleave(len(STRENGTHS))
    sets = TrainingSets(
        labels=torch.as_tensor(problem.labels),
        members=learns[fold_of_column],
        scaled_on=learns,
        scaling=fold_of_column,
        strengths=torch.tensor(STRENGTHS).repeat(FOLDS),
    )
    fit = fit_layers(states, sets, states.device)
    layers_of = zip(fit.weight, fit.logits, fit.converged, strict=True)
    return [
        Fitted(weight.T.numpy(), logits.T.numpy(), int((~converged).sum()))
        for weight, logits, converged in layers_of
    ]


def fit_sklearn(problem: Problem, layers: Sequence[int]) -> list[Fitted]:
    """One `LogisticRegression` per layer, fold and strength, on all cores."""
    from sklearn.utils.parallel import Parallel, delayed

    hosted = {layer: problem.states[layer].float().cpu().numpy() for layer in layers}
    jobs = [
        delayed(_fit_fold)(hosted[layer], problem.labels, problem.folds != fold)
        for layer in layers
        for fold in range(FOLDS)
    ]
    folds = Parallel(n_jobs=os.cpu_count())(jobs)
    fitted = []
    for start in range(0, len(folds), FOLDS):
        weights, logits = zip(*folds[start : start + FOLDS], strict=True)
        weight = np.concatenate(weights, axis=1)
        fitted.append(Fitted(weight, np.concatenate(logits, axis=1)))
    return fitted


def _fit_fold(
    states: NDArray[np.float32], labels: NDArray[np.bool_], learns: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights on raw states and logits of all items, one column per strength."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(states[learns])
    scaled = scaler.transform(states)
    weights = []
    logits = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=_MAX_ITERATIONS)
        with warnings.catch_warnings():
            # The comparison shows how far off a fit is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(scaled[learns], labels[learns])
        weights.append(model.coef_[0] / scaler.scale_)
        logits.append(model.decision_function(scaled))
    weight = np.stack(weights, axis=1).astype(np.float32)
    return weight, np.stack(logits, axis=1).astype(np.float32)


def objectives(problem: Problem, layer: int, fitted: Fitted) -> NDArray[np.float64]:
    """Mean loss plus penalty on the training folds, in standardised coordinates, [column]."""
    states = problem.states[layer].double().cpu().numpy()
    values = np.empty(COLUMNS)
    for column in range(COLUMNS):
        fold, strength = divmod(column, len(STRENGTHS))
        learns = problem.folds != fold
        logits = fitted.logits[:, column].astype(np.float64)
        signed = np.where(problem.labels, -logits, logits)
        loss = np.logaddexp(0, signed)[learns].mean()
        scaled = fitted.weight[:, column] * states[learns].std(axis=0)
        penalty = 0.5 * float(scaled @ scaled) / STRENGTHS[strength]
        values[column] = loss + penalty / int(learns.sum())
    return values


def probe_rows(setting: Setting) -> list[Row]:
    """Fits per second; the difference is how far an objective lies above the other's at most, relative."""
    problem = make_problem(setting)
    every = list(range(len(problem.states)))
    fits = {"anchorscope": fit_own, "scikit-learn": fit_sklearn}
    layers = {}
    for name in setting.ways_of("probes"):
        # Untimed: the first products of a process are slow, and processes take a while to start.
        fits[name](problem, every[:1])
        began = time.perf_counter()
        fits[name](problem, every[:1])
        n = int(setting.options.seconds / (time.perf_counter() - began))
        n = min(len(every), max(1, n))
        some = np.linspace(0, len(every) - 1, n).round().astype(int).tolist()
        layers[name] = every if name == "anchorscope" else some
    fitted: dict[str, dict[int, Fitted]] = {}

    def run(name: str) -> None:
        found = fits[name](problem, layers[name])
        fitted[name] = dict(zip(layers[name], found, strict=True))

    rows = {}
    races = {name: partial(run, name) for name in layers}
    for name, taken in setting.race("probes", races).items():
        row: Row = {"work": "probes", "way": name}
        row["setting"] = f"{len(layers[name])} of {len(every)} layers"
        missed = sum(layer.unconverged for layer in fitted[name].values())
        if missed:
            row["note"] = f"{missed} fits did not converge"
        rows[name] = timed(row, COLUMNS * len(layers[name]), taken)
    if len(rows) == 2:
        ours, theirs = (
            np.array(
                [
                    objectives(problem, at, fitted[name][at])
                    for at in layers["scikit-learn"]
                ]
            )
            for name in fits
        )
        rows["anchorscope"]["difference"] = max(0.0, float((ours / theirs - 1).max()))
        rows["scikit-learn"]["difference"] = max(0.0, float((theirs / ours - 1).max()))
        rows["anchorscope"]["same"] = rows["anchorscope"]["difference"] < _EXPLAINED
    return list(rows.values())


# All


def run_peers(options: argparse.Namespace) -> Report:
    """Loads, times all ways of every work; a way that computes something else is a failed check."""
    if not any(way in options.ways for work in options.work for way in WAYS_OF[work]):
        raise UserError(
            f"None of the ways {', '.join(options.ways)} can do {', '.join(options.work)}."
        )
    say(f"load {options.model}")
    lm = load_model(options)
    setting = Setting(options, lm)
    workload = setting.workload(options.items)
    rows: list[Row] = []
    ready: dict[str, Ready | str] = {}
    for work in options.work:
        if WAYS_OF[work] is STATES:
            for name in setting.ways_of(work):
                if name not in ready:
                    ready[name] = prepare(name, setting, workload)
            rows += state_rows(setting, work, workload, ready)
        elif work == "probes":
            rows += probe_rows(setting)
        else:
            rows += generation_rows(setting, workload)
    rows = with_speedups(rows)
    about = [
        f"{row['work']}, {row['way']}: {row[what]}"
        for what in ("note", "setting")
        for row in rows
        if what in row
    ]
    facts = {
        "model": lm.name,
        "device": str(lm.device),
        "dtype": str(lm.dtype).removeprefix("torch."),
        "shared_tokens": workload.shared,
        "own_tokens": options.own,
        "repeats": options.repeats,
        "machine": machine(lm.device),
    }
    columns = {
        "work": "{}",
        "way": "{}",
        "done": "{:,}",
        "per_s": "{:,.3g}",
        "spread": "{:.0%}",
        "speedup": "{:.2f}×",
        "difference": "{:.1e}",
        "same": "{}",
        "peak_gpu_mb": "{:,.0f}",
    }
    differs = any(row.get("same") is False for row in rows)
    return Report(facts, columns, rows, about, failed=differs)


def main() -> int:
    """The program."""
    parser = Parser(__doc__)
    parser.add_argument("--work", type=names(tuple(WAYS_OF)), default=tuple(WAYS_OF))
    parser.add_argument("--ways", type=names(WAYS), default=WAYS)
    parser.add_argument("--model", default="smollm2-135m", help="or shape:NAME")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--dtype", default="auto", help="float32, bfloat16, float16")
    parser.add_argument("--items", type=at_least(2), default=64)
    parser.add_argument("--probe-items", type=at_least(60), default=400)
    parser.add_argument("--repeats", type=at_least(1), default=3)
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="of a repeat; slow ways do less"
    )
    parser.add_argument("--shared", type=at_least(1), default=40, help="tokens")
    parser.add_argument("--own", type=at_least(LEAST_OWN), default=24, help="tokens")
    parser.add_argument("--new-tokens", type=at_least(1), default=16)
    parser.add_argument("--seed", type=at_least(0), default=0)
    return run_script(parser, run_peers)


if __name__ == "__main__":
    sys.exit(main())
