"""The question share Λ by dose: how much of the evidence needs the tokens that a dose cuts.

At one layer, the reference layer of most folds, and over the items that every variant was run on, so that all shares
are of the same evidence. ΔP asks whether a fixed probe is thrown off; Λ asks whether a state under the cut still tells,
in whatever form, what the clean probe read.
"""

from collections.abc import Mapping
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from anchorscope.evidence.experiments.chosen_cuts import Scored
from anchorscope.evidence.experiments.compare import estimate_of
from anchorscope.evidence.experiments.experiment import ExperimentInputs, Statistic
from anchorscope.probes.folds import truth_strata
from anchorscope.question_share.clean_evidence import clean_evidence
from anchorscope.question_share.evidence import GROUPS, lost_evidence
from anchorscope.question_share.halves import make_halves
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.principal import default_directions, principal_states
from anchorscope.stats.streams import stream

FEWEST = 300
"""Items below which no share is told. With 118 items of the atlas cutting random tokens seemed to take 0.67 of the
evidence: of so few, a state that changed at all explains little of what it still holds."""
NOTHING = "nothing cut"
"""The floor: what estimation alone loses."""


def dose_shares(inputs: ExperimentInputs, ran: Mapping[str, Scored], layer: int) -> tuple[list[Statistic], list[str]]:
    """Λ of every variant, and of nothing cut; or why it cannot be told."""
    items = reduce(np.intersect1d, [scored.items for scored in ran.values()])
    if len(items) < FEWEST:
        return [], [f"question_share: {len(items)} items can be run at every dose, {FEWEST} needed"]
    labels, used = inputs.measured.labels[items], [inputs.used_items[item] for item in items.tolist()]
    strata = truth_strata(labels, [item.question.relation for item in used])
    groups, ids = inputs.measured.groups[items], [item.item_id for item in used]
    halves = make_halves(groups, strata, inputs.setting.seed, ids)
    states = {NOTHING: inputs.states()[layer][items], **{name: _states(one, items) for name, one in ran.items()}}
    directions = default_directions(len(items), states[NOTHING].shape[-1])
    principal = {name: principal_states(one[None], directions, inputs.device) for name, one in states.items()}
    evidence = clean_evidence(principal[NOTHING], halves, labels, inputs.device, inputs.progress, "dose: probes")
    rng = stream(inputs.setting.seed, "dose shares", inputs.dataset)
    draws = ShareDraws(inputs.weights[:, items], halves.n_splits, rng)
    method, rows = f"half splits, {directions} principal directions, bootstrap over groups", []
    for name, one in principal.items():
        lost = lost_evidence(
            evidence, one, halves, labels, inputs.splits.folds[items], inputs.device, inputs.progress, f"dose: {name}"
        )
        if not draws.has_evidence(lost.had)[0]:
            return [], [f"question_share: no evidence of truth at layer {layer} in {len(items)} items"]
        samples = torch.from_numpy(draws.shares(lost, GROUPS.index("all"))[0])
        estimate = estimate_of(samples, len(items), method)
        rows.append(Statistic("question_share", estimate, name, truth="all", probe_layer=layer))
    return rows, []


def _states(scored: Scored, items: np.ndarray) -> Tensor:
    """The states of some of the items that were run, [item, d_model]."""
    assert scored.states is not None, "shares are of states, and none were kept"
    return scored.states[np.searchsorted(scored.items, items)]
