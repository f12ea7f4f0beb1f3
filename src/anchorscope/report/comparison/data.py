"""What the interactive panels draw from: each run's curves, and the choices that all runs can follow."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from anchorscope.report.comparison.compared import Compared, panel_title
from anchorscope.report.page_data import MOST_POINTS, dataset_entries, page_data
from anchorscope.report.palette import GROUPS

OWN = "own"
"""The choice that leaves every run at its own headline site or position, where these differ."""
_CHOICES = ("rules", "sites", "positions", "interventions", "truths")
_KEPT = ("layers", "site", "position", "curves")
_SITE, _POSITION, _INTERVENTION = 1, 2, 3  # places in a row of curves


def comparison_data(compared: Compared) -> dict[str, Any]:
    """Curves by run, and one menu for all panels."""
    pages = [page_data(run, MOST_POINTS // len(compared.runs)) for run in compared.runs]
    menu = {name: _shared([page[name] for page in pages]) for name in _CHOICES}
    start = {"rule": compared.assignment, "depth": "1" if compared.relative_depth else "0"}
    for name in ("site", "position"):
        headlines = {str(page[name]) for page in pages}
        start[name] = headlines.pop() if len(headlines) == 1 else OWN
        menu[f"{name}s"] = [OWN] * (start[name] == OWN) + menu[f"{name}s"]
    return {
        "menu": {**menu, "datasets": dataset_entries(compared.datasets), "groups": list(GROUPS)},
        "start": start,
        "runs": [
            {"name": run.model, "title": panel_title(run), **{name: page[name] for name in _KEPT},
             "curves": _within(page["curves"], menu, page)}
            for run, page in zip(compared.runs, pages, strict=True)
        ],
    }  # fmt: skip


def _within(curves: Mapping[str, Any], menu: Mapping[str, Any], page: Mapping[str, Any]) -> dict[str, Any]:
    """The curves that the menu, or a run's own headline place, can ask for."""
    known = {str(name) for name, _ in menu["interventions"]}
    sites, positions = {*menu["sites"], page["site"]}, {*menu["positions"], page["position"]}
    rows = [
        row for row in curves["rows"]
        if row[_INTERVENTION] in known and row[_SITE] in sites and row[_POSITION] in positions
    ]  # fmt: skip
    return {"scale": curves["scale"], "rows": rows}


def _shared(lists: Sequence[Iterable[Any]]) -> list[Any]:
    """Entries of the first list that all others have too."""
    first, *others = [list(one) for one in lists]
    return [entry for entry in first if all(entry in other for other in others)]
