"""The comparison in a paragraph: who is compared, what the curves do in each model, and how far to trust it.

Every sentence is put together from the tables and the readings' verdicts; several datasets are told as a range.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anchorscope.report.across.lineup import size
from anchorscope.report.across.run_curves import RunCurves
from anchorscope.report.comparison.compared import Compared
from anchorscope.report.findings import Findings
from anchorscope.report.lookup import summary_of
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.story import listing
from anchorscope.report.wording import number
from anchorscope.stats.curve_shape import trough

_VERDICTS = {"holds": "hold", "does not hold": "do not hold", "undecided": "are undecided"}


def comparison_summary(compared: Compared, across: Sequence[dict[str, Any]]) -> list[str]:
    """What is on the page, in two or three paragraphs."""
    real = [run for run in compared.runs if not run.random_weights]
    followed = [one for one in across if one["values"]]
    opening = [_who(compared), *_random(compared)]
    if compared.flags:
        n = len(compared.flags)
        opening.append(f"The runs differ in {'one thing' if n == 1 else f'{n} things'} beside the model, listed below.")
    paragraphs = [opening, [*_curves(real), *_labels(real)]]
    if followed:
        told = f"Of {len(followed)} statements about what changes from model to model, {_tally(followed)}."
        paragraphs.append([told])
    return [" ".join(sentences) for sentences in paragraphs if sentences]


def _who(compared: Compared) -> str:
    models = listing([f"{run.model} ({size(run.parameters)}, {run.n_layers} layers)" for run in compared.runs])
    shared = [display_name(name) for name in compared.shared]
    on = listing(shared) if shared else "datasets of which none is in all runs"
    return f"Compared on {on}: {models}."


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


def spanned(values: Iterable[float], shown: Callable[[float], str]) -> str:
    """The smallest to the largest value, or the one; empty where there is none."""
    found = sorted(value for value in values if value == value)
    if not found:
        return ""
    first, last = shown(found[0]), shown(found[-1])
    return first if first == last else f"{first} to {last}"
