"""The sentences of the page that depend on the numbers: the summary, and the warning with this run's own figures.

Every sentence is put together from readings and estimates; where a verdict is open, the sentence says so. Several
datasets are told as a range, so that the paragraph stays a paragraph.
"""

from collections.abc import Callable, Sequence
from typing import Any

from anchorscope.report.assignment_rules import rules_of
from anchorscope.report.findings import Findings, auc_of, headline_layer, nested_auc, summary_of
from anchorscope.report.looks import BASELINES
from anchorscope.report.palette import A_ANCHORED, Q_ANCHORED, display_name
from anchorscope.report.wording import MISSING, count, listing, number, short_percent, spanned
from anchorscope.stats.estimate import Estimate

Observations = Sequence[dict[str, Any]]

_FOLLOWS_LABEL = {
    "holds": "So the plain groups are, to a large part, the true and the false answers under another name.",
    "does not hold": "So the plain groups are not simply the true and the false answers.",
    "undecided": "Whether the plain groups mostly follow the label cannot be decided from these intervals.",
}
_SURVIVES = {
    "holds": "fewer, so part of the signal survives the cut",
    "does not hold": "no fewer, so the A-Anchored group here may be chance",
    "undecided": "the intervals do not tell the two apart, so the A-Anchored group here may be chance",
}


def run_paragraph(findings: Findings) -> str:
    """What was asked, and how well the probe does."""
    names = listing([display_name(dataset) for dataset in findings.datasets])
    asked, used, true = (_total(findings, column) for column in ("asked", "used", "used_true"))
    return (
        f"{findings.model} was asked {asked} questions ({names}); {used} answers were used, {true} of them true. "
        f"{_probe_sentence(findings)}"
    )


def rules_paragraph(findings: Findings, observations: Observations) -> str:
    """What the cut does under the paper's rule and its variants, and how far to trust that."""
    parts = [
        "When attention to the question's key words is cut, the probability of the true label at the reference layer "
        f"changes by {_reference(findings, 'plain', Q_ANCHORED)} points for Q-Anchored items and by "
        f"{_reference(findings, 'plain', A_ANCHORED)} for A-Anchored ones (plain rule).",
        _label_sentence(findings, observations),
        f"With that shift taken out, {_reference(findings, 'corrected', Q_ANCHORED)} (Q) and "
        f"{_reference(findings, 'corrected', A_ANCHORED)} (A) points remain. That Q lies below A is so by construction "
        "under each of these rules, and no evidence of two pathways.",
        *_retained_sentences(findings, observations),
        f"That cutting random tokens does much less {tally(observations, 'random_small', 'plain')}; "
        f"that cutting nothing changes nothing {tally(observations, 'noop', 'plain')}.",
    ]
    return " ".join(parts)


def _retained_sentences(findings: Findings, observations: Observations) -> list[str]:
    """What the rule says that asks a probe trained on the cut states; nothing where there is none."""
    if "retained" not in rules_of(findings):
        return []

    def share(intervention: str) -> str:
        def of_dataset(dataset: str) -> Estimate | None:
            return summary_of(
                findings, dataset, "group_share", assignment="retained", intervention=intervention, group=Q_ANCHORED
            )

        return _range(findings, of_dataset, lambda value: f"{number(100 * value, 0)}\u00a0%")

    return [
        f"Exploratory: a probe that was trained on the cut states calls {share('knockout')} of the items Q-Anchored, "
        f"for which less than half of the evidence remains ({share('random')} where random tokens were cut instead); "
        f"that this rule sorts items by their label {tally(observations, 'sorts_by_label', 'retained')}."
    ]


def warnings(findings: Findings, observations: Observations) -> list[tuple[str, str]]:
    """Per dataset, its name and a paragraph: how the groups relate to the label here."""
    return [(display_name(dataset), _warning(findings, observations, dataset)) for dataset in findings.datasets]


def tally(observations: Observations, claim: str, assignment: str | None) -> str:
    """How a claim fares over the datasets: "holds", or "holds for 2 of 3 datasets, is undecided for 1"."""
    verdicts = [o["verdict"] for o in observations if o["claim"] == claim and o["assignment"] == assignment]
    words = {"holds": "holds", "does not hold": "does not hold", "undecided": "is undecided"}
    counted = [(words[verdict], verdicts.count(verdict)) for verdict in words if verdict in verdicts]
    if not counted:
        return "is so by construction" if verdicts else f"is {MISSING}"
    if len(verdicts) == 1:
        return counted[0][0]
    first, *rest = counted
    if not rest:
        return f"{first[0]} for {'both' if len(verdicts) == 2 else f'all {len(verdicts)}'} datasets"
    return ", ".join([f"{first[0]} for {first[1]} of {len(verdicts)} datasets", *(f"{w} for {n}" for w, n in rest)])


def _warning(findings: Findings, observations: Observations, dataset: str) -> str:
    def of(quantity: str, assignment: str, group: str | None = None) -> Estimate | None:
        return summary_of(findings, dataset, quantity, assignment=assignment, intervention="knockout", group=group)

    before, after = of("mean_probability_before", "plain"), of("mean_probability_after", "plain")
    plain, corrected = (
        [short_percent(of("true_share", rule, group)) for group in (Q_ANCHORED, A_ANCHORED)]
        for rule in ("plain", "corrected")
    )
    flips, shuffled = (short_percent(of(name, "corrected", Q_ANCHORED)) for name in ("group_share", "null_share"))
    follows_label = _FOLLOWS_LABEL[_verdict(observations, dataset, "plain", "sorts_by_label")]
    survives = _SURVIVES[_verdict(observations, dataset, "corrected", "share_below_null")]
    return (
        f'The cut took the mean probability of "truthful" from {_plain(before, 2)} to '
        f"{_plain(after, 2)}. Under the plain rule, true answers make up {plain[0]} of the Q-Anchored group and "
        f"{plain[1]} of the A-Anchored one. {follows_label} Under the corrected rule the shares are {corrected[0]} and "
        f"{corrected[1]}. There {flips} of the items flip, against {shuffled} with the scores shuffled: {survives}. "
        f"Kappa is {_plain(of('kappa', 'corrected'), 2)}."
    )


def _label_sentence(findings: Findings, observations: Observations) -> str:
    def share(group: str) -> str:
        def of_dataset(dataset: str) -> Estimate | None:
            return summary_of(findings, dataset, "true_share", assignment="plain", intervention="knockout", group=group)

        return _range(findings, of_dataset, lambda value: f"{number(100 * value, 0)}\u00a0%")

    mine = [o for o in observations if o["claim"] == "sorts_by_label" and o["assignment"] == "plain"]
    opening = "But true" if any(o["verdict"] == "holds" for o in mine) else "True"
    return (
        f"{opening} answers make up {share(Q_ANCHORED)} of the Q-Anchored group and {share(A_ANCHORED)} of the "
        f"A-Anchored one. That the plain rule mostly sorts items by their label "
        f"{tally(observations, 'sorts_by_label', 'plain')}."
    )


def _probe_sentence(findings: Findings) -> str:
    def probe(dataset: str) -> Estimate | None:
        layer = headline_layer(findings, dataset)  # older runs have no nested one
        return nested_auc(findings, dataset) or (auc_of(findings, dataset, "transfer", layer) if layer else None)

    def best(dataset: str) -> Estimate | None:
        found = [auc_of(findings, dataset, kind, None) for kind in BASELINES]
        return max((value for value in found if value is not None), key=lambda value: value.value, default=None)

    return (
        f"A linear probe on the {findings.site} output tells its true answers from its false ones with an AUC of "
        f"{_range(findings, probe, lambda value: number(value, 2))}; the best simple baseline reaches "
        f"{_range(findings, best, lambda value: number(value, 2))}."
    )


def _reference(findings: Findings, assignment: str, group: str) -> str:
    def of_dataset(dataset: str) -> Estimate | None:
        return summary_of(
            findings, dataset, "delta_p_reference", assignment=assignment, intervention="knockout", group=group
        )

    return _range(findings, of_dataset, lambda value: number(value, 0))


def _range(findings: Findings, find: Callable[[str], Estimate | None], show: Callable[[float], str]) -> str:
    """The smallest and the largest over the datasets, or the one value."""
    return spanned((found.value for found in map(find, findings.datasets) if found is not None), show) or MISSING


def _verdict(observations: Observations, dataset: str, assignment: str, claim: str) -> str:
    wanted = (dataset, assignment, claim)
    return next(
        (o["verdict"] for o in observations if (o["dataset"], o["assignment"], o["claim"]) == wanted), "undecided"
    )


def _plain(found: Estimate | None, digits: int) -> str:
    return MISSING if found is None else number(found.value, digits)


def _total(findings: Findings, column: str) -> str:
    return count(int(findings.counts[column].sum())) if column in findings.counts.columns else MISSING
