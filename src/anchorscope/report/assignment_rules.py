"""The rules by which items are assigned to a group, in words: the one place that names them."""

from anchorscope.report.findings import Findings

RULES = {
    "plain": "plain rule",
    "corrected": "corrected rule",
    "cross-fitted": "cross-fitted rule",
    "retained": "retained rule",
}
"""As sentences and tables name them, in the order in which they are shown."""
PANEL_TITLES = {"plain": "plain (as in the paper)", "corrected": "corrected for the shift"}
"""Titles of the panels that every ΔP figure has."""
RETAINED_TITLE = {"retained": "retained (exploratory, probe of cut states)"}
"""The panel that is there where probes were trained on cut states."""
MENU_TITLES = {
    "plain": PANEL_TITLES["plain"],
    "corrected": PANEL_TITLES["corrected"],
    "cross-fitted": "cross-fitted (one probe sorts, another measures)",
    "retained": RETAINED_TITLE["retained"],
}
"""As the page's menus name them."""
CHART_TITLES = {
    name: title.replace(f"{name} (", f"{name} rule (") if name != "corrected" else title
    for name, title in MENU_TITLES.items()
}
"""As the title of a chart under one rule names it."""
EXPERIMENT_TITLES = PANEL_TITLES | {"retained": "retained (exploratory)"}
"""Titles of the panels of experiments: there the clean probe measures under every rule."""


def rules_of(findings: Findings) -> dict[str, str]:
    """The rules of a run, in words; one whose probes were not trained on cut states has no retained one."""
    known = findings.summary["assignment"].is_in(["retained"]).any()
    return {name: words for name, words in RULES.items() if name != "retained" or known}


def rule_title(rule: str) -> str:
    """A rule as titles of an experiment's panels name it."""
    return EXPERIMENT_TITLES.get(rule, rule)
