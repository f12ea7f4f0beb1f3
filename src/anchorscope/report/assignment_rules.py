"""The rules by which items are assigned to a group, in words."""

from anchorscope.report.findings import Findings

RULES = {
    "plain": "plain rule",
    "corrected": "corrected rule",
    "cross-fitted": "cross-fitted rule",
    "retained": "retained rule",
}


def rules_of(findings: Findings) -> dict[str, str]:
    """The rules of a run, in words; one whose probes were not trained on cut states has no retained one."""
    known = findings.summary["assignment"].is_in(["retained"]).any()
    return {name: words for name, words in RULES.items() if name != "retained" or known}
