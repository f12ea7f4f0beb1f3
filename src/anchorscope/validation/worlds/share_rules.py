"""The question share in a world: Λ with its interval, and whether the held-out thirds differ."""

import numpy as np
from jaxtyping import Float

from anchorscope.question_share.clean_evidence import clean_evidence
from anchorscope.question_share.evidence import GROUPS, Lost, lost_evidence
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.principal import default_directions, principal_states
from anchorscope.stats.estimate import percentile_interval
from anchorscope.stats.streams import stream
from anchorscope.validation.worlds.quantities import Quantities, auc_by_truth
from anchorscope.validation.worlds.setting import Setting
from anchorscope.validation.worlds.states import Made
from anchorscope.validation.worlds.truth import Truth
from anchorscope.validation.worlds.world import World

QUESTION_SHARE = "question share"
"""The rule: Λ of all items; thirds by predicted share that differ claim that items do."""


def lost_in_world(made: Made, setting: Setting) -> Lost:
    """What the cut takes, in every replica."""
    n_items, width = made.clean.shape[1:]
    directions = default_directions(n_items, width)
    clean, cut = (principal_states(states, directions, setting.device) for states in (made.clean, made.cut))
    evidence = clean_evidence(clean, setting.halves, setting.labels, setting.device)
    return lost_evidence(evidence, cut, setting.halves, setting.labels, setting.folds, setting.device)


def question_share_rule(
    world: World, truth: Truth, made: Made, setting: Setting, lost: Lost
) -> list[Quantities]:
    """Λ and the thirds of every replica."""
    draws = ShareDraws(setting.weights, setting.halves.n_splits, stream(setting.seed, "worlds splits"))
    everyone = draws.shares(lost, GROUPS.index("all"))
    low, high = percentile_interval(everyone[:, 1:], axis=-1)
    apart = draws.shares(lost, GROUPS.index("upper third")) - draws.shares(lost, GROUPS.index("lower third"))
    least, _ = percentile_interval(apart[:, 1:], axis=-1)
    sorted_items = np.ones(len(setting.labels), dtype=bool)
    found = []
    for replica, kind in enumerate(made.planted.kind):
        score: Float[np.ndarray, " item"] = lost.predicted[replica]
        aucs = auc_by_truth(score, kind, setting.labels, sorted_items, setting.folds) if world.has_kinds else {}
        share = float(everyone[replica, 0])
        found.append(aucs | {
            "share": share, "share_bias": share - truth.whole_share, "claims": float(least[replica] > 0),
            "covered": float(low[replica] <= truth.share <= high[replica]), "n": float(len(kind)),
        })  # fmt: skip
    return found
