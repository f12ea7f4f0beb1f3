"""All interventions of a dataset, measured; and, for each that cannot be, the reason why."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from anchorscope.engine.batching import Budget
from anchorscope.engine.keys_values import Prefix
from anchorscope.engine.sequences import Cut
from anchorscope.evidence.effects import Effect, measure
from anchorscope.evidence.rewritten import measure_rewritten, rewrite
from anchorscope.evidence.subset import some_items
from anchorscope.interventions.intervention import Intervention, ItemTokens
from anchorscope.interventions.registry import chosen, chosen_rewritings
from anchorscope.interventions.rewriting import Spoken, Writer
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.scoring import Scorer
from anchorscope.progress import Progress


class Missing(NamedTuple):
    """Something that was asked for and cannot be done."""

    experiment: str
    reason: str


@dataclass(frozen=True)
class Measurements:
    """What was measured, and what could not be."""

    effects: list[Effect]
    missing: list[Missing]


@dataclass(frozen=True)
class Plan:
    """How interventions are run."""

    evidence: tuple[str, ...]
    """The experiments asked for."""
    edges: str
    headline: tuple[int, int]
    """(position, site) of the states to keep."""
    needed: int
    """Items without which an intervention is not worth a row."""
    most_items: int | None
    seed: int
    before_answer: bool = False
    """Whether a position before the answer is read."""


def measure_all(
    lm: LanguageModel, items: Sequence[Spoken], writer: Writer, prefix: Prefix, scorer: Scorer, plan: Plan,
    budget: Budget, progress: Progress, compiled: bool = False,
) -> Measurements:  # fmt: skip
    """Cuts together, then each rewriting."""
    tokens = [item.tokens for item in items]
    cuts, missing = available(chosen(plan.evidence, plan.edges), tokens, plan.needed)
    if "edges" in plan.evidence and plan.edges == "direct":
        missing.append(Missing("edges", "the knockout itself cuts direct edges only; run with --edges all for both"))
    if plan.before_answer and any(one.edges == "direct" for one in cuts):
        cuts = [one for one in cuts if one.edges != "direct"]
        reason = "a position before the answer's tokens is read, and direct edges lead to those only"
        missing.append(Missing("edges", reason))
    for one in [one for one in cuts if one.edges == "direct" and _is_hidden(lm, tokens)]:
        cuts.remove(one)
        reason = "a layer's sliding window already hides the exact tokens from the answer of some items"
        missing.append(Missing(one.evidence, f"{one.name} ({one.about}): {reason}"))
    effects = measure(
        lm, tokens, prefix, scorer, cuts, plan.edges, plan.headline, budget, plan.seed, progress,
        compiled, plan.most_items,
    )  # fmt: skip
    for rewriting in chosen_rewritings(plan.evidence):
        runs = rewrite(rewriting, items, writer, plan.seed, plan.most_items)
        wanted, n = some_items(len(items), plan.most_items, plan.seed), len({one.item for one in runs})
        needed = min(plan.needed, math.ceil(0.8 * len(wanted)))
        about = f"{rewriting.name} ({rewriting.about})"
        if n < needed:
            told = f"{n} items can be run, {needed} needed; {rewriting.needs}"
            missing.append(Missing(rewriting.evidence, f"{about}: {told}"))
            continue
        if n < len(wanted) and rewriting.max_items is None:
            told = f"{len(wanted) - n} of {len(wanted)} items cannot be run; {rewriting.needs}"
            missing.append(Missing(rewriting.evidence, f"{about}: {told}"))
        effects.append(measure_rewritten(lm, rewriting, runs, prefix, scorer, budget, progress))
    return Measurements(effects, missing)


def _is_hidden(lm: LanguageModel, items: Sequence[ItemTokens]) -> bool:
    """Whether direct edges are not there to be cut: from no item in some layer, or from some item in no layer."""
    windows = {lm.sliding_window(layer) for layer in range(lm.n_layers)}
    if windows == {None}:
        return False
    cuts = [Cut(item.question_tokens, "direct") for item in items]
    reached = [
        [cut.takes_edges(item.sequence, window) for cut, item in zip(cuts, items, strict=True)] for window in windows
    ]
    return not all(map(any, reached)) or not all(map(any, zip(*reached, strict=True)))


def available(
    wanted: Sequence[Intervention], items: Sequence[ItemTokens], needed: int
) -> tuple[list[Intervention], list[Missing]]:
    """Those cuts that enough items can be run with, and the reason for each of the others."""
    kept, missing = [], []
    for one in wanted:
        n = sum(one.applies(item) for item in items)
        if n >= needed or (one.needs is None and not one.whole):
            kept.append(one)
            continue
        why = "have template tokens that could be cut" if one.whole else "say such words"
        told = f"{one.name} ({one.about}): {n} of {len(items)} questions {why}, {needed} needed"
        missing.append(Missing(one.evidence, told))
    return kept, missing
