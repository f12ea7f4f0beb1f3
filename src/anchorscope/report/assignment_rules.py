"""The rules by which items are assigned to a group, in words: the one place that names them."""

RULES = {"plain": "plain rule", "corrected": "corrected rule", "cross-fitted": "cross-fitted rule"}
"""As sentences and tables name them, in the order in which they are shown."""
PANEL_TITLES = {"plain": "plain (as in the paper)", "corrected": "corrected for the shift"}
"""Titles of the panels that every ΔP figure has."""
MENU_TITLES = PANEL_TITLES | {"cross-fitted": "cross-fitted (one probe sorts, another measures)"}
"""As the page's menus name them."""
CHART_TITLES = {
    name: title.replace(f"{name} (", f"{name} rule (") if name != "corrected" else title
    for name, title in MENU_TITLES.items()
}
"""As the title of a chart under one rule names it."""


def rule_title(rule: str) -> str:
    """A rule as titles of an experiment's panels name it."""
    return PANEL_TITLES.get(rule, rule)
