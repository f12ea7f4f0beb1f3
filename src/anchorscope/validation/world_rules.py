"""The rules in a world, by the code that a run uses, and what is measured of each in one replica.

Sorting rules sort items by their flips; the question share gives Λ with its interval, whether the held-out thirds
differ, and calls of single items. Replicas are solved together, as the layers of a model are. All replicas of a world
share labels, folds, halves and the bootstrap's draws, and every item is a group.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.delta_p import cell_sums, correct_shift, knockout_samples
from anchorscope.evidence.draws import Draws, resampling
from anchorscope.evidence.measured import ASSIGNMENTS, Calls, Measured, plain_calls
from anchorscope.evidence.measured import GROUPS as PATHWAYS
from anchorscope.probes.crossfit import Scorer, Splits, fit_probes, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.question_share.evidence import GROUPS, CleanEvidence, Lost, clean_evidence, lost_evidence, make_halves
from anchorscope.question_share.posterior import (
    ANSWER,
    QUESTION,
    SIGNIFICANT,
    beyond_zero,
    calls,
    fit_line,
    held_out_mixture,
    item_shares,
    may_call,
)
from anchorscope.question_share.principal import default_directions, principal_states
from anchorscope.question_share.shares import ShareDraws
from anchorscope.stats.auc import auc
from anchorscope.stats.estimate import group_weights, percentile_interval
from anchorscope.stats.streams import stream, unnamed
from anchorscope.validation.worlds import Made, Truth, World

Quantities = dict[str, float]
"""Named numbers of a rule in one replica, without those that make no sense there.

`auc_true`, `auc_false`: how often a question item scores above an answer item of the same fold and truth. `share`:
Q-Anchored items among those sorted, or the share of the evidence; `share_bias`: less the planted one; `covered`:
whether its interval holds the true one. `claims`: whether two groups are claimed. `items_covered`: items whose own
interval holds their share. `called_items`, `wrong_question_calls`, `wrong_answer_calls`: shares of items called, and of
wrong ones among them. `sorted_items`: how many items the rule speaks of.
"""


def auc_by_truth(
    score: Float[np.ndarray, " item"],
    kind: Float[np.ndarray, " item"],
    labels: Bool[np.ndarray, " item"],
    sorted_items: Bool[np.ndarray, " item"],
    folds: Int[np.ndarray, " item"],
) -> Quantities:
    """AUC for the kind within true and within false answers; pairs of one fold, as each has probes of its own."""
    found = {}
    for name, truth in (("auc_true", True), ("auc_false", False)):
        inside = sorted_items & (labels == truth)
        found[name] = float(auc(score[inside], kind[inside] > 0.5, folds[inside]))
    return found


N_FOLDS = 5
RESAMPLES = 1000
"""Behind the intervals of shares within a replica."""


class Setting:
    """Who learns from whom in all replicas of a world."""

    def __init__(self, made: Made, seed: int, device: str | torch.device) -> None:
        self.labels, self.seed, self.device = made.planted.labels, seed, torch.device(device)
        self.groups = np.arange(len(self.labels))
        self._ids, self._relations = ([str(value) for value in part] for part in (self.groups, made.planted.relations))
        strata, order = truth_strata(self.labels, self._relations), unnamed(seed, "worlds folds", len(self.labels))
        self.folds = grouped_folds(self.groups, strata, N_FOLDS, order)
        self.halves = make_halves(self.groups, strata, seed, self._ids)
        self.weights = group_weights(self.groups, RESAMPLES, stream(seed, "worlds bootstrap"))

    def splits(self) -> Splits:
        """Of the probes behind the sorting rules."""
        ids, relations = self._ids, self._relations
        return make_splits(self.labels, self.groups, self.folds, self.seed, item_ids=ids, relations=relations)

    def draws(self) -> ShareDraws:
        """Of the question share."""
        return ShareDraws(self.weights, self.halves.n_splits, stream(self.seed, "worlds splits"))


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
        draws = setting.draws()
        apart = draws.shares(lost, GROUPS.index("upper third")) - draws.shares(lost, GROUPS.index("lower third"))
        thirds_low, _ = percentile_interval(apart[:, 1:], axis=-1)
        return cls(world, truth, made, setting, evidence, lost, apart[:, 0] / apart[:, 1:].std(axis=1), thirds_low)

    def share(self) -> list[Quantities]:
        """Λ and the thirds of every replica."""
        shares = self.setting.draws().shares(self.lost, GROUPS.index("all"))
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


_RESAMPLES = 200  # enough to tell on which side of zero an interval lies


def sorting_rules(world: World, made: Made, setting: Setting) -> dict[str, list[Quantities]]:
    """What each rule says of every replica."""
    found: dict[str, list[Quantities]] = {rule: [] for rule in ASSIGNMENTS}
    draws = Draws.of(setting.weights[:_RESAMPLES])
    with resampling(draws.device):
        for replica, measured in enumerate(_measured(made, setting)):
            kind = made.planted.kind[replica]
            for rule, quantities in _rate(world, measured, kind, draws).items():
                found[rule].append(quantities)
    return found


def _measured(made: Made, setting: Setting) -> Iterator[Measured]:
    """Log-odds of each replica's items, before and after the cut."""
    splits, device = setting.splits(), setting.device
    (probes,) = fit_probes(made.clean[None], splits, ["world"], device)
    scorer = Scorer([[probes]], splits.folds, device)
    everyone = range(len(splits.labels))
    before, after = (
        scorer.score(everyone, states.to(device).transpose(0, 1)[:, None, None])[:, 0, 0].cpu().numpy()
        for states in (made.clean, made.cut)
    )  # [item, probe, replica]
    everyone_ran = np.arange(len(splits.labels))
    for replica in range(len(made.clean)):
        yield Measured(
            labels=splits.labels,
            groups=setting.groups,
            folds=splits.folds,
            probes=splits.probes,
            before=before[:, :, replica].T[:, None],
            after={KNOCKOUT: after[:, :, replica].T[:, None]},
            ran={KNOCKOUT: everyone_ran},
            n_cut={KNOCKOUT: np.ones_like(everyone_ran)},
            reference=np.zeros((len(splits.probes), int(splits.folds.max()) + 1), dtype=np.int64),
        )


def _rate(world: World, measured: Measured, kind: Float[np.ndarray, " item"], draws: Draws) -> dict[str, Quantities]:
    corrected = correct_shift(measured, draws)
    curves = knockout_samples(corrected, cell_sums(corrected, KNOCKOUT), draws)
    found = {}
    for rule in ASSIGNMENTS:
        apart = (curves[rule, PATHWAYS[0]] - curves[rule, PATHWAYS[1]])[0]
        _, high = percentile_interval(apart[1:])
        calls = {
            "plain": lambda: [(plain_calls(measured), "full")],
            "cross-fitted": lambda: [(plain_calls(measured, probe), probe) for probe in ("a", "b")],
            "corrected": lambda: [(corrected.sample(), "full")],
        }[rule]()
        shift = corrected.knockout[0, :, 0].cpu().numpy()[measured.folds] if rule == "corrected" else 0.0
        ways = [_way(world, measured, kind, one, probe, shift) for one, probe in calls]
        both = {name: float(np.mean([way[name] for way in ways])) for name in ways[0]}
        found[rule] = both | {"claims": float(high < 0)}
    return found


def _way(
    world: World,
    measured: Measured,
    kind: Float[np.ndarray, " item"],
    calls: Calls,
    probe: str,
    shift: Float[np.ndarray, " item"] | float,
) -> Quantities:
    """One probe's calls: only items that it calls right are sorted, by how far they went to the other side."""
    index = measured.probe(probe)
    right: Bool[np.ndarray, " item"] = calls.correct
    before, after = measured.before[index, 0], measured.after[KNOCKOUT][index, 0]
    score = np.where(before > 0, shift - after, after - shift).astype(np.float64)
    share = float(calls.members(PATHWAYS[0])[right].mean())
    planted = float(world.shares(kind)[right].mean())
    aucs = auc_by_truth(score, kind, measured.labels, right, measured.folds) if world.has_kinds else {}
    return aucs | {"share_bias": share - planted, "share": share, "sorted_items": float(right.sum())}
