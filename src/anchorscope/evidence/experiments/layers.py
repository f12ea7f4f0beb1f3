"""Where the cut matters: the knockout in one layer at a time, and in windows of layers.

Cutting a single layer asks which layer carries the question's words to the answer; but what one layer loses a later one
may still fetch, so that single layers can do little where all together do much. Windows stand in between. The heat map
has a row for the first layer that is cut and a column for every layer from there on that a probe reads; below the cut
there is nothing to see. `share_of_cumulative` says how much of the whole knockout's ΔP the single layers add up to,
`deepest_layer` which of them takes most, with the interval of that layer over the draws.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from anchorscope.evidence.draws import estimates, resampling
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    estimate_of,
    known,
    mean_in_deviations,
    p_value,
    p_values,
    q_values,
)
from anchorscope.evidence.experiments.cut_effects import (
    Effects,
    cumulative,
    effects_of,
    reference_statistics,
    summed_over,
)
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.evidence.experiments.partial_cuts import (
    Outcome,
    partial_knockout,
    run_partial_cuts,
    window_starts,
    window_width,
)
from anchorscope.evidence.pathways import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.stats.estimate import Estimate

SINGLE = "single"
"""One layer at a time."""


def run(inputs: ExperimentInputs) -> Found:
    """The knockout in every layer and window, and what it does to the groups."""
    n_layers, width = inputs.measured.n_layers, window_width(inputs)
    singles = [partial_knockout(SINGLE, range(layer, layer + 1)) for layer in range(n_layers)]
    starts = window_starts(n_layers, width) if width > 1 else []
    windows = [partial_knockout(f"window {width}", range(start, start + width)) for start in starts]
    outcomes, missing = run_partial_cuts(inputs, [*singles, *windows], "layers")
    found = analyse(inputs, outcomes)
    return Found(found.statistics, found.values, (*missing, *found.missing))


def analyse(inputs: ExperimentInputs, outcomes: Sequence[Outcome]) -> Found:
    """All statistics of cuts in single layers and windows."""
    rows: list[Statistic] = []
    missing: list[str] = []
    families = list(dict.fromkeys(outcome.variant for outcome in outcomes))
    inputs.progress.start("layers: statistics", len(inputs.calls))
    with resampling(inputs.draws.device):
        for assignment in inputs.calls:
            for variant in families:
                family = effects_of(inputs, assignment, [one for one in outcomes if one.variant == variant])
                rows += _heat_map(family)
                found, reasons = reference_statistics(family)
                rows += found
                missing += reasons
                if variant == SINGLE:
                    for more, why in (_shares(inputs, family), _deepest(family)):
                        rows += more
                        missing += why
            inputs.progress.advance(1)
    inputs.progress.finish()
    return Found(tuple(rows), _values(inputs, outcomes), tuple(dict.fromkeys(missing)))


def _heat_map(family: Sequence[Effects]) -> list[Statistic]:
    """ΔP at every probe layer from the cut on; the false discovery rate is controlled over the map of a group."""
    rows = []
    for group in GROUPS:
        shown = [one for one in family if one.members(group).sum() >= FEW]
        if not shown:
            continue
        curves = [one.curve(group) for one in shown]
        q = q_values(np.concatenate([p_values(samples) for samples in curves]))
        for one, samples in zip(shown, curves, strict=True):
            own, q = q[: len(samples)], q[len(samples) :]
            rows += _heat_map_row(one, samples, group, own.tolist())
    return rows


def _heat_map_row(one: Effects, samples: Tensor, group: str, q: Sequence[float]) -> list[Statistic]:
    value, low, high = estimates(samples)
    p, inside = p_values(samples), one.values[one.members(group)]
    return [
        Statistic(
            quantity="delta_p",
            estimate=Estimate(float(value[k]), float(low[k]), float(high[k]), len(inside), METHOD),
            variant=one.variant,
            assignment=one.assignment,
            group=group,
            truth="all",
            layer=one.first,
            probe_layer=one.first + k,
            p_value=known(p[k]),
            q_value=known(q[k]),
            effect_size=mean_in_deviations(inside[:, k]),
        )
        for k in range(len(samples))
    ]


def _shares(inputs: ExperimentInputs, singles: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """What single layers add up to at the reference layer, over what the whole knockout does to the same items."""
    if not _complete(inputs, singles):
        return [], ["share_of_cumulative: not every single layer could be cut in every item"]
    (whole,) = effects_of(inputs, singles[0].assignment, [cumulative(inputs, singles[0].items)])
    shares, numbers, missing = {}, {}, []
    for group in GROUPS:
        numbers[group] = int(whole.members(group).sum())
        if numbers[group] < FEW:
            continue  # said with the means of the group
        of_whole = estimate_of(whole.reference(group), numbers[group])
        if of_whole.ci_low <= 0 <= of_whole.ci_high:
            missing.append(
                f"share_of_cumulative of {group} items under the {whole.assignment} rule: the whole knockout changes "
                f"them by {of_whole.value:.1f} points [{of_whole.ci_low:.1f}, {of_whole.ci_high:.1f}], no share of "
                f"which can be told"
            )
            continue
        added = torch.stack([one.reference_sums(group)[0] for one in singles]).sum(dim=0)
        shares[group] = added / whole.reference_sums(group)[0]
    rows = [
        Statistic(
            "share_of_cumulative",
            estimate_of(samples, numbers[group], f"{METHOD}, ratio of means"),
            SINGLE,
            "cumulative",
            whole.assignment,
            group,
            "all",
        )
        for group, samples in shares.items()
    ]
    if len(shares) == len(GROUPS):
        samples = shares[Q_ANCHORED] - shares[A_ANCHORED]
        estimate = estimate_of(samples, sum(numbers.values()), f"{METHOD}, difference of ratios of means")
        p = p_value(samples)
        rows.append(
            Statistic(
                "share_of_cumulative_difference",
                estimate,
                SINGLE,
                "cumulative",
                whole.assignment,
                None,
                "all",
                p_value=p,
            )
        )
    return rows, missing


def _complete(inputs: ExperimentInputs, singles: Sequence[Effects]) -> bool:
    """Whether every layer that a reference layer can see was cut alone, in all of the items."""
    needed = inputs.some_items()
    top = int(inputs.reference[needed].max())
    whole = {one.first for one in singles if len(one.items) == len(needed)}
    return whole.issuperset(range(top + 1))


def _deepest(singles: Sequence[Effects]) -> tuple[list[Statistic], list[str]]:
    """The single layer whose cut lowers ΔP at the reference layer most, in every draw."""
    rows, missing, deepest = [], [], {}
    for group in GROUPS:
        shown = [one for one in singles if one.reached(group).sum() >= FEW]
        if len(shown) < 2:
            continue
        samples = torch.stack([one.reference(group) for one in shown]).nan_to_num(nan=torch.inf)
        assignment, n = shown[0].assignment, max(int(one.reached(group).sum()) for one in shown)
        if float(samples[:, 0].min()) >= 0:
            missing.append(f"deepest_layer of {group} items under the {assignment} rule: no layer lowers their ΔP")
            continue
        layers = torch.tensor([one.first for one in shown], dtype=torch.float64, device=samples.device)
        deepest[group] = layers[samples.argmin(dim=0)], n
        estimate = estimate_of(deepest[group][0], n, f"{METHOD}, the layer in every draw")
        rows.append(Statistic("deepest_layer", estimate, SINGLE, None, assignment, group, "all"))
    if len(deepest) == len(GROUPS):
        (first, n_first), (second, n_second) = (deepest[group] for group in GROUPS)
        estimate = estimate_of(first - second, n_first + n_second, f"{METHOD}, the layers in every draw")
        assignment = singles[0].assignment
        rows.append(Statistic("deepest_layer_difference", estimate, SINGLE, None, assignment, None, "all"))
    return rows, missing


def _values(inputs: ExperimentInputs, outcomes: Sequence[Outcome]) -> tuple[ItemValues, ...]:
    """What the single layers add up to in every item, at its reference layer and without any correction."""
    singles = [one for one in outcomes if one.variant == SINGLE]
    if not singles or not _complete(inputs, [Effects(inputs, next(iter(inputs.calls)), one) for one in singles]):
        return ()
    return (summed_over(inputs, singles, SINGLE),)


EXPERIMENT = Experiment("layers", "the knockout in single layers and in windows of layers", run)
