"""A ground on a tiny random model: real passes and random probes, for experiments that cut some layers only."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from anchorscope.evidence.experiments.ground import Ground
from anchorscope.interventions.controls import NONE
from anchorscope.interventions.knockout import KNOCKOUT
from experiments_synthetic import make_ground

from anchorscope.engine.batching import Budget
from anchorscope.engine.capture import clean_states
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.sequences import SITES, TokenSequence
from anchorscope.evidence.effects import measure, score_states
from anchorscope.interventions.intervention import ItemTokens
from anchorscope.models.language_model import LanguageModel
from anchorscope.probes.crossfit import ProbeSet
from anchorscope.probes.scoring import Scorer

N, N_FOLDS, N_PREFIX, HEADLINE = 140, 3, 5, (1, 2)


def tiny_tokens(gap: int = 0) -> list[ItemTokens]:
    """Items of different lengths, with some tokens more between question and answer if asked for."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(N):
        ids = (7, 8, 9, 10, 11, *rng.integers(0, 256, int(rng.integers(9, 14)) + gap).tolist())
        sequence = TokenSequence(ids, answer_start=len(ids) - 3, read_at=(len(ids) - 1, len(ids) - 2))
        found.append(ItemTokens(sequence, question_tokens=(6, 7, 8 + index % 3), prefix_length=N_PREFIX))
    return found


def tiny_ground(lm: LanguageModel, tokens: list[ItemTokens] | None = None, **settings: Any) -> Ground:
    """Random probes, labels that they get right in four of five cases, and the knockout in all layers."""
    tokens = tokens or tiny_tokens()
    base = make_ground(n=N, n_layers=2, n_folds=N_FOLDS, resamples=200)
    prefix, budget = compute_prefix(lm, tokens[0].sequence.ids[:N_PREFIX]), Budget(400)
    folds = base.splits.folds
    sets = [[_probes(lm, 10 * q + s) for s in range(len(SITES))] for q in range(2)]
    scorer = Scorer(sets, folds, lm.device)
    clean = score_states(scorer, clean_states(lm, [one.sequence for one in tokens], prefix, budget))
    effects = measure(lm, tokens, prefix, scorer, [KNOCKOUT, NONE], "all", HEADLINE, budget, 0)
    at = lambda logits: logits[:, HEADLINE[0], HEADLINE[1]].transpose(1, 2, 0)  # noqa: E731
    before, reference = at(clean), np.tile([lm.n_layers - 1, lm.n_layers - 1, lm.n_layers - 2], (3, 1))
    own = before[0, reference[0][folds], np.arange(N)]
    labels = np.where(np.random.default_rng(1).random(N) < 0.8, own > 0, own <= 0)
    place = replace(
        base.place,
        labels=labels,
        before=before,
        after={one.intervention: at(one.logits) for one in effects},
        ran={one.intervention: one.items for one in effects},
        n_cut={one.intervention: one.n_cut for one in effects},
        reference=reference,
    )
    return replace(
        base,
        model=lambda: lm,
        talk=SimpleNamespace(prefix=prefix),
        tokens=tokens,
        scorer=lambda: scorer,
        place=place,
        headline=HEADLINE,
        budget=budget,
        settings=replace(base.settings, **settings),
    )


def _probes(lm: LanguageModel, seed: int) -> ProbeSet:
    shape = (3, N_FOLDS, lm.n_layers)
    generator = torch.Generator().manual_seed(seed)
    weight = 0.3 * torch.randn(*shape, lm.d_model, generator=generator)
    return ProbeSet(weight, torch.zeros(shape), np.ones(shape), np.ones(shape), ())
