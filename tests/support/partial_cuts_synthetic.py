"""Inputs on a tiny random model: real passes and random probes, for experiments that cut some layers only."""

from dataclasses import replace
from typing import Any

import numpy as np

from anchorscope.engine.sequences import SITES
from anchorscope.evidence.effects import Scoring, measure, run_clean
from anchorscope.execute.executor import LocalExecutor
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.interventions.cuts import KNOCKOUT, NONE
from anchorscope.items import Item
from anchorscope.models.language_model import LanguageModel
from anchorscope.plan.interventions import passes_of, plan_cut
from anchorscope.probes.crossfit import score_states
from anchorscope.progress import Silent
from experiments_synthetic import make_inputs
from made_items import make_item, make_setting, planner_of, random_probes

N, N_FOLDS, N_PREFIX, HEADLINE = 140, 3, 5, (1, 2)
POSITIONS = ("final", "answer_end")


def tiny_items(gap: int = 0) -> list[Item]:
    """Items of different lengths, with some tokens more between question and answer if asked for."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(N):
        ids = (
            7,
            8,
            9,
            10,
            11,
            *rng.integers(0, 256, int(rng.integers(9, 14)) + gap).tolist(),
        )
        found.append(
            make_item(
                ids,
                len(ids) - 3,
                (5, 6, 7, 8 + index % 3),
                N_PREFIX,
                name=f"item-{index}",
            )
        )
    return found


def tiny_inputs(
    lm: LanguageModel, items: list[Item] | None = None, **setting: Any
) -> ExperimentInputs:
    """Random probes, labels that they get right in four of five cases, and the knockout in all layers."""
    items = items or tiny_items()
    base = make_inputs(n=N, n_layers=2, n_folds=N_FOLDS, resamples=200)
    executor, planner = LocalExecutor(lambda: lm), planner_of(lm, 400)
    folds = base.splits.folds
    sets = tuple(
        tuple(random_probes(lm, 10 * q + s, N_FOLDS) for s in range(len(SITES)))
        for q in range(2)
    )
    scoring = Scoring(sets, folds)
    found = run_clean(
        executor,
        planner,
        items,
        POSITIONS,
        Silent(),
        compiled=False,
        edges="all",
        site=0,
    )
    states = found.states
    plain = make_setting(POSITIONS)
    planned = [plan_cut(one, items, plain) for one in (KNOCKOUT, NONE)]
    passes = passes_of(planned, items, plain, planner)
    effects, _ = measure(
        executor, passes, scoring, plain, lambda one: [HEADLINE], Silent()
    )
    at = lambda logits: logits[:, HEADLINE[0], HEADLINE[1]].T  # noqa: E731
    before = at(score_states(scoring.scorer("cpu"), states))
    reference = np.array([lm.n_layers - 1, lm.n_layers - 1, lm.n_layers - 2])
    own = before[reference[folds], np.arange(N)]
    labels = np.where(np.random.default_rng(1).random(N) < 0.8, own > 0, own <= 0)
    measured = replace(
        base.measured,
        labels=labels,
        before=before,
        after={one.intervention: at(one.logits) for one in effects},
        ran={one.intervention: one.items for one in effects},
        reference=reference,
    )
    return replace(
        base,
        items=items,
        states=lambda: states[HEADLINE],
        scoring=scoring,
        measured=measured,
        headline=HEADLINE,
        setting=make_setting(POSITIONS, **setting),
        executor=executor,
        planner=planner,
    )
