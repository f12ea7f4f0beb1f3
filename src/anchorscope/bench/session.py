"""A whole benchmark: load, measure the machine, time all implementations of every work, show the table.

For states, every implementation is tuned, checked on a few items against the plain loop in float32, then timed in turns
with the others; slow ones run fewer items. Greedy answers are compared with transformers' own `generate`. Probes race a
scikit-learn loop with the same standardisation, precision and tolerance; their objectives are compared.
"""

import copy
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.bench.implementations import (
    CannotDo,
    Implementation,
    Own,
    Plain,
    PlainBatched,
    is_foreign,
    make,
)
from anchorscope.bench.measuring import (
    FOLDS,
    Row,
    Say,
    Setting,
    Workload,
    held_mb,
    load_model,
    machine,
    matmul_peak,
    with_speedups,
)
from anchorscope.bench.options import Options
from anchorscope.models.devices import is_out_of_memory
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.probes.grid_search import STRENGTHS
from anchorscope.probes.logistic import TOLERANCE, TrainingSets, fit_layers
from anchorscope.stats.streams import unnamed

_EXPLAINED = {
    torch.float32: 1e-4
}  # of the largest state; what the order of sums can do
_EXPLAINED_COARSE = 0.15  # in half precision, over tens of layers
_LEAST = 4  # items of a timed repeat
_WARM = 8  # prompts of our untimed run
_CHECKED = {"knockout": 8, "single-layer": 2}  # items whose states are compared


@dataclass(frozen=True)
class Prepared:
    """An implementation that was made and tuned, once for both works."""

    implementation: Implementation
    tuned: str
    """What it chose."""
    rate: float
    """Tokens per second of a knockout, to know how many items it can afford."""

    def run(self, work: str, workload: Workload) -> Tensor:
        run = (
            self.implementation.knockout
            if work == "knockout"
            else self.implementation.single_layer
        )
        return run(workload)

    def choose_affordable(
        self, work: str, workload: Workload, seconds: float
    ) -> Workload:
        """As many items as one repeat has time for: whole batches, or a part of one, but never very few."""
        each = (
            self.implementation.tokens(work, workload) / len(workload.items) / self.rate
        )
        batch, fits = max(2, self.implementation.size), int(seconds / each)
        return workload.first(
            min(
                len(workload.items),
                fits // batch * batch if fits >= batch else max(_LEAST, fits),
            )
        )


def _prepare(name: str, setting: Setting, workload: Workload) -> Prepared | str:
    """The implementation, or why it can't run."""
    setting.say(f"{name}: prepared")
    try:
        implementation = make(name, setting.lm)
        tuned = implementation.tune(workload)
        part = workload.first(implementation.size)
        began = time.perf_counter()
        implementation.knockout(part)
        rate = implementation.tokens("knockout", part) / (time.perf_counter() - began)
    except Exception as error:
        return _explain_failure(name, error)
    setting.say(f"{name}: {tuned}")
    return Prepared(implementation, tuned, rate)


def state_rows(
    setting: Setting, work: str, workload: Workload, prepared: dict[str, Prepared | str]
) -> list[Row]:
    """One row per chosen implementation; those that are prepared already are used again."""
    names = setting.options.implementations_of(work)
    for name in names:
        if name not in prepared:
            prepared[name] = _prepare(name, setting, workload)
    part = workload.first(_CHECKED[work])
    wanted, against = _reference_states(setting, work, part)
    rows: dict[str, Row] = {}
    parts: dict[str, Workload] = {}
    for name in names:
        ready = prepared[name]
        if isinstance(ready, str):
            rows[name] = Row(work, name, note=ready)
            continue
        row = Row(work, name, setting=ready.tuned)
        try:
            rows[name] = _compare(row, ready.run(work, part), wanted, against)
            parts[name] = ready.choose_affordable(
                work, workload, setting.options.seconds
            )
        except Exception as error:
            rows[name] = replace(row, note=_explain_failure(name, error))
    timed = {
        name: ready
        for name, ready in prepared.items()
        if name in parts and isinstance(ready, Prepared)
    }
    runs = {
        name: partial(ready.run, work, parts[name]) for name, ready in timed.items()
    }
    for name, taken in setting.race(runs, work).items():
        tokens = timed[name].implementation.tokens(work, parts[name])
        rows[name] = rows[name].timed(len(parts[name].items), taken, setting, tokens)
    return list(rows.values())


def _explain_failure(name: str, error: Exception) -> str:
    """Why an implementation has no numbers: too little memory, or another library's failure; ours is raised again."""
    reason = (str(error).splitlines() or [""])[0][:160]
    if isinstance(error, CannotDo):
        return str(error)
    if is_out_of_memory(error):
        return f"memory does not suffice ({reason})"
    if not is_foreign(name):
        raise error
    return f"fails here with {type(error).__name__}: {reason}"


def _reference_states(
    setting: Setting, work: str, part: Workload
) -> tuple[Tensor, str]:
    """What the plain loop gives in float32, or in the model's precision if a float32 copy doesn't fit; in words."""
    lm = setting.lm
    needed = 4 * sum(tensor.numel() for tensor in lm.model.parameters())
    fits = (
        lm.device.type != "cuda"
        or torch.cuda.mem_get_info(lm.device)[0] >= 1.5 * needed
    )
    exact = (
        replace(lm, model=copy.deepcopy(lm.model).float())
        if fits and lm.dtype != torch.float32
        else lm
    )
    precision = str(exact.dtype).removeprefix("torch.")
    setting.say(f"{work}: reference states of {len(part.items)} items in {precision}")
    states = Prepared(Plain(exact), "", 1.0).run(work, part).float()
    return states, f"states of {len(part.items)} items against plain in {precision}"


def _compare(row: Row, states: Tensor, wanted: Tensor, against: str) -> Row:
    off = float((states.float() - wanted).abs().max())
    relative = off / float(wanted.abs().max())
    explained = relative <= _EXPLAINED.get(states.dtype, _EXPLAINED_COARSE)
    note = (
        row.note
        if explained
        else f"DIFFERS by {relative:.1%}, more than the precision explains"
    )
    return replace(
        row,
        max_difference=off,
        difference_is=f"largest absolute difference of {against}",
        note=note,
    )


def generation_rows(setting: Setting, workload: Workload) -> list[Row]:
    names, n = setting.options.implementations_of("generation"), len(workload.prompts)
    generators: dict[str, Own | PlainBatched] = {}
    tuned: dict[str, str] = {}
    if "anchorscope" in names:
        own = generators["anchorscope"] = Own(setting.lm)
        own.generate(workload.first(_WARM))
        tuned["anchorscope"] = f"batches of {own.batch_tokens} tokens"
    if "plain-batched" in names:
        plain = generators["plain-batched"] = PlainBatched(setting.lm)
        tuned["plain-batched"] = plain.tune_size(
            n, lambda size: plain.generate(workload.first(size))
        )
        setting.say(f"plain-batched (generate): {tuned['plain-batched']}")
    answers: dict[str, list[tuple[int, ...]]] = {}

    def generate(name: str) -> None:
        answers[name] = generators[name].generate(workload)

    taken = setting.race(
        {name: partial(generate, name) for name in names}, "generation"
    )
    rows = [
        Row("generation", name, "questions", setting=tuned[name]).timed(
            n, taken[name], setting
        )
        for name in names
    ]
    if len(answers) < 2:
        return rows
    differ = sum(a != b for a, b in zip(*answers.values(), strict=True)) / n
    meaning = "share of the answers that differ between the two"
    return [replace(row, max_difference=differ, difference_is=meaning) for row in rows]


@dataclass(frozen=True)
class Problem:
    states: Tensor
    """[layer, item, d_model], where the solver runs."""
    labels: NDArray[np.bool_]
    folds: NDArray[np.int64]

    @property
    def fits_per_layer(self) -> int:
        """Folds × strengths: strength by strength within fold by fold."""
        return FOLDS * len(STRENGTHS)


@dataclass(frozen=True)
class Fitted:
    weight: NDArray[np.float32]
    """Acting on raw states, [d_model, column]."""
    logits: NDArray[np.float32]
    """Log-odds of every item, [item, column]."""
    unconverged: int = 0


def objectives(problem: Problem, layer: int, fitted: Fitted) -> NDArray[np.float64]:
    """Mean loss plus penalty on the training folds, in standardised coordinates, [column]."""
    states = problem.states[layer].double().cpu().numpy()
    values = np.empty(problem.fits_per_layer)
    for column in range(problem.fits_per_layer):
        fold, strength = divmod(column, len(STRENGTHS))
        learns = problem.folds != fold
        logits = fitted.logits[:, column].astype(np.float64)
        loss = np.logaddexp(0, np.where(problem.labels, -logits, logits))[learns].mean()
        scaled = fitted.weight[:, column] * states[learns].std(axis=0)
        values[column] = loss + 0.5 * float(scaled @ scaled) / (
            STRENGTHS[strength] * int(learns.sum())
        )
    return values


def fit_own(problem: Problem, layers: Sequence[int]) -> list[Fitted]:
    """All layers, folds and strengths at once."""
    states = (
        problem.states
        if len(layers) == len(problem.states)
        else problem.states[list(layers)]
    )
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
    return [
        Fitted(weight.T.numpy(), logits.T.numpy(), int((~converged).sum()))
        for weight, logits, converged in zip(
            fit.weight, fit.logits, fit.converged, strict=True
        )
    ]


_MAX_ITERATIONS = 10_000  # none of them may stop the loop before its tolerance does


def fit_sklearn(problem: Problem, layers: Sequence[int]) -> list[Fitted]:
    """One `LogisticRegression` per layer, fold and strength, on all cores."""
    from sklearn.utils.parallel import Parallel, delayed

    hosted = {layer: problem.states[layer].float().cpu().numpy() for layer in layers}
    folds = Parallel(n_jobs=os.cpu_count())(
        delayed(_fit_fold)(hosted[layer], problem.labels, problem.folds != fold)
        for layer in layers
        for fold in range(FOLDS)
    )
    fitted = []
    for start in range(0, len(folds), FOLDS):
        weights, logits = zip(*folds[start : start + FOLDS], strict=True)
        fitted.append(
            Fitted(np.concatenate(weights, axis=1), np.concatenate(logits, axis=1))
        )
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
    weights, logits = [], []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, tol=TOLERANCE, max_iter=_MAX_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", ConvergenceWarning
            )  # the comparison shows how far off a fit is
            model.fit(scaled[learns], labels[learns])
        weights.append(model.coef_[0] / scaler.scale_)
        logits.append(model.decision_function(scaled))
    return np.stack(weights, axis=1).astype(np.float32), np.stack(
        logits, axis=1
    ).astype(np.float32)


def make_problem(setting: Setting) -> Problem:
    """Clean states of what attention adds, and folds of single items."""
    workload = setting.workload(setting.options.probe_items)
    setting.say(f"probes: states of {len(workload.items)} items")
    labels = np.array([item.label for item in workload.items])
    states = Own(setting.lm).clean(workload).to(setting.lm.device)
    order = unnamed(setting.options.seed, "folds", len(labels))
    return Problem(
        states,
        labels,
        grouped_folds(np.arange(len(labels)), truth_strata(labels), FOLDS, order),
    )


def probe_rows(setting: Setting) -> list[Row]:
    names = setting.options.implementations_of("probes")
    problem = make_problem(setting)
    layers = list(range(len(problem.states)))
    chosen: dict[str, list[int]] = {}
    settings: dict[str, str] = {}
    fitted: dict[str, list[Fitted]] = {}
    if "anchorscope" in names:
        fit_own(problem, layers[:1])  # the first products of a process are slow
        chosen["anchorscope"] = layers
        settings["anchorscope"] = (
            f"all layers, folds and strengths at once, tolerance {TOLERANCE:g}"
        )
    if "scikit-learn" in names:
        fit_sklearn(problem, layers[:1])  # processes take a while to start
        began = time.perf_counter()
        fit_sklearn(problem, layers[:1])
        n = max(
            1,
            min(
                len(layers),
                int(setting.options.seconds / (time.perf_counter() - began)),
            ),
        )
        some = [
            layers[int(index)] for index in np.linspace(0, len(layers) - 1, n).round()
        ]
        chosen["scikit-learn"] = some
        how = f"lbfgs, {os.cpu_count()} processes, tolerance {TOLERANCE:g}, {len(some)} of {len(layers)} layers"
        settings["scikit-learn"] = how

    def fit(name: str) -> None:
        fitted[name] = (fit_own if name == "anchorscope" else fit_sklearn)(
            problem, chosen[name]
        )

    taken = setting.race({name: partial(fit, name) for name in names}, "probes")
    rows = []
    for name in names:
        row = Row("probes", name, "fits", setting=settings[name])
        missed = sum(layer.unconverged for layer in fitted[name])
        n_fits = len(chosen[name]) * problem.fits_per_layer
        note = f"{missed} of {n_fits} fits did not converge" if missed else None
        rows.append(replace(row, note=note).timed(n_fits, taken[name], setting))
    if len(names) < 2:
        return rows
    ours, theirs = (
        [fitted["anchorscope"][layer] for layer in some],
        fitted["scikit-learn"],
    )
    ratios = np.array(
        [
            objectives(problem, layer, a) / objectives(problem, layer, b)
            for layer, a, b in zip(some, ours, theirs, strict=True)
        ]
    )
    meaning = f"how far its objective lies above the other's at most, relative, {len(some)} layers"
    return [
        replace(
            row, max_difference=max(0.0, float(excess.max())), difference_is=meaning
        )
        for row, excess in zip(rows, (ratios - 1, 1 - ratios), strict=True)
    ]


def run_benchmark(options: Options, say: Say) -> dict[str, Any]:
    """The record of one benchmark, as `--json` shows it."""
    say(f"load {options.model}")
    lm = load_model(options)
    peak = matmul_peak(lm.device, lm.dtype)
    say(f"matrix-multiply peak {peak / 1e9:,.0f} GFLOP/s")
    setting = Setting(options, lm, peak, say, held_mb(lm.device))
    workload = setting.workload(options.items)
    say(f"{workload.about}, {workload.shared} tokens shared")
    rows = with_speedups(_measure(setting, workload))
    return {
        "rows": [asdict(row) for row in rows],
        "model": lm.name,
        "device": str(lm.device),
        "dtype": str(lm.dtype).removeprefix("torch."),
        "workload": {
            "about": workload.about,
            "items": len(workload.items),
            "shared_tokens": workload.shared,
            "own_tokens_mean": workload.tokens / len(workload.items) - workload.shared,
            "probe_items": options.probe_items,
        },
        "repeats": options.repeats,
        "matmul_peak_gflops": peak / 1e9,
        "block_parameters": setting.block_parameters,
        "machine": machine(lm.device),
    }


def _measure(setting: Setting, workload: Workload) -> list[Row]:
    rows: list[Row] = []
    prepared: dict[str, Prepared | str] = {}
    for work in setting.options.work:
        if not setting.options.implementations_of(work):
            continue
        if work in ("knockout", "single-layer"):
            rows += state_rows(setting, work, workload, prepared)
            continue
        prepared.clear()  # copies of the model would count as memory of what comes next
        rows += (
            probe_rows(setting)
            if work == "probes"
            else generation_rows(setting, workload)
        )
    return rows


_HEAD = (
    "work",
    "way",
    "done",
    "per s",
    "spread",
    "tokens/s",
    "speedup",
    "difference",
    "memory",
    "of peak",
)


def render(record: dict[str, Any]) -> str:
    parts = [
        _describe_setting(record),
        _align_columns([_HEAD, *(_format_row(row) for row in record["rows"])]),
    ]
    notes = [
        f"{row['work']}, {row['way']}: {row['note']}"
        for row in record["rows"]
        if row["note"]
    ]
    chosen = [
        f"{row['way']} ({row['work']}): {row['setting']}"
        for row in record["rows"]
        if row["setting"]
    ]
    meanings = dict.fromkeys(
        f"difference in {row['work']}: {row['difference_is']}"
        for row in record["rows"]
        if row["difference_is"]
    )
    parts += ["\n".join(lines) for lines in (notes, chosen, list(meanings)) if lines]
    return "\n\n".join(parts)


def _describe_setting(record: dict[str, Any]) -> str:
    machine, work = record["machine"], record["workload"]
    where = (
        machine["gpu"] or f"{machine['threads']} threads of {machine['cores']} cores"
    )
    return (
        f"{record['model']} in {record['dtype']} on {where}; {work['about']}: {work['shared_tokens']} tokens shared, "
        f"{work['own_tokens_mean']:.1f} own; medians of {record['repeats']}; matrix-multiply peak "
        f"{record['matmul_peak_gflops']:,.0f} GFLOP/s"
    )


def _format_row(row: dict[str, Any]) -> tuple[str, ...]:
    if row["seconds"] is None:
        return (row["work"], row["way"], "see below", *[""] * (len(_HEAD) - 3))
    wide = (row["seconds_max"] - row["seconds_min"]) / row["seconds"]
    return (
        row["work"],
        row["way"],
        f"{row['items']:,} {row['unit']}",
        _format_number(row["items_per_s"]),
        f"{wide:.0%}",
        _format_number(row["tokens_per_s"]),
        "" if row["speedup"] is None else f"{row['speedup']:.2f}×",
        "" if row["max_difference"] is None else f"{row['max_difference']:.1e}",
        f"{row['peak_memory_mb']:,.0f} MB",
        "" if row["share_of_peak"] is None else f"{row['share_of_peak']:.0%}",
    )


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as aligned lines: two columns to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        left = [
            cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)
        ]
        right = [
            cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)
        ]
        lines.append("  ".join([*left, *right]).rstrip())
    return "\n".join(lines)
