"""The question share in a world: Λ with its interval, whether the held-out thirds differ, and calls of single items."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from anchorscope.question_share.clean_evidence import CleanEvidence, clean_evidence
from anchorscope.question_share.evidence import GROUPS, Lost, lost_evidence
from anchorscope.question_share.gate import SIGNIFICANT, beyond_zero, may_call
from anchorscope.question_share.intervals import ShareDraws
from anchorscope.question_share.posterior import ANSWER, QUESTION, calls, fit_line, held_out_mixture, item_shares
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
ITEM_POSTERIOR = "item posterior"
"""The rule: two groups where the mixture and the thirds agree, and then calls of single items."""
_CLEARLY = 1.96  # deviations by which thirds have to differ


@dataclass(frozen=True)
class ShareRules:
    """Both rules on the replicas of a world."""

    world: World
    truth: Truth
    made: Made
    setting: Setting
    evidence: CleanEvidence
    lost: Lost
    """What the cut took."""
    apart: Float[np.ndarray, " replica"]
    """Λ of the upper less that of the lower third, in deviations of its draws."""
    thirds_low: Float[np.ndarray, " replica"]
    """Lower end of the interval of that difference."""

    @classmethod
    def of(cls, world: World, truth: Truth, made: Made, setting: Setting) -> "ShareRules":
        """Measures all replicas together."""
        principal = _principal(made.clean, setting)
        evidence = clean_evidence(principal, setting.halves, setting.labels, setting.device)
        lost = _lost(evidence, made.cut, setting)
        draws = _draws(setting)
        apart = draws.shares(lost, GROUPS.index("upper third")) - draws.shares(lost, GROUPS.index("lower third"))
        thirds_low, _ = percentile_interval(apart[:, 1:], axis=-1)
        return cls(world, truth, made, setting, evidence, lost, apart[:, 0] / apart[:, 1:].std(axis=1), thirds_low)

    def share(self) -> list[Quantities]:
        """Λ and the thirds of every replica."""
        shares = _draws(self.setting).shares(self.lost, GROUPS.index("all"))
        low, high = percentile_interval(shares[:, 1:], axis=-1)
        return [
            self._aucs(replica, self.lost.predicted[replica])
            | {
                "share": float(shares[replica, 0]),
                "share_bias": float(shares[replica, 0]) - self.truth.whole_share,
                "covered": float(low[replica] <= self.truth.share <= high[replica]),
                "claims": float(self.apart[replica] > _CLEARLY),
                "sorted_items": float(len(self.setting.labels)),
            }
            for replica in range(len(shares))
        ]

    def items(self, looked_at: int, all_claims: bool) -> list[Quantities]:
        """Calls of single items in the first replicas; in all others at most whether there are any."""
        p_values = [beyond_zero(lost, self.setting.groups)[1] for lost in self.lost.lost]
        found: list[Quantities] = []
        for replica, p_value in enumerate(p_values):
            # The mixture takes long, and is left out where it cannot open the gate any more.
            is_open = p_value < SIGNIFICANT and self.thirds_low[replica] > 0
            if replica < looked_at or (all_claims and is_open):
                found.append(self._items(replica, p_value, replica < looked_at))
            else:
                found.append({"claims": 0.0} if all_claims else {})
        return found

    def _items(self, replica: int, p_value: float, looked_at: bool) -> Quantities:
        here = slice(replica, replica + 1)
        at_random = _lost(self.evidence.take(here), self.made.random[here], self.setting)
        z, explained = self.lost.clean[replica], self.lost.explained[replica]
        line = fit_line(z, at_random.explained[0])
        mixture = held_out_mixture(z, explained, self.lost.predicted[replica], self.setting.folds, line)
        thirds_low = float(self.thirds_low[replica])
        claims = may_call(p_value, thirds_low, float(mixture.gain.mean()))
        if not looked_at:
            return {"claims": float(claims)}
        had = self.lost.had[replica]
        found = item_shares(z, explained, line, had, float(self.lost.lost[replica].sum() / had.sum()))
        planted = self.world.log_odds_shares(self.made.planted.kind[replica])
        within = (found.low <= planted + 1e-9) & (planted - 1e-9 <= found.high)
        share = float(found.mean.mean())
        return (
            self._aucs(replica, mixture.probability)
            | self._wrong(replica, np.array(calls(mixture.probability, claims)))
            | {
                "share": share,
                "share_bias": share - self.truth.whole_share,
                "items_covered": float(within.mean()),
                "claims": float(claims),
                "sorted_items": float(len(z)),
            }
        )

    def _aucs(self, replica: int, score: Float[np.ndarray, " item"]) -> Quantities:
        if not self.world.has_kinds:
            return {}
        everyone = np.ones(len(score), dtype=bool)
        kind = self.made.planted.kind[replica]
        return auc_by_truth(score, kind, self.setting.labels, everyone, self.setting.folds)

    def _wrong(self, replica: int, called: np.ndarray) -> Quantities:
        """How many are called, and how many of those wrongly; nothing is wrong where nothing is called."""
        question, answer = called == QUESTION, called == ANSWER
        found = {"called_items": float((question | answer).mean())}
        if self.world.has_kinds:
            kind = self.made.planted.kind[replica] > 0.5
            for name, mine, wrong in (("wrong_question_calls", question, ~kind), ("wrong_answer_calls", answer, kind)):
                found[name] = float(wrong[mine].mean()) if mine.any() else np.nan
        return found


def _principal(states: Tensor, setting: Setting) -> Tensor:
    return principal_states(states, default_directions(*states.shape[1:]), setting.device)


def _lost(evidence: CleanEvidence, states: Tensor, setting: Setting) -> Lost:
    principal = _principal(states, setting)
    return lost_evidence(evidence, principal, setting.halves, setting.labels, setting.folds, setting.device)


def _draws(setting: Setting) -> ShareDraws:
    return ShareDraws(setting.weights, setting.halves.n_splits, stream(setting.seed, "worlds splits"))
