"""Who gives states to whom: pairs of used items that differ in truth, and controls.

A pair has the same relation, as many exact question tokens, and no subject or question in common; one answer is true
and the other false. Pairs are drawn at random and no item is in two. Controls for each member: a donor whose answer is
as true as its own, and its partner's other tokens in the place of as many of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anchorscope.engine.sequences import Patch
from anchorscope.evidence.experiments.experiment import ExperimentInputs
from anchorscope.interventions.cuts import random_candidates
from anchorscope.stats.streams import stream

OPPOSITE, SAME, OTHER = "opposite truth", "same truth", "other tokens"
"""Whose states are put in: the partner's; those of an item as true as the target; the partner's, of other tokens."""


@dataclass(frozen=True)
class Pair:
    """Two used items, by their indices."""

    true: int
    false: int

    def partner(self, item: int) -> int:
        """The other member."""
        return self.false if item == self.true else self.true


def alike(inputs: ExperimentInputs, items: Sequence[int]) -> dict[tuple[str, int], list[int]]:
    """Items by relation and number of exact tokens, each kind in an order drawn at random; none without a relation."""
    found: dict[tuple[str, int], list[int]] = {}
    for index in items:
        item = inputs.used_items[index]
        if item.question.relation is not None:
            found.setdefault((item.question.relation, len(item.located.question_tokens)), []).append(index)
    for (relation, number), members in found.items():
        order = stream(inputs.setting.seed, "mediation pairs", inputs.dataset, relation, str(number))
        found[relation, number] = [members[int(place)] for place in order.permutation(len(members))]
    return found


def draw_pairs(inputs: ExperimentInputs) -> list[Pair]:
    """True and false items that are alike, no item twice, in the order of the true ones."""
    labels, groups = inputs.measured.labels, inputs.measured.groups
    pairs = []
    for members in alike(inputs, inputs.some_items().tolist()).values():
        free = [item for item in members if not labels[item]]
        for true in (item for item in members if labels[item]):
            false = next((item for item in free if groups[item] != groups[true]), None)
            if false is not None:
                free.remove(false)
                pairs.append(Pair(true, false))
    return sorted(pairs, key=lambda pair: pair.true)


def plan_patches(inputs: ExperimentInputs, pairs: Sequence[Pair]) -> dict[str, dict[int, Patch]]:
    """Every member's patch from each kind of donor; a member without such a donor has none."""
    by_kind = alike(inputs, range(inputs.n))
    kinds = {item: kind for kind, members in by_kind.items() for item in members}
    found: dict[str, dict[int, Patch]] = {OPPOSITE: {}, SAME: {}, OTHER: {}}
    for pair in pairs:
        for item in (pair.true, pair.false):
            partner = pair.partner(item)
            found[OPPOSITE][item] = _exact(inputs, item, partner)
            same = _same_truth(inputs, item, by_kind[kinds[item]])
            if same is not None:
                found[SAME][item] = _exact(inputs, item, same)
            other = _other_tokens(inputs, item, partner)
            if other is not None:
                found[OTHER][item] = other
    return found


def _exact(inputs: ExperimentInputs, item: int, donor: int) -> Patch:
    own, theirs = (inputs.used_items[index].located.question_tokens for index in (item, donor))
    return Patch(own, donor, theirs)


def _same_truth(inputs: ExperimentInputs, item: int, members: Sequence[int]) -> int | None:
    """An item that is alike and as true, of another group; whoever comes first after it in the drawn order."""
    labels, groups = inputs.measured.labels, inputs.measured.groups
    place = members.index(item)
    others = [*members[place + 1 :], *members[:place]]
    return next((one for one in others if labels[one] == labels[item] and groups[one] != groups[item]), None)


def _other_tokens(inputs: ExperimentInputs, item: int, donor: int) -> Patch | None:
    """As many other tokens as the exact ones, of both, in their order; None where one has too few."""
    wanted = len(inputs.used_items[item].located.question_tokens)
    chosen = []
    for index in (item, donor):
        one = inputs.used_items[index]
        candidates = random_candidates(one)
        if len(candidates) < wanted:
            return None
        rng = stream(inputs.setting.seed, "mediation other tokens", one.item_id)
        chosen.append(tuple(np.sort(rng.choice(candidates, size=wanted, replace=False)).tolist()))
    return Patch(chosen[0], donor, chosen[1])
