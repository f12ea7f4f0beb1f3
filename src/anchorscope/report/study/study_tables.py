"""The words and tables of a study's page: the answer first, then models × datasets, the spread, and all runs."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from statistics import fmean

from anchorscope.report.palette import display_name
from anchorscope.report.study.studied import (
    Measure,
    ShownRun,
    Studied,
    auc,
    findings_of,
    q_anchored,
    random_share,
    share,
)
from anchorscope.report.wording import NOTHING, Table, as_percent, count, estimate, listing, number, spanned
from anchorscope.stats.estimate import Estimate

STATES = {"done": "done", "failed": "failed", "running": "under way", "stopped": "stopped", "waiting": "not begun"}
"""As the page says them."""


def lead(studied: Studied) -> str:
    """Between what and what the share that needs the key words lies, and where."""
    found = {
        (model, dataset): fmean(one.value for one in values)
        for model, dataset in product(studied.learned, studied.datasets)
        if (values := studied.measured(studied.of(model), dataset, share))
    }
    if not found:
        what = "of a model with learned weights " if len(studied.learned) < len(studied.models) else ""
        return f"No run {what}that is done measured the parts of the evidence."
    least, most = min(found, key=lambda key: found[key]), max(found, key=lambda key: found[key])
    runs = [run for run in studied.done if run.model in studied.learned]
    random = [one.value for name in studied.datasets for one in studied.measured(runs, name, random_share)]
    beside = f" (random words: {spanned(random, as_percent)})" if random else ""
    needs = "of the probe's evidence needs the question's key words"
    if len(found) == 1:
        return f"{as_percent(found[least])} {needs}{beside}, in {_cell(studied, least)}."
    ends = f"least in {_cell(studied, least)}, most in {_cell(studied, most)}"
    return f"{spanned(found.values(), as_percent)} {needs}{beside}: {ends}."


def _cell(studied: Studied, key: tuple[str, str]) -> str:
    return key[0] if len(studied.datasets) == 1 else f"{key[0]} on {display_name(key[1])}"


def progress_sentence(studied: Studied) -> str:
    """How many runs there are, and what became of them."""
    counts = Counter(run.state for run in studied.runs)
    models = len(dict.fromkeys(run.model for run in studied.runs))
    what = f"{_several(models, 'model')}, {_several(len(studied.runs), 'run')}"
    if counts["done"] == len(studied.runs):
        return f"{what}, all done."
    told = [f"{counts[state]} {words}" for state, words in STATES.items() if counts[state]]
    return f"{what}: {', '.join(told)}."


def failures(studied: Studied) -> list[tuple[str, str]]:
    """Runs that failed, with the line that says why."""
    return [(run.name, run.error or "") for run in studied.runs if run.state == "failed"]


def answers_table(studied: Studied) -> Table:
    """A row per model: the facts of its answer card, over its datasets and runs."""
    rows = []
    for model in studied.models:
        runs = studied.of(model)
        marks = " ".join(tile.mark for tile in card.tiles) if (card := runs[0].card) is not None else NOTHING
        used = sum(row.get("used") or 0 for row in findings_of(runs[0]).counts.to_dicts())
        shares, probe, flips = (_over(studied, runs, one) for one in (share, auc, q_anchored))
        rows.append(
            (
                studied.title(model),
                marks,
                _shown(shares, _percent),
                _shown(probe, _two),
                _shown(flips, _percent),
                count(used),
                str(len(runs)),
            )
        )
    head = ("model", "card", "needs the key words", "AUC of the probe", "Q-Anchored of all", "items", "runs")
    return Table(head, tuple(rows), 2)


def _over(studied: Studied, runs: Sequence[ShownRun], measure: Measure) -> list[Estimate]:
    return [one for name in studied.datasets for one in studied.measured(runs, name, measure)]


def _shown(found: Sequence[Estimate], show: Callable[[Estimate], str]) -> str:
    """With its interval where there is one number, as a range where there are several."""
    if len(found) < 2:
        return show(found[0]) if found else NOTHING
    return spanned((one.value for one in found), lambda value: show(Estimate(value, float("nan"), float("nan"), 0, "")))


def _percent(found: Estimate) -> str:
    return estimate(found, 0, 100.0, "\u00a0%")


def _two(found: Estimate) -> str:
    return estimate(found, 2)


def grid_table(studied: Studied, measure: Measure, show: Callable[[Estimate], str]) -> Table:
    """Models × datasets: one run with its interval, several as their mean and range."""
    rows = []
    for model in studied.models:
        cells = [_cell_of(studied.measured(studied.of(model), name, measure), show) for name in studied.datasets]
        rows.append((studied.title(model), *cells))
    return Table(("model", *map(display_name, studied.datasets)), tuple(rows), 1)


def _cell_of(found: Sequence[Estimate], show: Callable[[Estimate], str]) -> str:
    if len(found) < 2:
        return show(found[0]) if found else NOTHING
    nan = float("nan")
    mean = show(Estimate(fmean(one.value for one in found), nan, nan, 0, ""))
    return f"{mean} ({_shown(found, show)})"


def share_grid(studied: Studied) -> Table:
    """What needs the key words, of every model on every dataset."""
    return grid_table(studied, share, _percent)


def auc_grid(studied: Studied) -> Table:
    """AUC of every model's probe on every dataset."""
    return grid_table(studied, auc, _two)


def spread_table(studied: Studied) -> Table:
    """Where a model has several runs: how far prompts and seeds move the numbers, beside one run's own interval."""
    rows = []
    for model, dataset in product(studied.models, studied.datasets):
        runs = studied.of(model)
        if len(runs) < 2:
            continue
        for prompt in dict.fromkeys(run.prompt for run in runs):
            alike = [run for run in runs if run.prompt == prompt]
            shares, aucs = (studied.measured(alike, dataset, one) for one in (share, auc))
            if shares or aucs:
                own = [one.ci_high - one.ci_low for one in shares if one.ci_high == one.ci_high]
                width = f"±\u00a0{number(50 * fmean(own), 0)} points" if own else NOTHING
                rows.append(
                    (
                        display_name(dataset),
                        model,
                        prompt,
                        _cell_of(shares, _percent),
                        width,
                        _cell_of(aucs, _two),
                        str(len(alike)),
                    )
                )
    head = (
        "dataset",
        "model",
        "prompt",
        "needs the key words: mean (range) over seeds",
        "one run's own interval",
        "AUC: mean (range)",
        "seeds",
    )
    return Table(head, tuple(rows), 3)


def runs_table(studied: Studied) -> Table:
    """Every run, whatever became of it."""
    rows = tuple(
        (run.name, STATES.get(run.state, run.state), run.model, run.prompt, str(run.seed), run.error or "")
        for run in studied.runs
    )
    return Table(("run", "state", "model", "prompt", "seed", "why"), rows, 6)


def missing_sentence(studied: Studied) -> str | None:
    """Models of which no run is done."""
    having = set(studied.models)
    missing = [name for name in dict.fromkeys(run.model for run in studied.runs) if name not in having]
    return f"No run is done yet of {listing(missing)}." if missing else None


def _several(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
