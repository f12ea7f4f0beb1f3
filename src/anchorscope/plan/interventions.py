"""The passes of interventions: every item's change drawn, what runs together decided.

The knockout runs before its controls: a first chart needs nothing else. Other cuts of one experiment run together, so
that what no cut has changed is computed once; those that cut the shared prefix run without it; zeroing runs alone, as
it is slower. The no-op control runs alone, with other neighbours. Rewritten texts are new passes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import Cut, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.interventions.intervention import Intervention, ItemRun, Setting
from anchorscope.items import Item
from anchorscope.plan.passes import Planner, StatesPass, shared_tokens
from anchorscope.stats.streams import drawn, priorities, stream


class Missing(NamedTuple):
    experiment: str
    reason: str


@dataclass(frozen=True)
class PlannedRuns:
    intervention: Intervention
    runs: tuple[ItemRun, ...]
    order: tuple[int, ...] | None = None
    """Which of equally long items run first; None for their own order."""
    too_long: int = 0
    """Rewritten texts that don't fit the model's context: they aren't run."""


@dataclass(frozen=True)
class PlannedPass:
    work: StatesPass
    planned: tuple[PlannedRuns, ...]


def some_items(items: Sequence[Item], setting: Setting) -> NDArray[np.int64]:
    """The items of what takes many passes: all, or at most that many drawn at random, in order; the same everywhere."""
    if setting.most_items is None or len(items) <= setting.most_items:
        return np.arange(len(items))
    return _draw_items(items, setting, "many passes", setting.most_items)


def _draw_items(
    items: Sequence[Item], setting: Setting, purpose: str, number: int
) -> NDArray[np.int64]:
    return drawn(
        priorities(setting.seed, purpose, [item.item_id for item in items]), number
    )


def plan_cut(
    intervention: Intervention,
    items: Sequence[Item],
    setting: Setting,
    masses: Mapping[str, AttentionMass] | None = None,
) -> PlannedRuns:
    """The cuts of all items that an intervention runs, each drawn from the item's own random numbers."""
    if masses is None:
        masses = setting.masses() if intervention.by_attention else {}
    some = (
        some_items(items, setting)
        if intervention.many_passes
        else np.arange(len(items))
    )
    if intervention.max_items is not None:
        among = [items[index] for index in some]
        some = some[
            _draw_items(
                among, setting, f"{intervention.name} items", intervention.max_items
            )
        ]
    runs = []
    for index in some.tolist():
        item = items[index]
        if intervention.applies(item):
            rng, mass = (
                stream(setting.seed, intervention.draw_name, item.item_id),
                masses.get(item.item_id),
            )
            cut = intervention.cut(item, setting.edges, rng, mass)
            drawn_from = (
                None
                if intervention.candidates is None
                else len(intervention.candidates(item))
            )
            wanted = 0.0 if mass is None else mass.of(item.located.question_tokens)
            ratio = (
                mass.of(cut.keys) / wanted if mass is not None and wanted > 0 else None
            )
            runs.append(
                ItemRun(
                    index,
                    item.sequence(setting.positions),
                    cut,
                    0,
                    len(cut.keys),
                    drawn_from,
                    ratio,
                )
            )
    if intervention.changes:
        return PlannedRuns(intervention, tuple(runs))
    order = np.argsort(
        priorities(
            setting.seed, f"{intervention.name} order", [item.item_id for item in items]
        )
    )
    return PlannedRuns(intervention, tuple(runs), tuple(order.tolist()))


def plan_rewrite(
    intervention: Intervention, items: Sequence[Item], setting: Setting
) -> PlannedRuns:
    assert intervention.rewrite is not None, f"{intervention.name} has no rewrite"
    some = some_items(items, setting)
    if intervention.max_items is not None:
        among = [items[index] for index in some]
        some = some[
            _draw_items(
                among, setting, f"{intervention.name} items", intervention.max_items
            )
        ]
    written = intervention.rewrite(items, some.tolist(), setting)
    runs = [
        run
        for run in written
        if setting.context is None or len(run.sequence.ids) <= setting.context
    ]
    if not intervention.changes:
        other = sum(
            run.sequence.ids != items[run.item].located.input_ids for run in runs
        )
        if other:
            raise InterventionNotApplied(
                f"{intervention.name}: {other} texts are not what they were, and must be"
            )
    in_order = tuple(sorted(runs, key=lambda run: (run.item, run.run)))
    return PlannedRuns(intervention, in_order, too_long=len(written) - len(runs))


def plan_experiment(
    interventions: Sequence[Intervention],
    items: Sequence[Item],
    setting: Setting,
    windows: Sequence[int | None],
    needed: int,
) -> tuple[list[PlannedRuns], list[Missing]]:
    """All runs of one experiment's interventions, at least `needed` items each, and why others cannot be run."""
    planned, missing = [], []
    masses = (
        setting.masses()
        if any(intervention.by_attention for intervention in interventions)
        else {}
    )
    for intervention in interventions:
        reason = _explain_unavailable(intervention, items, setting, windows, needed)
        if reason is not None:
            missing.append(Missing(intervention.entry.experiment, reason))
            continue
        if intervention.rewrite is None:
            planned.append(plan_cut(intervention, items, setting, masses))
            continue
        runs = plan_rewrite(intervention, items, setting)
        problem, enough = _count_runs(intervention, runs, items, setting, needed)
        if problem is not None:
            missing.append(Missing(intervention.entry.experiment, problem))
        if enough:
            planned.append(runs)
    return planned, missing


def _count_runs(
    intervention: Intervention,
    planned: PlannedRuns,
    items: Sequence[Item],
    setting: Setting,
    needed: int,
) -> tuple[str | None, bool]:
    """What to report of the items that can't be rewritten, and whether enough can."""
    wanted, n = len(some_items(items, setting)), len({run.item for run in planned.runs})
    least = min(needed, math.ceil(0.8 * wanted))
    about, why = (
        f"{intervention.name} ({intervention.entry.label})",
        intervention.why_few,
    )
    if planned.too_long:
        why = f"{planned.too_long} texts do not fit the model's context of {setting.context:,} tokens"
    if n < least:
        return f"{about}: {n} items can be run, {least} needed; {why}", False
    if n < wanted and intervention.max_items is None:
        return f"{about}: {wanted - n} of {wanted} items cannot be run; {why}", True
    return None, True


def _explain_unavailable(
    intervention: Intervention,
    items: Sequence[Item],
    setting: Setting,
    windows: Sequence[int | None],
    needed: int,
) -> str | None:
    """Why an intervention cannot be run on these items; None if it can."""
    if intervention.edges == "direct" and setting.edges == "direct":
        return (
            "the knockout itself cuts direct edges only; run with --edges all for both"
        )
    if intervention.edges == "direct" and "answer_before" in setting.positions:
        return "a position before the answer's tokens is read, and direct edges lead to those only"
    about = f"{intervention.name} ({intervention.entry.label})"
    if intervention.edges == "direct" and _is_hidden(items, setting, windows):
        return f"{about}: a layer's sliding window already hides the exact tokens from the answer of some items"
    if intervention.rewrite is None and (
        intervention.part is not None or intervention.whole
    ):
        n = sum(intervention.applies(item) for item in items)
        if n < needed:
            why = (
                "have template tokens that could be cut"
                if intervention.whole
                else "say such words"
            )
            return f"{about}: {n} of {len(items)} questions {why}, {needed} needed"
    return None


def _is_hidden(
    items: Sequence[Item], setting: Setting, windows: Sequence[int | None]
) -> bool:
    """Whether direct edges don't exist: from no item in some layer, or from some item in no layer."""
    if set(windows) == {None}:
        return False
    reached = [
        [
            Cut(item.located.question_tokens, "direct").takes_edges(
                item.sequence(setting.positions), window
            )
            for item in items
        ]
        for window in set(windows)
    ]
    return not all(map(any, reached)) or not all(map(any, zip(*reached, strict=True)))


def passes_of(
    planned: Sequence[PlannedRuns],
    items: Sequence[Item],
    setting: Setting,
    planner: Planner,
    compiled: bool = False,
) -> list[PlannedPass]:
    together: dict[tuple[object, ...], list[PlannedRuns]] = {}
    for runs in planned:
        kind = runs.intervention
        is_alone = kind.rewrite is not None or not kind.changes or kind.name == KNOCKOUT
        alone = kind.name if is_alone else None
        together.setdefault((kind.whole, kind.how, alone), []).append(runs)
    passes = []
    for some in together.values():
        kind = some[0].intervention
        title = ", ".join(dict.fromkeys(runs.intervention.name for runs in some))
        prefix = items[0].located.input_ids[: items[0].located.prefix_length]
        if kind.rewrite is not None:
            sequences = [run.sequence for run in some[0].runs]
            work = planner.states(title, sequences, shared_tokens(sequences))
        else:
            variants = [
                Variant({run.item: run.cut for run in runs.runs}) for runs in some
            ]
            sequences = [item.sequence(setting.positions) for item in items]
            own = prefix[:1] if kind.whole else prefix
            work = planner.states(
                title, sequences, own, variants, some[0].order, compiled
            )
        passes.append(PlannedPass(work, tuple(some)))
    return passes
