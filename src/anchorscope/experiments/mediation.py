"""Mediation (activation patching): states of the key words exchanged between a true and a false item, layer by layer.

The knockout asks what is lost when nobody may look at the key words; here they may be looked at, and say something
else: at the entry of one layer the residual states of the exact question tokens are replaced by those of a partner of
the same relation and of opposite truth. The text stays, the answer stays, everything below the layer stays. (The
experiment `patching` writes other words into the text instead, and reads it afresh.)

*Necessity*: the true member gets the false one's states; which share of the pair's difference in log-odds at l* does it
lose? *Sufficiency*: the false member gets the true one's; which share does it gain? A share of 1 at the first layers
and 0 later would say that all of it passes through these states, and has left them by then. Beside them: a donor that
is as true as the target (what putting in anybody's states does), and as many other tokens' states of the partner.

A pair has the same relation, as many exact question tokens, and no subject or question in common; one answer is true
and the other false. Pairs are drawn at random and no item is in two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from anchorscope.engine.sequences import Patch, Variant
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.partial_cuts import MOST_AT_ONCE, Scored, run_variants
from anchorscope.experiments.statistics import FEW, Floats, estimate_of, known, p_values, q_values
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY, DatasetStyle
from anchorscope.report.panel_figure import ChartSpec, Lines, Series
from anchorscope.report.result_rows import find, row_estimate, select, statistics
from anchorscope.report.verdicts import DISCOVERY_RATE, NEGLIGIBLE_SHARE, Verdict
from anchorscope.report.wording import NOTHING, count, estimate, shown
from anchorscope.stats.streams import stream

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

NECESSITY, SUFFICIENCY = "necessity", "sufficiency"
_METHOD = "bootstrap over both members' groups, ratio of sums"
_MEAN = "bootstrap over both members' groups"

Ran = Mapping[tuple[str, int], Scored]
"""What was run, by kind of donor and layer."""

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
    from anchorscope.interventions.cuts import random_candidates

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


def run(inputs: ExperimentInputs) -> Found:
    """Pairs are drawn, their states exchanged at every layer that a probe at l* can see, and shares computed."""
    pairs = draw_pairs(inputs)
    if len(pairs) < FEW:
        return Found(
            missing=(
                f"{len(pairs)} pairs of a true and a false answer have the same relation and as many exact tokens, "
                f"{FEW} needed",
            )
        )
    patches = plan_patches(inputs, pairs)
    few = {kind: len(found) for kind, found in patches.items() if len(found) < 2 * FEW}
    missing = [f"{kind}: {n} items have such a donor, {2 * FEW} needed" for kind, n in few.items()]
    ran = run_patches(inputs, {kind: found for kind, found in patches.items() if kind not in few})
    found = analyse(inputs, pairs, ran)
    return Found(found.statistics, found.values, (*missing, *found.missing))


def run_patches(inputs: ExperimentInputs, patches: Mapping[str, Mapping[int, Patch]]) -> dict[tuple[str, int], Scored]:
    """Every kind of patch at every layer up to the highest l*; a few share a pass, as each takes a row of an item."""
    top = int(inputs.reference[inputs.some_items()].max())
    wanted = [(kind, layer) for kind in patches for layer in range(top + 1)]
    n_passes = math.ceil(len(wanted) / MOST_AT_ONCE)
    ran: dict[tuple[str, int], Scored] = {}
    for number in range(n_passes):
        some = wanted[number::n_passes]  # each pass has early and late layers, which cost more and less
        variants = [Variant(layers=range(layer, layer + 1), patches=patches[kind]) for kind, layer in some]
        ran |= zip(some, run_variants(inputs, variants, f"mediation {number + 1} of {n_passes}"), strict=True)
    return {name: ran[name] for name in wanted}


def analyse(inputs: ExperimentInputs, pairs: Sequence[Pair], ran: Ran) -> Found:
    """Shares of the pairs' difference, per direction, kind of donor and layer."""
    from anchorscope.evidence.draws import Draws, resampling

    before = _at_reference(inputs, inputs.measured.before[inputs.measured.probe("full")], np.arange(inputs.n))
    gaps = np.array([before[pair.true] - before[pair.false] for pair in pairs])
    draws = Draws(inputs.draws.counts[[pair.true for pair in pairs]] * inputs.draws.counts[[p.false for p in pairs]])
    rows, values, missing = [], [], []
    inputs.progress.start("mediation: statistics", 2)
    with resampling(draws.device):
        gap = estimate_of(_ratio(draws, gaps, np.ones_like(gaps)), len(pairs), _MEAN)
        rows.append(Statistic("gap_log_odds", gap, truth="all"))
        for quantity, sign in ((NECESSITY, -1.0), (SUFFICIENCY, 1.0)):
            if gap.ci_low <= 0:
                missing.append(
                    f"{quantity}: the members of a pair differ by {gap.value:.2f} [{gap.ci_low:.2f}, "
                    f"{gap.ci_high:.2f}] in log-odds, no share of which can be told"
                )
                continue
            targets = [pair.true if quantity == NECESSITY else pair.false for pair in pairs]
            moved = {name: sign * _moved(inputs, scored, before, targets, name[1]) for name, scored in ran.items()}
            rows += _shares(quantity, moved, gaps, draws)
            rows += _differences(quantity, moved, gaps, draws)
            values += _values(quantity, moved, gaps, targets)
            inputs.progress.advance(1)
    inputs.progress.finish()
    return Found(tuple(rows), tuple(values), tuple(missing))


def _at_reference(inputs: ExperimentInputs, logits: Floats, items: NDArray[np.int64]) -> Floats:
    """Log-odds [layer, item] at each item's own reference layer."""
    return logits[inputs.reference[items], np.arange(len(items))]


def _moved(inputs: ExperimentInputs, scored: Scored, before: Floats, targets: Sequence[int], layer: int) -> Floats:
    """How far each target's log-odds moved, [pair]; NaN for one that was not run, or is probed below the patch."""
    after = dict(zip(scored.items.tolist(), _at_reference(inputs, scored.logits, scored.items), strict=True))
    moved = np.array([after.get(target, np.nan) - before[target] for target in targets])
    return np.where(inputs.reference[list(targets)] >= layer, moved, np.nan)


def _ratio(draws: Draws, part: Floats, whole: Floats) -> Tensor:
    from anchorscope.evidence.draws import ratio

    sums = draws.sums(np.stack([part, whole], axis=1))
    return ratio(sums[0], sums[1])


def _share(moved: Floats, gaps: Floats, draws: Draws) -> tuple[Tensor, int]:
    """Sum of what moved over the sum of the gaps, over the pairs that count, and their number."""
    there = np.isfinite(moved)
    return _ratio(draws, np.where(there, moved, 0.0), np.where(there, gaps, 0.0)), int(there.sum())


def _shares(quantity: str, moved: Mapping[tuple[str, int], Floats], gaps: Floats, draws: Draws) -> list[Statistic]:
    """One row per kind of donor and layer; q-values over the layers of a kind."""
    rows = []
    for kind in (OPPOSITE, SAME, OTHER):
        found = [(layer, *_share(one, gaps, draws)) for (name, layer), one in moved.items() if name == kind]
        found = [one for one in found if one[2] >= FEW]
        rows += _rows(quantity, found, kind)
    return rows


def _differences(quantity: str, moved: Mapping[tuple[str, int], Floats], gaps: Floats, draws: Draws) -> list[Statistic]:
    """The partner's states against each control, over the pairs that have both."""
    rows = []
    for control in (SAME, OTHER):
        found = []
        for (kind, layer), one in moved.items():
            other = moved.get((control, layer))
            if kind != OPPOSITE or other is None:
                continue
            both = np.isfinite(one) & np.isfinite(other)
            if both.sum() >= FEW:
                gap = np.where(both, gaps, 0.0)
                samples = _ratio(draws, np.where(both, one - other, 0.0), gap)
                found.append((layer, samples, int(both.sum())))
        rows += _rows(f"{quantity}_difference", found, OPPOSITE, control)
    return rows


def _rows(
    quantity: str, found: Sequence[tuple[int, Tensor, int]], variant: str, against: str | None = None
) -> list[Statistic]:
    p = [float(p_values(samples)) for _, samples, _ in found]
    q = q_values(p)
    return [
        Statistic(
            quantity,
            estimate_of(samples, n, _METHOD),
            variant,
            against,
            truth="all",
            layer=layer,
            p_value=known(p[k]),
            q_value=known(q[k]),
        )
        for k, (layer, samples, n) in enumerate(found)
    ]


def _values(
    quantity: str, moved: Mapping[tuple[str, int], Floats], gaps: Floats, targets: Sequence[int]
) -> list[ItemValues]:
    """What the partner's states move in each target, in log-odds, at the layer where that is most in all."""
    partner = {layer: one for (kind, layer), one in moved.items() if kind == OPPOSITE}
    if not partner:
        return []
    best = max(partner, key=lambda layer: float(np.nansum(partner[layer])))
    there, order = np.isfinite(partner[best]), np.argsort(targets)
    order = order[there[order]]
    items = np.array(targets)[order]
    return [
        ItemValues(f"{quantity}_log_odds", items, partner[best][order], f"layer {best}"),
        ItemValues("gap_log_odds", items, gaps[order], quantity),
    ]


EXPERIMENT = Experiment("mediation", "states of the key words exchanged between true and false items, per layer", run)


DIRECTIONS = {NECESSITY: "true answers get false ones' states: lost", SUFFICIENCY: "the other way round: gained"}
KINDS = {OPPOSITE: "partner of opposite truth", SAME: "donor of the same truth", OTHER: "the partner's other tokens"}
_DASHES: dict[str, Any] = {OPPOSITE: "-", SAME: (0, (4.0, 1.8)), OTHER: (0, (1.0, 1.5))}
_COLUMNS = ("dataset", "quantity", "variant", "layer", "value", "ci_low", "ci_high", "n", "p_value", "q_value")


def _drawn(findings: Findings) -> pl.DataFrame:
    rows = select(statistics(findings, "mediation", *DIRECTIONS), variant=tuple(KINDS))
    return rows.drop_nulls("layer").select(_COLUMNS)


def _style(kind: str, colours: DatasetStyle) -> dict[str, object]:
    return {
        "color": colours.q_colour if kind == OPPOSITE else CONTROL_GREY,
        "linestyle": _DASHES[kind],
        "linewidth": 1.6,
    }


_SERIES = [Series({"variant": kind}, partial(_style, kind), words) for kind, words in KINDS.items()]
_PANELS = [
    Lines(_SERIES, "share of the difference", words, 4.3, {"quantity": quantity}, empty="too few pairs")
    for quantity, words in DIRECTIONS.items()
]


def _largest(rows: pl.DataFrame) -> dict[str, Any] | None:
    """The row of the layer at which most follows the states."""
    mine = select(rows, variant=OPPOSITE, aspect="").sort("value")
    return mine.row(-1, named=True) if mine.height else None


def _at_largest(say: Callable[[dict[str, Any]], str]) -> Callable[[pl.DataFrame], str]:
    def cell(rows: pl.DataFrame) -> str:
        best = _largest(rows)
        return say(best) if best else NOTHING

    return cell


def _there(**where: str) -> Callable[[pl.DataFrame], str]:
    """Another number at that layer."""

    def cell(rows: pl.DataFrame) -> str:
        best = _largest(rows)
        return shown(find(rows, layer=best["layer"], **where), estimate) if best else NOTHING

    return cell


def _beyond_control(rows: pl.DataFrame) -> pl.DataFrame:
    """Layers at which a partner of opposite truth surely does more than a donor of the same."""
    gaps = select(rows, aspect="difference", against=SAME)
    return gaps.filter((pl.col("q_value") < DISCOVERY_RATE) & (pl.col("ci_low") > 0))


def _last_layer(rows: pl.DataFrame) -> str:
    sure = _beyond_control(rows)["layer"].to_list()
    return str(max(sure)) if sure else NOTHING


def _carries(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, measure=NECESSITY)
    gaps = select(mine, aspect="difference", against=SAME).sort("value")
    sure = _beyond_control(mine)["layer"].to_list()
    if not gaps.height:
        return None
    best = gaps.row(-1, named=True)
    small = gaps.filter(pl.col("ci_high") >= NEGLIGIBLE_SHARE).height == 0
    verdict: Verdict = "holds" if sure else "does not hold" if small else "undecided"
    said = section.number(row_estimate(best), verdict, estimate, f"beyond the control at layer {best['layer']}:")
    return said if said is None or not sure else section.Said(verdict, f"{said.numbers}; until layer {max(sure)}")


SECTION = section.SectionSpec(
    slug="mediation",
    title="Mediation: the key words' states exchanged",
    rows=lambda findings: statistics(findings, "mediation"),
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
            _drawn,
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
            (
                ("layer", _at_largest(lambda row: str(row["layer"]))),
                ("share", _at_largest(lambda row: estimate(row_estimate(row)))),
                ("pairs", _at_largest(lambda row: count(row["n"]))),
                (SAME, _there(variant=SAME, aspect="")),
                (OTHER, _there(variant=OTHER, aspect="")),
                (f"minus {SAME}", _there(aspect="difference", against=SAME)),
                (f"minus {OTHER}", _there(aspect="difference", against=OTHER)),
                (f"last layer above {SAME}", _last_layer),
            ),
            lambda rows: select(rows, measure=tuple(DIRECTIONS)),
        ),
    ),
)
