"""The rules by which items are assigned to a group, in words: the one place that names them."""

RULES = {"plain": "plain rule", "corrected": "corrected rule", "cross-fitted": "cross-fitted rule"}
"""As sentences and tables name them, in the order in which they are shown."""
CHART_TITLES = {
    "plain": "plain rule (as in the paper)",
    "corrected": "corrected for the shift",
    "cross-fitted": "cross-fitted rule (one probe sorts, another measures)",
}
"""As the title of a chart under one rule names it."""
PANEL_TITLES = {"plain": "plain (as in the paper)", "corrected": "corrected for the shift"}
"""Titles of the panels that every ΔP figure has."""


def rule_title(rule: str) -> str:
    """A rule as titles of an experiment's panels name it."""
    return PANEL_TITLES.get(rule, rule)
