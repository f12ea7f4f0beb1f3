"""Statistics of cuts in some layers or heads: ΔP at the reference layer per group, and how the groups differ."""

from collections.abc import Sequence

import torch
from torch import Tensor

from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import estimates
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    answers_of,
    cohens_d,
    known,
    mean_in_deviations,
    p_values,
    q_values,
)
from anchorscope.evidence.experiments.cut_effects import Effects
from anchorscope.evidence.experiments.experiment import Statistic
from anchorscope.evidence.pathways import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.stats.estimate import Estimate

QUANTITY = "delta_p_reference"
"""ΔP at each item's own reference layer, in percentage points."""


def reference_statistics(family: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """ΔP at each item's own reference layer, for all ways of one family under one assignment.

    Per group and truth label, and the difference Q − A. The false discovery rate is controlled over the family.
    """
    rows = []
    for truth in TRUTHS:
        for group in GROUPS:
            shown = [one for one in family if one.reached(group, truth).sum() >= FEW]
            if shown:
                rows += _means(shown, group, truth)
        both = [one for one in family if all(one.reached(group, truth).sum() >= FEW for group in GROUPS)]
        if both:
            rows += _differences(both, truth)
    return rows, [*_small_groups(family), *_few_reached(family)] if family else []


def _means(shown: Sequence[Effects], group: str, truth: str) -> list[Statistic]:
    samples = torch.stack([one.reference(group, truth) for one in shown])
    inside = [one.at_reference[one.reached(group, truth)] for one in shown]
    sizes = [mean_in_deviations(values) for values in inside]
    return _rows(shown, samples, [len(values) for values in inside], sizes, QUANTITY, group, truth)


def _differences(both: Sequence[Effects], truth: str) -> list[Statistic]:
    samples = torch.stack([one.reference(Q_ANCHORED, truth) - one.reference(A_ANCHORED, truth) for one in both])
    pairs = [[one.at_reference[one.reached(group, truth)] for group in GROUPS] for one in both]
    numbers = [len(first) + len(second) for first, second in pairs]
    sizes = [cohens_d(first, second) for first, second in pairs]
    return _rows(both, samples, numbers, sizes, f"{QUANTITY}_difference", None, truth)


def _rows(
    shown: Sequence[Effects],
    samples: Tensor,
    numbers: Sequence[int],
    sizes: Sequence[float | None],
    quantity: str,
    group: str | None,
    truth: str,
) -> list[Statistic]:
    value, low, high = estimates(samples)
    p = p_values(samples)
    q = q_values(p)
    return [
        Statistic(
            quantity=quantity,
            estimate=Estimate(float(value[k]), float(low[k]), float(high[k]), numbers[k], METHOD),
            variant=one.variant,
            assignment=one.assignment,
            group=group,
            truth=truth,
            layer=one.first,
            p_value=known(p[k]),
            q_value=known(q[k]),
            effect_size=sizes[k],
        )
        for k, one in enumerate(shown)
    ]


def _small_groups(family: Sequence[Effects]) -> list[str]:
    """One line for each group that is too small, or for each part of it where the whole is not."""
    lines = []
    for group in GROUPS:
        for truth in TRUTHS:
            most = max(int(one.members(group, truth).sum()) for one in family)
            if most < FEW:
                rule = family[0].assignment
                lines.append(f"only {most} {answers_of(truth)} are {group} under the {rule} rule, {FEW} needed")
                if truth == "all":
                    break
    return lines


def _few_reached(family: Sequence[Effects]) -> list[str]:
    """One line about groups that are large enough, but of which too few can see the cuts from some layer on."""
    parts = []
    for group in GROUPS:
        for truth in TRUTHS:
            if max(one.members(group, truth).sum() for one in family) >= FEW:
                few = [one.first for one in family if 0 < one.reached(group, truth).sum() < FEW]
                name = group if truth == "all" else f"{truth} {group}"
                parts += [f"{name} from layer {min(few)} on"] if few else []
    if not parts:
        return []
    names = list(dict.fromkeys(one.variant for one in family))
    what = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
    return [
        f"{QUANTITY} of cuts so high that the reference layer of fewer than {FEW} items is not below them, under the "
        f"{family[0].assignment} rule ({what}): {', '.join(parts)}"
    ]
