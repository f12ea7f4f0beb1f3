"""The tables of the comparison: the models, and what each dataset shows under the plain and the corrected rule."""

from collections.abc import Callable, Sequence

from anchorscope.report.across.lineup import size
from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.findings import Findings
from anchorscope.report.lookup import auc_of, headline_layer, summary_of
from anchorscope.report.palette import GROUPS, Q_ANCHORED, display_name
from anchorscope.report.tables import Table
from anchorscope.report.wording import MISSING, count, estimate, percent, points
from anchorscope.stats.estimate import Estimate


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
    head = ("items", "AUC of the probe", "at layer", "Q share", "true among Q", "true among A")
    return _by_dataset(compared, head, _groups)


def _groups(run: Findings, dataset: str) -> list[str]:
    layer = headline_layer(run, dataset)
    auc = None if layer is None else auc_of(run, dataset, "transfer", layer)
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
