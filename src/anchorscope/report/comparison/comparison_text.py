"""The words and tables of a comparison: the answer first, with the controls that fail; then numbers run by run."""

import math
from collections.abc import Callable, Mapping, Sequence

from anchorscope.report.answer_card import AnswerCard
from anchorscope.report.assignment_rules import RULES
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.comparison.size_trends import BY_ID
from anchorscope.report.findings import Findings, headline_layer, nested_auc, summary_of
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.shares import NEEDS, PARTS, band_layers, has_shares, share_at
from anchorscope.report.size_order import order_by_size, size
from anchorscope.report.statements.statement import Reading
from anchorscope.report.wording import MISSING, NOTHING, Table, count, estimate, listing, number, percent, points
from anchorscope.stats.estimate import Estimate

NOT_MEASURED = "These runs have no parts of the evidence: only the paper's ΔP can be compared."


def answer(compared: Compared, across: Sequence[Reading], cards: Mapping[str, AnswerCard]) -> str:
    """How much needs the key words, in two sentences; run by run where there is nothing to compare."""
    share, random = (_key(across, name) for name in ("share_tested", "share_random"))
    if share is None or not share["values"]:
        told = [run for run in compared.runs if has_shares(run) and not run.random_weights]
        whose = {run.model: f"{run.model}: " if len(compared.runs) > 1 else "" for run in told}
        return " ".join(f"{named}{cards[model].sentence}" for model, named in whose.items()) or NOT_MEASURED
    taken = [f" (random words: {_shown(one['value'])})" for one in random["values"]] if random else []
    needs = " of the probe's evidence needs the question's key words"
    named = [
        f"{_shown(one['value'])}{_ends(one)}{'' if place else needs} in {one['run']}{''.join(taken[place:][:1])}"
        for place, one in enumerate(share["values"])
    ]
    shared = [display_name(name) for name in order_by_size(compared.runs).datasets]
    over = f"On {listing(shared)}" if len(shared) < 2 else f"In the mean over {listing(shared)}"
    return f"{over}, {listing(named)}. {_change(share)}{_by_direction(share, across)}"


def _change(share: Reading) -> str:
    """Whether that is a difference, by its verdict."""
    points_ = f"{_signed(share['value'])} percentage points{_ends(share)}"
    several = len(share["values"]) > 2
    if share["verdict"] == "holds":
        return f"The share {'grows' if share['value'] > 0 else 'falls'} {share['along']}: {points_}."
    if share["verdict"] == "does not hold":
        moved = several and not share["monotone"]
        return f"It {'goes up and down' if moved else 'hardly changes'} {share['along']}: {points_}."
    return f"Whether it changes {share['along']} is undecided: {points_}."


def _by_direction(share: Reading, across: Sequence[Reading]) -> str:
    """The datasets on which it surely goes another way than in the mean; the mean alone would hide them."""
    mean = share["value"] > 0 if share["verdict"] == "holds" else None
    own = [one for one in across if one["claim"] == share["claim"] and one["dataset"] and one["verdict"] == "holds"]
    other = [one for one in own if (one["value"] > 0) != mean] if mean is not None else own
    if not share["dataset"] and other:
        told = [
            f"it {'grows' if one['value'] > 0 else 'falls'} on {display_name(one['dataset'])} "
            f"({_signed(one['value'])}{_ends(one)})"
            for one in other
        ]
        return f" But {listing(told)}."
    return ""


def setting(compared: Compared) -> str:
    """Which models, and what a reader has to know of them before looking at the chart."""
    models = listing([f"{run.model} ({size(run.parameters)}, {run.n_layers} layers)" for run in compared.runs])
    told = [f"Compared: {models}."] if len(compared.runs) > 1 else [f"{models}."]
    noise = [run.model for run in compared.runs if run.random_weights]
    if noise:
        told.append(f"Random weights, so that the panel is noise: {listing(noise)}.")
    if compared.flags:
        n = len(compared.flags)
        told.append(f"The runs differ in {'one thing' if n == 1 else f'{n} things'} beside the model.")
    return " ".join(told)


def cards_table(compared: Compared, cards: Mapping[str, AnswerCard]) -> Table:
    """The four tiles of every run's answer card, a column per run."""
    tiles = zip(*(cards[run.model].tiles for run in compared.runs), strict=True)
    rows = tuple((of_runs[0].label, *(f"{tile.mark} {tile.figure}" for tile in of_runs)) for of_runs in tiles)
    return Table(("", *map(panel_title, compared.runs)), rows, 1 + len(compared.runs))


def trends_table(readings: Sequence[Reading]) -> Table:
    """A number per run with its interval, the change from first to last, and whether that is one."""
    measured = [one for one in readings if one["values"]]
    runs = [one["run"] for one in measured[0]["values"]] if measured else []
    rows = [_trend_cells(one) for one in measured]
    if len({on for on, *_ in rows}) == 1:  # said once, above the column
        return Table((rows[0][0], "a change?", "change", "unit", *runs), tuple(row[1:] for row in rows), 2)
    return Table(("on", "", "a change?", "change", "unit", *runs), tuple(rows), 3)


def _trend_cells(one: Reading) -> tuple[str, ...]:
    quantity = BY_ID[one["claim"].removeprefix("across:")]
    rule = f", {RULES[one['assignment']]}" if one["assignment"] else ""
    where = display_name(one["dataset"]) if one["dataset"] else "all datasets"
    change, *values = (estimate(_estimate(found), quantity.digits) for found in (one, *one["values"]))
    return f"{where}{rule}", quantity.noun[:1].upper() + quantity.noun[1:], one["verdict"], change, one["unit"], *values


def shares_table(compared: Compared) -> Table:
    """The parts over each run's band, beside what needs random words."""
    return _by_dataset(compared, ("layers", *PARTS.values(), *NEEDS.values(), "needs random words", "items"), _shares)


def _shares(run: Findings, dataset: str) -> list[str]:
    shares = [share_at(run, dataset, part=part) for part in (*PARTS, *NEEDS)]
    shares.append(share_at(run, dataset, "random"))
    cells = [NOTHING if share is None else estimate(share) for share in shares]
    return [band_layers(run, dataset) or NOTHING, *cells, count(shares[0].n) if shares[0] else NOTHING]


def groups_table(compared: Compared) -> Table:
    """How well the probe does, what the plain rule's groups consist of, and their ΔP, plain and corrected."""
    head = (
        "items",
        "AUC of the probe",
        "l*",
        "Q of all",
        "true among Q",
        "true among A",
        *(f"ΔP {group[0]}, {rule}" for rule in ("plain", "corrected") for group in GROUPS),
    )
    return _by_dataset(compared, head, _groups)


def _groups(run: Findings, dataset: str) -> list[str]:
    def of(quantity: str, rule: str, group: str) -> Estimate | None:
        return summary_of(run, dataset, quantity, assignment=rule, intervention="knockout", group=group)

    layer = headline_layer(run, dataset)
    used = {row["dataset"]: row.get("used") for row in run.counts.to_dicts()}.get(dataset)
    true = [percent(of("true_share", "plain", group)) for group in GROUPS]
    delta_p = [points(of("delta_p_reference", rule, group)) for rule in ("plain", "corrected") for group in GROUPS]
    return [
        count(used),
        estimate(nested_auc(run, dataset)),
        MISSING if layer is None else str(layer),
        percent(of("group_share", "plain", Q_ANCHORED)),
        *true,
        *delta_p,
    ]


def models_table(compared: Compared) -> Table:
    """Who is compared, and in which folder the whole story of each stands."""
    rows = []
    for run, folder in zip(compared.runs, compared.folders, strict=True):
        datasets = ", ".join(display_name(name) for name in run.datasets)
        where = f"{run.site}, {run.position}"
        rows.append((panel_title(run), folder, datasets, where, size(run.parameters), str(run.n_layers)))
    return Table(("run", "folder", "datasets", "read at", "parameters", "layers"), tuple(rows), 4)


def _by_dataset(compared: Compared, head: Sequence[str], cells: Callable[[Findings, str], list[str]]) -> Table:
    """A row per dataset and run, so that the runs of a dataset stand under each other."""
    rows = tuple(
        (display_name(dataset), panel_title(run), *cells(run, dataset))
        for dataset in compared.datasets
        for run in compared.runs
        if dataset in run.datasets
    )
    return Table(("dataset", "run", *head), rows, 2)


def _key(across: Sequence[Reading], quantity: str) -> Reading | None:
    """The reading over all datasets, or over the only one."""
    return next((one for one in across if one["key"] and one["claim"] == f"across:{quantity}"), None)


def _estimate(one: Mapping[str, float | None]) -> Estimate:
    value, low, high = (math.nan if (found := one[name]) is None else found for name in ("value", "ci_low", "ci_high"))
    return Estimate(value, low, high, 0, "")


def _shown(share: float) -> str:
    return f"{number(100 * share, 0)}\u00a0%"


def _signed(share: float) -> str:
    return f"{'+' if share > 0 else ''}{number(100 * share, 0)}"


def _ends(one: Mapping[str, float | None]) -> str:
    low, high = one["ci_low"], one["ci_high"]
    return "" if low is None or high is None else f" [{number(100 * low, 0)}, {number(100 * high, 0)}]"
