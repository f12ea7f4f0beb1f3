"""All interventions, by name, in the order in which they run, and the experiments that they belong to."""

from collections.abc import Sequence

from anchorscope.interventions.controls import NONE, RANDOM
from anchorscope.interventions.exact_tokens import CONTENT, PROPERTY, SUBJECT
from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.knockout import KNOCKOUT
from anchorscope.spans.locate import QuestionParts

INTERVENTIONS: dict[str, Intervention] = {
    one.name: one for one in (KNOCKOUT, RANDOM, NONE, SUBJECT, PROPERTY, CONTENT)
}


def available(
    wanted: Sequence[Intervention], items: Sequence[QuestionParts], needed: int
) -> tuple[list[Intervention], list[str]]:
    """Those that enough items can be run with, and one line for each of the others."""
    kept, missing = [], []
    for one in wanted:
        n = sum(one.applies(parts) for parts in items)
        if n >= needed or one.needs is None:
            kept.append(one)
        else:
            missing.append(f"{one.name} ({one.about}): {n} of {len(items)} questions say such words, {needed} needed")
    return kept, missing


def chosen(evidence: Sequence[str]) -> list[Intervention]:
    """The interventions of the named experiments; the knockout and its controls are always among them."""
    return [one for one in INTERVENTIONS.values() if one.evidence in ("knockout", *evidence)]
