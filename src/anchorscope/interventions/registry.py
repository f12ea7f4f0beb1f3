"""All interventions, by name, in the order in which they run, and the experiments that they belong to."""

from collections.abc import Sequence

from anchorscope.interventions.answer_only import ANSWER_BARE, ANSWER_TEMPLATE
from anchorscope.interventions.controls import NONE, RANDOM
from anchorscope.interventions.edges import DIRECT
from anchorscope.interventions.exact_tokens import CONTENT, PROPERTY, SUBJECT
from anchorscope.interventions.intervention import Intervention
from anchorscope.interventions.knockout import KNOCKOUT
from anchorscope.interventions.patching import PATCH_CONTROL, PATCH_RANDOM, PATCH_SAME, PATCH_SELF
from anchorscope.interventions.rewriting import Rewriting
from anchorscope.interventions.template import TEMPLATE
from anchorscope.interventions.zeroing import ZEROING

INTERVENTIONS: dict[str, Intervention] = {
    one.name: one for one in (KNOCKOUT, RANDOM, NONE, SUBJECT, PROPERTY, CONTENT, TEMPLATE, DIRECT, ZEROING)
}
"""Those that cut attention."""
REWRITINGS: dict[str, Rewriting] = {
    one.name: one for one in (PATCH_SAME, PATCH_RANDOM, PATCH_SELF, PATCH_CONTROL, ANSWER_TEMPLATE, ANSWER_BARE)
}
"""Those that change what the model reads."""


def chosen(evidence: Sequence[str], edges: str = "all") -> list[Intervention]:
    """The cuts of the named experiments; the knockout and its controls are always among them.

    What would only repeat the knockout, because the recipe's edges are its own, is left out.
    """
    wanted = [one for one in INTERVENTIONS.values() if one.evidence in ("knockout", *evidence)]
    return [one for one in wanted if one.edges != edges]


def chosen_rewritings(evidence: Sequence[str]) -> list[Rewriting]:
    """The rewritings of the named experiments."""
    return [one for one in REWRITINGS.values() if one.evidence in evidence]
