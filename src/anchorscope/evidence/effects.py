"""The clean pass: states of all items at every site and position, and how likely the model finds their answers.

Effects: an intervention's runs, scored on the fly by the out-of-fold probes.

States go from the model straight through the probes on the device; only log-odds are kept (and, where a refit asks for
them, states at some places), so memory does not grow with the number of experiments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.answers.generate import Answer
from anchorscope.catalogue import KNOCKOUT
from anchorscope.engine.capture import AttentionMass
from anchorscope.engine.sequences import SITES
from anchorscope.errors import InterventionNotApplied
from anchorscope.evidence.delta_p import Measured
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_states
from anchorscope.execute.worker import VariantPart
from anchorscope.interventions.intervention import Intervention, Setting
from anchorscope.items import Item
from anchorscope.plan.interventions import Missing, PlannedPass, PlannedRuns
from anchorscope.plan.passes import OutOfFoldProbes, Place, Planner
from anchorscope.probes.crossfit import ProbeSet, Scorer, Splits
from anchorscope.progress import Progress


class CleanRun(NamedTuple):
    """What one pass over the items as they are brings."""

    states: Float[Tensor, "position site layer item d_model"]
    """In host memory, in the model's precision."""
    log_probs: list[tuple[float, ...]]
    """Log-probability of every token of each item's answer, where some were not generated here; else empty."""
    attention: list[AttentionMass]
    """How much attention the tokens of every item receive: what a control matched in attention goes by."""
    question_only: Float[Tensor, "1 layer item d_model"]
    """States at one site of the last token that has not seen the answer."""


def run_clean(
    executor: Executor,
    planner: Planner,
    items: Sequence[Item],
    positions: Sequence[str],
    progress: Progress,
    compiled: bool,
    edges: str,
    site: int,
) -> CleanRun:
    """Runs the used items as they are.

    `edges` says which later tokens count in the attention that tokens receive; `site` is where the question is read.
    """
    located, supplied = (
        items[0].located,
        any(item.answer.log_probs is None for item in items),
    )
    # The last token before an answer is read here, and predicts the answer's first one: it must not be shared.
    first = min(
        located.prefix_length, *(item.located.answer_start - 1 for item in items)
    )
    sequences = [
        replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1))
        for sequence in (item.sequence(positions) for item in items)
    ]
    work = planner.states(
        "clean states", sequences, located.input_ids[:first], compiled=compiled
    )
    places = [
        (position, number)
        for position in range(len(positions))
        for number in range(len(SITES))
    ]
    keep = (*places, (len(positions), site))
    ran = run_states(
        executor,
        replace(work, keep=(keep,), log_probs=supplied, attention=edges),
        progress,
    )
    (clean,) = ran.variants
    assert clean.states is not None, "a pass that keeps states returns them"
    states = clean.states[: len(places)].unflatten(0, (len(positions), len(SITES)))
    log_probs = [ran.log_probs.get(index, ()) for index in range(len(items))]
    attention = [ran.attention[index] for index in range(len(items))]
    return CleanRun(states, log_probs, attention, clean.states[len(places) :])


def with_log_probs(
    answers: Sequence[Answer], log_probs: Sequence[tuple[float, ...]]
) -> list[Answer]:
    """Answers that were given elsewhere come without log-probabilities: those of the clean pass take their place."""
    return [
        replace(answer, log_probs=own) if answer.log_probs is None and own else answer
        for answer, own in zip(answers, log_probs, strict=True)
    ]


@dataclass(frozen=True)
class Effect:
    """Log-odds of "truthful" under one intervention."""

    intervention: str
    variant: str
    """The edges that were cut, or how the text was changed."""
    items: Int[ndarray, " run"]
    """Indices of the items that were run, in order."""
    n_cut: Int[ndarray, " run"]
    """Number of keys cut, or of tokens changed, in each."""
    logits: Float[ndarray, "run position site layer"]
    run: Int[ndarray, " run"] | None = None
    """Which run of its item each row is, where an item may be run several times; None where it is run once."""
    n_candidates: Int[ndarray, " run"] | None = None
    """How many tokens there were to draw the cut ones from; None where none are drawn."""
    attention_ratio: Float[ndarray, " run"] | None = None
    """The attention that the cut tokens receive in the clean run, over that of E_Q; None where it is not known."""


@dataclass(frozen=True)
class Measurements:
    """What was measured of an experiment's interventions, and what could not be."""

    effects: list[Effect]
    missing: list[Missing]


CutStates = Mapping[str, Tensor]
"""States under each intervention that keeps them, [place, layer, item, d_model], in host memory; each draw of a control
that is drawn several times has its own: `random`, `random 2` …"""


@dataclass(frozen=True)
class Scoring:
    """The probes of all positions and sites, and the fold of every item."""

    sets: tuple[tuple[ProbeSet, ...], ...]
    """[position][site]."""
    folds: NDArray[np.int64]

    def probes(
        self, items: Sequence[int] | None = None, only: Place | None = None
    ) -> OutOfFoldProbes:
        """The probes for sequences that stand for these items, or for every item in turn."""
        return OutOfFoldProbes(
            self.sets, self.folds if items is None else self.folds[list(items)], only
        )

    def scorer(self, device: str | torch.device) -> Scorer:
        """The same, ready to score states at hand."""
        return Scorer(self.sets, self.folds, torch.device(device))


def measure(
    executor: Executor,
    passes: Sequence[PlannedPass],
    scoring: Scoring,
    setting: Setting,
    keep: Callable[[Intervention], Sequence[Place]],
    progress: Progress,
    after_pass: Callable[[Sequence[Effect]], None] = lambda effects: None,
) -> tuple[list[Effect], CutStates]:
    """Runs planned interventions; of those that keep states, the places to `keep` them at are asked for.

    Of a control that is drawn several times all states are kept, and the log-odds of its first draw. What there is so
    far goes to `after_pass`.
    """
    effects: dict[str, Effect] = {}
    states: dict[str, Tensor] = {}
    for planned_pass in passes:
        planned = planned_pass.planned
        rewritten = (
            [run.item for run in planned[0].runs]
            if planned[0].intervention.rewrite
            else None
        )
        places = [
            tuple(keep(runs.intervention)) if runs.intervention.keeps_states else ()
            for runs in planned
        ]
        work = replace(
            planned_pass.work, probes=scoring.probes(rewritten), keep=tuple(places)
        )
        ran = run_states(executor, work, progress)
        for runs, part in zip(planned, ran.variants, strict=True):
            if runs.intervention.draw == 0:
                effects[runs.intervention.name] = _effect(runs, part, setting)
            if part.states is not None:
                states[runs.intervention.draw_name] = part.states
        after_pass(list(effects.values()))
    return list(effects.values()), states


def _effect(planned: PlannedRuns, part: VariantPart, setting: Setting) -> Effect:
    """An intervention's log-odds, in the order of its runs."""
    intervention = planned.intervention
    assert part.logits is not None, "a pass of interventions scores its states"
    items = np.array([run.item for run in planned.runs], dtype=np.int64)
    rewritten = intervention.rewrite is not None
    if not rewritten:
        assert np.array_equal(items, part.items), "every planned item is run once"
    return Effect(
        intervention=intervention.name,
        variant=intervention.variant or intervention.edges or setting.edges,
        items=items,
        n_cut=np.array([run.n_changed for run in planned.runs], dtype=np.int64),
        logits=part.logits,
        run=np.array([run.run for run in planned.runs], dtype=np.int64)
        if rewritten
        else None,
        n_candidates=_known([run.n_candidates for run in planned.runs], np.int64),
        attention_ratio=_known(
            [run.attention_ratio for run in planned.runs], np.float64
        ),
    )


def _known(
    values: Sequence[float | None], kind: type[np.number]
) -> NDArray[np.number] | None:
    """What is known of every run; None where it is not."""
    return None if not values or None in values else np.array(values, dtype=kind)


def refuse_no_ops(effects: Sequence[Effect], clean: NDArray[np.float32]) -> None:
    """Raises where a cut cannot have been made; cutting nothing, which is among the effects, tells what noise does.

    The knockout must do more than noise; a control may do as little as it likes, as long as something changes.
    """
    still = next((effect for effect in effects if not effect.n_cut.any()), None)
    for effect in effects:
        refuse_no_op(effect, clean)
        cut = effect.n_cut > 0
        if still is None or not cut.any() or effect.intervention != KNOCKOUT:
            continue
        moved = float(np.median(_largest_change(effect, clean)[cut]))
        noise = float(np.median(_largest_change(still, clean)))
        if moved <= noise:
            raise InterventionNotApplied(
                f"{effect.intervention}: scores change by {moved:.2g} where edges are lost and by {noise:.2g} where "
                f"none are, so that no cut can be told from noise"
            )


def _largest_change(effect: Effect, clean: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of each item, over all positions, sites and layers."""
    return (
        np.abs(effect.logits - clean[effect.items])
        .reshape(len(effect.items), -1)
        .max(axis=1)
    )


def refuse_no_op(effect: Effect, clean: NDArray[np.float32]) -> None:
    """Raises where an item lost attention edges and yet every one of its scores is the same to the last bit."""
    unchanged = effect.logits == clean[effect.items]
    same = unchanged.reshape(len(effect.items), -1).all(axis=1)
    silent = np.flatnonzero(same & (effect.n_cut > 0))
    if len(silent):
        raise InterventionNotApplied(
            f"{effect.intervention}: {len(silent)} items lost attention edges and not one of their scores changed"
        )
    flat = np.flatnonzero(unchanged.all(axis=(0, *range(2, unchanged.ndim))))
    if len(flat) and (effect.n_cut > 0).any():
        raise InterventionNotApplied(
            f"{effect.intervention}: no score changed at position {flat[0]} of those read"
        )


def measured_places(
    splits: Splits,
    groups: NDArray[np.int64],
    positions: Sequence[str],
    probe_sets: Mapping[str, ProbeSet],
    clean: NDArray[np.float32],
    effects: Sequence[Effect],
) -> dict[tuple[str, str], Measured]:
    """Log-odds per (site, position); `clean` is [item, position, site, layer]."""
    places = {}
    for q, position in enumerate(positions):
        for s, site in enumerate(SITES):
            places[site, position] = Measured(
                labels=splits.labels,
                groups=groups,
                folds=splits.folds,
                before=clean[:, q, s].T,
                after={
                    effect.intervention: effect.logits[:, q, s].T for effect in effects
                },
                ran={effect.intervention: effect.items for effect in effects},
                reference=probe_sets[f"{site}/{position}"].reference,
            )
    return places
