"""The words and tables of a comparison: who is compared, what the curves do in each model, and how far to trust it.

Every sentence is put together from the tables and the readings' verdicts; several datasets are told as a range. The
runs' own main readings stand one beside the other: the same claim on the same dataset, a column per run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.findings import Findings, headline_layer, nested_auc, summary_of
from anchorscope.report.palette import A_ANCHORED, GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import result_of, share_at, share_layer
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.size_trends import size
from anchorscope.report.statements.statement import short_number
from anchorscope.report.wording import MISSING, Table, count, estimate, listing, number, percent, points, spanned
from anchorscope.stats.curve_shape import trough
from anchorscope.stats.estimate import Estimate

_VERDICTS = {"holds": "hold", "does not hold": "do not hold", "undecided": "are undecided"}


def comparison_summary(compared: Compared, across: Sequence[dict[str, Any]]) -> list[str]:
    """What is on the page, in two or three paragraphs."""
    real = [run for run in compared.runs if not run.random_weights]
    followed = [one for one in across if one["values"]]
    opening = [_who(compared), *_random(compared)]
    if compared.flags:
        n = len(compared.flags)
        opening.append(f"The runs differ in {'one thing' if n == 1 else f'{n} things'} beside the model, listed below.")
    paragraphs = [_question_shares(real), opening, [*_curves(real), *_labels(real)]]
    if followed:
        told = f"Of {len(followed)} statements about what changes from model to model, {_tally(followed)}."
        paragraphs.append([told])
    return [" ".join(sentences) for sentences in paragraphs if sentences]


def _who(compared: Compared) -> str:
    models = listing([f"{run.model} ({size(run.parameters)}, {run.n_layers} layers)" for run in compared.runs])
    shared = [display_name(name) for name in compared.shared]
    on = listing(shared) if shared else "datasets of which none is in all runs"
    return f"Compared on {on}: {models}."


def _question_shares(runs: Sequence[Findings]) -> list[str]:
    """How much of the evidence needs the key words, model by model: a range over the datasets."""
    told = []
    for run in runs:
        shares, random = (
            spanned((found.value for name in run.datasets
                     if (found := share_at(run, name, share_layer(run, name), cut)) is not None),
                    lambda value: f"{number(100 * value, 0)}\u00a0%")
            for cut in ("knockout", "random")
        )  # fmt: skip
        if shares:
            told.append(f"{shares} in {run.model} (random words: {random or MISSING})")
    return [f"Of the probe's evidence the question's key words are needed for {listing(told)}."] if told else []


def shares_table(compared: Compared) -> Table:
    """Λ at the layer that is tested, beside its random cut and floor, and how far the thirds lie apart."""
    head = ("at layer", "Λ", "random words", "nothing cut", "upper − lower third", "items")
    return _by_dataset(compared, head, _shares)


def _shares(run: Findings, dataset: str) -> list[str]:
    layer, thirds = share_layer(run, dataset), result_of(run, dataset, "thirds_difference")
    found = [share_at(run, dataset, layer, cut) for cut in ("knockout", "random", "none")]
    items = count(found[0].n if found[0] else None)
    apart = estimate(thirds.estimate) if thirds else MISSING
    return [MISSING if layer is None else str(layer), *(estimate(one) for one in found), apart, items]


def _curves(runs: Sequence[Findings]) -> list[str]:
    """How low the Q-Anchored curves go, plain and corrected."""
    told = []
    for rule, opening in (("plain", "Under the plain rule"), ("corrected", "With the common shift taken out")):
        lowest = [(run.model, *_trough_ranges(RunCurves(run, rule))) for run in runs]
        known = [f"{depth} points in {model} (at {place} % of the depth)" for model, depth, place in lowest if depth]
        if known:
            told.append(f"{opening} the Q-Anchored curves are lowest at {listing(known)}.")
    return told


def _trough_ranges(curves: RunCurves) -> tuple[str, str]:
    found = [trough(curve) for name in curves.datasets if (curve := curves.q(name)) is not None]
    depths = spanned((one.depth.value for one in found), lambda value: number(value, 0))
    return depths, spanned((100 * one.relative.value for one in found), lambda value: number(value, 0))


def _labels(runs: Sequence[Findings]) -> list[str]:
    """The warning that belongs to every plain chart."""
    shares = []
    for group in (Q_ANCHORED, A_ANCHORED):
        found = [
            summary_of(run, name, "true_share", assignment="plain", intervention="knockout", group=group)
            for run in runs for name in run.datasets
        ]  # fmt: skip
        shares.append(spanned((100 * one.value for one in found if one), lambda value: f"{number(value, 0)}\u00a0%"))
    if not all(shares):
        return []
    return [
        f"True answers make up {shares[0]} of the plain Q-Anchored groups and {shares[1]} of the A-Anchored ones: the "
        "farther these lie apart, the more the plain chart shows the label and not a pathway."
    ]


def _random(compared: Compared) -> list[str]:
    names = [run.model for run in compared.runs if run.random_weights]
    if not names:
        return []
    has = "has" if len(names) == 1 else "have"
    return [f"{listing(names)} {has} random weights and know{'s' * (len(names) == 1)} nothing: such a panel is noise."]


def _tally(across: Sequence[dict[str, Any]]) -> str:
    verdicts = [one["verdict"] for one in across]
    counted = [f"{verdicts.count(verdict)} {words}" for verdict, words in _VERDICTS.items() if verdict in verdicts]
    return listing(counted)


def models_table(compared: Compared) -> Table:
    """Who is compared, and in which folder the whole story of each stands."""
    rows = []
    for run, folder in zip(compared.runs, compared.folders, strict=True):
        datasets = ", ".join(display_name(name) for name in run.datasets)
        where = f"{run.site}, {run.position}"
        rows.append((panel_title(run), folder, datasets, where, size(run.parameters), str(run.n_layers)))
    return Table(("model", "run folder", "datasets", "read at", "parameters", "layers"), tuple(rows), 4)


def results_table(compared: Compared) -> Table:
    """ΔP of both groups at the reference layers, plain and corrected."""
    rules = ("plain", "corrected")
    head = tuple(f"{rule}: {group}" for rule in rules for group in GROUPS)
    return _by_dataset(compared, head, lambda run, dataset: [
        points(_of(run, dataset, "delta_p_reference", rule, group)) for rule in rules for group in GROUPS
    ])  # fmt: skip


def groups_table(compared: Compared) -> Table:
    """How well the probe does, and what the groups of the plain rule consist of."""
    head = ("items", "AUC of the probe", "middle l*", "Q share", "true among Q", "true among A")
    return _by_dataset(compared, head, _groups)


def _groups(run: Findings, dataset: str) -> list[str]:
    layer, auc = headline_layer(run, dataset), nested_auc(run, dataset)
    used = {row["dataset"]: row.get("used") for row in run.counts.to_dicts()}.get(dataset)
    share = percent(_of(run, dataset, "group_share", "plain", Q_ANCHORED))
    true = [percent(_of(run, dataset, "true_share", "plain", group)) for group in GROUPS]
    return [count(used), estimate(auc, 3), MISSING if layer is None else str(layer), share, *true]


def _of(run: Findings, dataset: str, quantity: str, rule: str, group: str) -> Estimate | None:
    return summary_of(run, dataset, quantity, assignment=rule, intervention="knockout", group=group)


def _by_dataset(compared: Compared, head: Sequence[str], cells: Callable[[Findings, str], list[str]]) -> Table:
    """A row per dataset and model, so that the models of a dataset stand under each other."""
    rows = tuple(
        (display_name(dataset), panel_title(run), *cells(run, dataset))
        for dataset in compared.datasets
        for run in compared.runs
        if dataset in run.datasets
    )
    return Table(("dataset", "model", *head), rows, 2)


@dataclass(frozen=True)
class Cell:
    """One run's answer."""

    numbers: str
    verdict: str
    """Empty where the run has no such reading."""


@dataclass(frozen=True)
class Row:
    """One claim and the answer of every run."""

    claim: str
    """The claim in words, without any run's numbers."""
    cells: tuple[Cell, ...]


def side_by_side(readings: Mapping[str, Sequence[dict[str, Any]]]) -> tuple[Row, ...]:
    """Key readings that at least two runs have, in the order of the first that has them.

    A run on one dataset has its key readings there, one on several has them over all of them: where nothing meets so,
    the same claims are looked up dataset by dataset.
    """
    everything = [one for found in readings.values() for one in found]
    key_claims = {(one["assignment"], one["claim"]) for one in everything if one["key"]}
    rows = _rows([[one for one in found if one["key"]] for found in readings.values()])
    return rows or _rows([
        [one for one in found if (one["assignment"], one["claim"]) in key_claims] for found in readings.values()
    ])  # fmt: skip


def _rows(columns: Sequence[Sequence[dict[str, Any]]]) -> tuple[Row, ...]:
    by_id = [{one["id"]: one for one in column} for column in columns]
    rows = []
    for name in dict.fromkeys(name for found in by_id for name in found):
        answers = [found.get(name) for found in by_id]
        known = [one for one in answers if one is not None]
        if len(known) > 1:
            rows.append(Row(_claim(known[0]), tuple(_cell(one) for one in answers)))
    return tuple(rows)


def _claim(one: dict[str, Any]) -> str:
    """The claim of a reading, without any run's numbers."""
    subject = display_name(one["dataset"]) if one["dataset"] else "All datasets of the run"
    rule = f", {RULES[one['assignment']]}" if one["assignment"] else ""
    return f"{subject}{rule}: {one['statement']}"


def _cell(one: dict[str, Any] | None) -> Cell:
    return Cell("", "") if one is None else Cell(short_number(one), one["verdict"])
