"""Mediation (activation patching): states of the key words exchanged between a true and a false item, layer by layer.

At the entry of one layer, the states of the exact question tokens are replaced by those of a partner of the same
relation, as many exact tokens and opposite truth. *Necessity*: which share of the pair's difference in log-odds at l*
does the true member lose? *Sufficiency*: which share does the false one gain? Controls: a donor that is as true as the
target, and the partner's states of as many other tokens. No item is in two pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from anchorscope.engine.sequences import Patch, Variant
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    Statistic,
)
from anchorscope.experiments.partial_cuts import Scored, run_variants
from anchorscope.experiments.statistics import FEW, Floats, estimate_of, family_rows
from anchorscope.report.findings import find, row_estimate, select, statistics
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.verdicts import DISCOVERY_RATE, NEGLIGIBLE_SHARE, Verdict
from anchorscope.report.wording import NOTHING, count, estimate, shown
from anchorscope.stats.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

NECESSITY, SUFFICIENCY = "necessity", "sufficiency"
OPPOSITE, SAME, OTHER = "opposite truth", "same truth", "other tokens"
"""Whose states are put in: the partner's; those of an item as true as the target; the partner's, of other tokens."""
_METHOD = "bootstrap over both members' groups"

Pair = tuple[int, int]
"""A true and a false item, by their indices among the used ones."""


def alike(
    inputs: ExperimentInputs, items: Sequence[int]
) -> dict[tuple[str, int], list[int]]:
    """Items by relation and number of exact tokens, each kind in random order; none without a relation."""
    kinds: dict[tuple[str, int], list[int]] = {}
    for index in items:
        item = inputs.used_items[index]
        if item.question.relation is not None:
            kinds.setdefault(
                (item.question.relation, len(item.located.question_tokens)), []
            ).append(index)
    for (relation, number), members in kinds.items():
        order = stream(
            inputs.setting.seed,
            "mediation pairs",
            inputs.dataset,
            relation,
            str(number),
        )
        kinds[relation, number] = [
            members[int(rank)] for rank in order.permutation(len(members))
        ]
    return kinds


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
                pairs.append((true, false))
    return sorted(pairs)


def plan_patches(
    inputs: ExperimentInputs, pairs: Sequence[Pair]
) -> dict[str, dict[int, Patch]]:
    """Every member's patch from each kind of donor; a member without such a donor has none."""
    by_kind = alike(inputs, range(inputs.n))
    kinds = {item: kind for kind, members in by_kind.items() for item in members}
    patches: dict[str, dict[int, Patch]] = {OPPOSITE: {}, SAME: {}, OTHER: {}}
    for item, partner in (
        members for true, false in pairs for members in ((true, false), (false, true))
    ):
        patches[OPPOSITE][item] = _exact(inputs, item, partner)
        same = _same_truth(inputs, item, by_kind[kinds[item]])
        if same is not None:
            patches[SAME][item] = _exact(inputs, item, same)
        other = _other_tokens(inputs, item, partner)
        if other is not None:
            patches[OTHER][item] = other
    return patches


def _exact(inputs: ExperimentInputs, item: int, donor: int) -> Patch:
    own, theirs = (
        inputs.used_items[index].located.question_tokens for index in (item, donor)
    )
    return Patch(own, donor, theirs)


def _same_truth(
    inputs: ExperimentInputs, item: int, members: Sequence[int]
) -> int | None:
    """An item that is alike and as true, of another group: the next in the drawn order."""
    labels, groups = inputs.measured.labels, inputs.measured.groups
    index = members.index(item)
    others = [*members[index + 1 :], *members[:index]]
    return next(
        (
            other
            for other in others
            if labels[other] == labels[item] and groups[other] != groups[item]
        ),
        None,
    )


def _other_tokens(inputs: ExperimentInputs, item: int, donor: int) -> Patch | None:
    """As many other tokens as the exact ones, of both, in their order; None if one has too few."""
    from anchorscope.interventions.cuts import random_candidates

    wanted = len(inputs.used_items[item].located.question_tokens)
    chosen = []
    for member in (inputs.used_items[item], inputs.used_items[donor]):
        candidates = random_candidates(member)
        if len(candidates) < wanted:
            return None
        rng = stream(inputs.setting.seed, "mediation other tokens", member.item_id)
        chosen.append(
            tuple(np.sort(rng.choice(candidates, size=wanted, replace=False)).tolist())
        )
    return Patch(chosen[0], donor, chosen[1])


def run(inputs: ExperimentInputs) -> Found:
    """Draws pairs, exchanges their states at every layer that a probe at l* can see, and computes shares."""
    pairs = draw_pairs(inputs)
    if len(pairs) < FEW:
        return Found(
            missing=(
                f"{len(pairs)} pairs of a true and a false answer have the same relation and as many exact tokens, "
                f"{FEW} needed",
            )
        )
    patches = plan_patches(inputs, pairs)
    few = {
        kind: len(planned)
        for kind, planned in patches.items()
        if len(planned) < 2 * FEW
    }
    missing = [
        f"{kind}: {n} items have such a donor, {2 * FEW} needed"
        for kind, n in few.items()
    ]
    top = int(inputs.reference[inputs.some_items()].max())
    wanted = [
        (kind, layer) for kind in patches if kind not in few for layer in range(top + 1)
    ]
    variants = [
        Variant(layers=range(layer, layer + 1), patches=patches[kind])
        for kind, layer in wanted
    ]
    result = analyse(
        inputs,
        pairs,
        dict(zip(wanted, run_variants(inputs, variants, "mediation"), strict=True)),
    )
    return Found(result.statistics, missing=(*missing, *result.missing))


def analyse(
    inputs: ExperimentInputs,
    pairs: Sequence[Pair],
    ran: Mapping[tuple[str, int], Scored],
) -> Found:
    """Shares of the pairs' difference, per direction, kind of donor and layer."""
    from anchorscope.evidence.draws import Draws, resampling

    clean = Scored(np.arange(inputs.n), inputs.measured.before)
    before = _at_reference(inputs, clean)
    true, false = np.array(pairs).T
    gaps = before[true] - before[false]
    draws = Draws(inputs.draws.counts[true] * inputs.draws.counts[false])
    with resampling(draws.device):
        gap = estimate_of(_ratio(draws, gaps, np.ones_like(gaps)), len(pairs), _METHOD)
        rows, missing = [Statistic("gap_log_odds", gap, truth="all")], []
        for quantity, targets, sign in (
            (NECESSITY, true, -1.0),
            (SUFFICIENCY, false, 1.0),
        ):
            if gap.ci_low <= 0:
                missing.append(
                    f"{quantity}: the members of a pair differ by {gap.value:.2f} [{gap.ci_low:.2f}, "
                    f"{gap.ci_high:.2f}] in log-odds, no share of which can be given"
                )
                continue
            moved = {}
            for (kind, layer), scored in ran.items():
                after = np.full(inputs.n, np.nan)
                after[scored.items] = _at_reference(inputs, scored)
                # a probe below the patch cannot see it
                seen = inputs.reference[targets] >= layer
                moved[kind, layer] = np.where(
                    seen, sign * (after - before)[targets], np.nan
                )
            rows += _shares(quantity, moved, gaps, draws)
    return Found(tuple(rows), missing=tuple(missing))


def _at_reference(inputs: ExperimentInputs, scored: Scored) -> Floats:
    """Log-odds at each item's own reference layer."""
    return scored.logits[inputs.reference[scored.items], np.arange(len(scored.items))]


def _ratio(draws: Draws, part: Floats, whole: Floats) -> Tensor:
    """Ratio of the sums in every draw; a pair with an unknown part counts in neither."""
    from anchorscope.evidence.draws import ratio

    there = np.isfinite(part)
    sums = draws.sums(
        np.stack([np.where(there, part, 0.0), np.where(there, whole, 0.0)], axis=1)
    )
    return ratio(sums[0], sums[1])


def _shares(
    quantity: str, moved: Mapping[tuple[str, int], Floats], gaps: Floats, draws: Draws
) -> list[Statistic]:
    """Shares by kind of donor and layer, and how far the partner's exceed those of a donor as true as the target.

    That difference is over the pairs that have both; q-values are over the layers of a kind.
    """

    def in_layers(kind: str) -> dict[int, Floats]:
        return {layer: part for (name, layer), part in moved.items() if name == kind}

    control = in_layers(SAME)
    beyond = {
        layer: part - control[layer]
        for layer, part in in_layers(OPPOSITE).items()
        if layer in control
    }

    def family(
        name: str, parts: Mapping[int, Floats], **columns: str
    ) -> list[Statistic]:
        tests = [
            (_ratio(draws, part, gaps), n, {"layer": layer, **columns})
            for layer, part in parts.items()
            if (n := int(np.isfinite(part).sum())) >= FEW
        ]
        return family_rows(name, tests, f"{_METHOD}, ratio of sums")

    shares = [
        row for kind in KINDS for row in family(quantity, in_layers(kind), variant=kind)
    ]
    return [
        *shares,
        *family(f"{quantity}_difference", beyond, variant=OPPOSITE, against=SAME),
    ]


EXPERIMENT = Experiment(
    "mediation",
    "states of the key words exchanged between true and false items, per layer",
    run,
)

DIRECTIONS = {
    NECESSITY: "true answers get false ones' states: lost",
    SUFFICIENCY: "the other way round: gained",
}
KINDS = {
    OPPOSITE: "partner of opposite truth",
    SAME: "donor of the same truth",
    OTHER: "the partner's other tokens",
}
_DASHES: dict[str, Any] = {OPPOSITE: "-", SAME: (0, (4.0, 1.8)), OTHER: (0, (1.0, 1.5))}


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    colour = colours.colour if kind == OPPOSITE else CONTROL_GREY
    return {"color": colour, "linestyle": _DASHES[kind], "linewidth": 1.6}


_SERIES = [
    Series({"variant": kind}, partial(_style, kind), words)
    for kind, words in KINDS.items()
]
_PANELS = [
    Lines(
        _SERIES,
        "share of the difference",
        words,
        4.3,
        {"quantity": quantity},
        empty="too few pairs",
    )
    for quantity, words in DIRECTIONS.items()
]


def _at_largest(column: int, rows: pl.DataFrame) -> str:
    """At the layer with the largest share: layer, share, pairs, both controls, or the excess over the first."""
    largest = select(rows, variant=OPPOSITE, aspect="").sort("value")
    if not largest.height:
        return NOTHING
    row = largest.row(-1, named=True)
    controls = (
        {"variant": SAME, "aspect": ""},
        {"variant": OTHER, "aspect": ""},
        {"aspect": "difference"},
    )
    beside = (
        shown(find(rows, layer=row["layer"], **where), estimate) for where in controls
    )
    return (str(row["layer"]), estimate(row_estimate(row)), count(row["n"]), *beside)[
        column
    ]


def _beyond_control(rows: pl.DataFrame) -> list[int]:
    """Layers at which a partner of opposite truth does more than a donor of the same, with 95 % confidence."""
    gaps = select(rows, aspect="difference")
    return gaps.filter((pl.col("q_value") < DISCOVERY_RATE) & (pl.col("ci_low") > 0))[
        "layer"
    ].to_list()


def _carries(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, measure=NECESSITY)
    gaps, proved = (
        select(mine, aspect="difference").sort("value"),
        _beyond_control(mine),
    )
    if not gaps.height:
        return None
    best = gaps.row(-1, named=True)
    small = gaps.filter(pl.col("ci_high") >= NEGLIGIBLE_SHARE).height == 0
    verdict: Verdict = "yes" if proved else "no" if small else "inconclusive"
    until = f" (until layer {max(proved)})" if proved else ""
    what = f"beyond the control at layer {best['layer']}{until}:"
    return section.number(row_estimate(best), verdict, estimate, what)


SECTION = section.SectionSpec(
    slug="mediation",
    title="Mediation: the key words' states exchanged",
    asks="Until which layer do the key words' states carry truth? They are replaced by those of an item of opposite "
    "truth.",
    careful="Anybody's states disturb a run: only what exceeds a donor of the same truth counts.",
    answer=section.Answer(
        "The key words' states carry truth",
        "The key words' states carry hardly any truth",
        "Whether the key words' states carry truth is undecided",
        _carries,
    ),
    charts=(
        ChartSpec(
            "mediation",
            "mediation",
            "Share of the pairs' difference that follows the key words' states, per layer, both ways",
            "States are replaced at the entry of one layer; the probe reads at l*.",
            "Share of the difference in log-odds at l* between the members of a pair; bands: 95 % intervals. Grey: "
            "controls. A layer counts the pairs whose l* is not below it.",
            lambda findings: statistics(findings, "mediation", *DIRECTIONS).select(
                section.FIGURE_COLUMNS
            ),
            lambda _: _PANELS,
            height=2.3,
            gap=0.6,
        ),
    ),
    tables=(
        section.TableSpec(
            "The layer at which most follows the states, and the controls there (chosen among all layers: read it "
            "with the figure)",
            (section.Key("measure", "", {name: name for name in DIRECTIONS}),),
            tuple(
                (head, partial(_at_largest, column))
                for column, head in enumerate(
                    ("layer", "share", "pairs", SAME, OTHER, f"minus {SAME}")
                )
            ),
            lambda rows: select(rows, measure=tuple(DIRECTIONS)),
        ),
    ),
)
