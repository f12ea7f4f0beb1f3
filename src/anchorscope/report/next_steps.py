"""What to do after a run: at most three steps, each with its command, chosen by what the readings leave open."""

import shlex
from collections.abc import Sequence

from anchorscope.report.findings import Findings
from anchorscope.report.shares import has_shares
from anchorscope.report.statements.reading_record import Reading

MOST = 3
"""Steps on a card; a longer list is not read."""


def next_steps(findings: Findings, observations: Sequence[Reading]) -> tuple[str, ...]:
    """The steps, the most useful one first."""
    if findings.random_weights:
        return ("Run it with the trained weights.",)
    verdicts = {claim: [one["verdict"] for one in observations if one["claim"] == claim and one["dataset"]]
                for claim in ("share_random_small", "items_differ", "adds_to_confidence")}  # fmt: skip
    made = set(findings.experiments["experiment"].to_list()) if findings.experiments.height else set()
    steps = []
    if not has_shares(findings):
        steps.append(f"Add the question share: {_again(findings)}")
    elif any(verdict != "holds" for verdict in verdicts["share_random_small"]):
        steps.append(f"Look at more random cuts: {_again(findings, '--random-cuts 20')}")
    if "matched" not in made:
        steps.append(f"Rule out that words alone tell: {_again(findings, '--evidence matched,wordings')}")
    if "undecided" in verdicts["items_differ"]:
        steps.append("Ask more questions: whether items differ needs more answers than there are here.")
    if "holds" in verdicts["adds_to_confidence"]:
        folder = shlex.quote(findings.folder or "RUN")
        steps.append(f"Catch hallucinations with it: anchorscope detect {folder} --out {folder}-detectors")
    return tuple(steps[:MOST])


def _again(findings: Findings, options: str = "") -> str:
    folder = findings.folder or "RUN"
    return f"anchorscope run {shlex.quote(f'{folder}/recipe.toml')} --out {shlex.quote(folder)} {options}".strip()
