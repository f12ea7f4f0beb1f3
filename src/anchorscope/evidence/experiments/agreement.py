"""Agreement: do the methods call the same items Q-Anchored?

Every pair of methods is compared on the items that both ran and that the probe got right before: a table of how many
each calls, and Cohen's kappa, which is 0 where they agree no more than chance would. Two methods that only sort answers
by their label agree as well; within the true answers alone, and within the false ones, such agreement vanishes. Where
a method calls nearly all items alike, kappa would rest on a handful of them, and is not given. `auc` asks the same
without a threshold: does a method's own score order the items as the knockout calls them? That can also be asked of
rules that only the knockout can follow.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.areas import areas
from anchorscope.evidence.curves import TRUTHS
from anchorscope.evidence.draws import ratio, resampling, total
from anchorscope.evidence.experiments.compare import (
    FEW,
    METHOD,
    answers_of,
    estimate_of,
    in_groups_of,
    kappa_samples,
    known,
    of_truth,
    p_value,
    p_values,
    q_values,
)
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, Statistic
from anchorscope.evidence.experiments.method_calls import RULES, SALIENCY, MethodCalls, correct_before, method_calls
from anchorscope.evidence.pathways import A_ANCHORED, Q_ANCHORED

Bools = NDArray[np.bool_]

TABLE = ("n_both", "n_first_only", "n_second_only", "n_neither")
"""Numbers of items that two methods call Q-Anchored: both, the first only, the second only, none."""


def run(inputs: ExperimentInputs) -> Found:
    """All pairs of methods, under both rules."""
    methods = [one.method for one in method_calls(inputs, RULES[0])]
    if len(methods) < 2:
        return Found(
            missing=(
                f"agreement needs at least two methods, and only {', '.join(methods) or 'none'} was run; "
                f"add --evidence patching,answer-only,saliency",
            )
        )
    rows: list[Statistic] = []
    missing: list[str] = []
    inputs.progress.start("agreement", len(RULES))
    with resampling(inputs.draws.device):
        for rule in RULES:
            scene = _Scene(inputs, rule, method_calls(inputs, rule), correct_before(inputs.measured))
            others = [one for one in scene.calls if one.method != KNOCKOUT]
            for found, reasons in (_shares(scene), _pairs(scene), _orders(scene, others)):
                rows += found
                missing += reasons
            inputs.progress.advance(1)
        for rule in (name for name in inputs.calls if name not in RULES):  # only the knockout's states can be asked so
            scene = _Scene(inputs, rule, method_calls(inputs, RULES[0]), correct_before(inputs.measured))
            found, reasons = _orders(scene, scene.calls)
            rows += found
            missing += reasons
    inputs.progress.finish()
    return Found(tuple(rows), missing=_by_reason(missing))


def _by_reason(missing: Sequence[str]) -> tuple[str, ...]:
    """One line for all that is missing for the same reason: there are many pairs, and few reasons."""
    found: dict[str, list[str]] = {}
    for line in dict.fromkeys(missing):
        what, _, why = line.partition(": ")
        found.setdefault(why, []).append(what)
    return tuple(f"{', '.join(what)}: {why}" for why, what in found.items())


@dataclass(frozen=True)
class _Scene:
    """All methods' calls under one rule."""

    inputs: ExperimentInputs
    rule: str
    calls: Sequence[MethodCalls]
    correct: Bools

    def inside(self, truth: str, *methods: MethodCalls) -> Bools:
        """The items that these methods ran and that the probe got right: all, the true or the false answers."""
        found = self.correct.copy()
        for one in methods:
            found &= one.ran
        return found & of_truth(self.inputs.measured.labels, truth)

    def called(self, truth: str, *methods: MethodCalls) -> Tensor:
        """How many each of the methods calls Q-Anchored, then how many all of them do, then all items, [k, draw]."""
        draws = self.inputs.draws
        where = draws.put(np.flatnonzero(self.inside(truth, *methods)))
        counts = draws.counts[where]
        tables = [one.flipped[where] for one in methods]
        together = reduce(torch.logical_and, tables)
        return torch.stack([*(total(counts * table) for table in tables), total(counts * together), total(counts)])

    def split(self, *methods: MethodCalls) -> dict[str, Tensor]:
        """The same for all answers and split by truth."""
        parts = {truth: self.called(truth, *methods) for truth in ("true", "false")}
        return {"all": parts["true"] + parts["false"], **parts}

    def too_few(self, truth: str, *methods: MethodCalls) -> str | None:
        """Why nothing can be said, if so."""
        n = int(self.inside(truth, *methods).sum())
        if n >= FEW:
            return None
        names = " and ".join(one.method for one in methods)
        return f"{names}: only {n} {answers_of(truth)} were run and called right before, {FEW} needed"


def _method(*methods: MethodCalls) -> str:
    """How the numbers were made: a share that is matched says so."""
    matched = any(one.method == SALIENCY for one in methods)
    return f"{METHOD}, saliency's calls as many as the knockout's" if matched else METHOD


def _shares(scene: _Scene) -> tuple[list[Statistic], list[str]]:
    """How many items each method calls Q-Anchored, and how many of those answers are true."""
    rows, missing = [], []
    for one in scene.calls:
        numbers = scene.split(one)
        for truth in TRUTHS:
            reason = scene.too_few(truth, one)
            if reason:
                missing.append(reason)
                continue
            n, share = int(scene.inside(truth, one).sum()), ratio(numbers[truth][0], numbers[truth][-1])
            estimate = estimate_of(share, n, _method(one))
            rows.append(Statistic("q_share", estimate, one.method, assignment=scene.rule, truth=truth))
        n = int((scene.inside("all", one) & one.sample()).sum())
        if n < FEW:
            missing.append(f"{one.method}: only {n} items are {Q_ANCHORED} under the {scene.rule} rule, {FEW} needed")
            continue
        estimate = estimate_of(ratio(numbers["true"][0], numbers["all"][0]), n, _method(one))
        rows.append(Statistic("true_share", estimate, one.method, None, scene.rule, Q_ANCHORED, "all"))
    return rows, missing


def _pairs(scene: _Scene) -> tuple[list[Statistic], list[str]]:
    """Kappa, the table and the share that both call Q-Anchored, for every pair of methods."""
    rows: list[Statistic] = []
    missing: list[str] = []
    tested: dict[str, list[tuple[Statistic, float]]] = {truth: [] for truth in TRUTHS}
    for first, second in combinations(scene.calls, 2):
        numbers = scene.split(first, second)
        for truth in TRUTHS:
            reason = scene.too_few(truth, first, second)
            if reason:
                missing.append(reason)
                continue
            one, other, both, everyone = numbers[truth]
            table = torch.stack([both, one - both, other - both, everyone - one - other + both])
            n = int(scene.inside(truth, first, second).sum())
            found = {"both_q": ratio(both, everyone), **dict(zip(TABLE, table, strict=True))}
            rows += [_pair_row(scene, name, samples, first, second, truth, n) for name, samples in found.items()]
            agreement, rarest = kappa_samples(table)
            if rarest < FEW:
                missing.append(_too_rare(scene, first, second, truth, rarest))
                continue
            row = _pair_row(scene, "kappa", agreement, first, second, truth, n)
            tested[truth].append((row, float(p_values(agreement))))
    for pairs in tested.values():
        q = q_values([p for _, p in pairs])
        rows += [
            replace(row, p_value=known(p), q_value=known(controlled))
            for (row, p), controlled in zip(pairs, q.tolist(), strict=True)
        ]
    return rows, missing


def _pair_row(
    scene: _Scene, quantity: str, samples: Tensor, first: MethodCalls, second: MethodCalls, truth: str, n: int
) -> Statistic:
    estimate = estimate_of(samples, n, _method(first, second))
    return Statistic(quantity, estimate, first.method, second.method, assignment=scene.rule, truth=truth)


def _too_rare(scene: _Scene, first: MethodCalls, second: MethodCalls, truth: str, rarest: int) -> str:
    """The number stands with the pair, so that all pairs share one reason."""
    return (
        f"{first.method} and {second.method} ({rarest}): no kappa under the {scene.rule} rule, as one of the two calls "
        f"only so many {answers_of(truth)} (in brackets) {Q_ANCHORED}, or {A_ANCHORED}; {FEW} needed of each"
    )


def _orders(scene: _Scene, methods: Sequence[MethodCalls]) -> tuple[list[Statistic], list[str]]:
    """AUC of methods' scores for being called Q-Anchored by the knockout, within folds."""
    rows: list[Statistic] = []
    missing: list[str] = []
    place, called = scene.inputs.measured, scene.inputs.calls[scene.rule].flipped
    for one in methods:
        for truth in TRUTHS:
            inside = np.flatnonzero(scene.inside(truth, one) & np.isfinite(one.score))
            least = min(int(called[inside].sum()), int((~called[inside]).sum()))
            if least < FEW:
                missing.append(
                    f"auc of {one.method} under the {scene.rule} rule: of the {len(inside)} {answers_of(truth)} only "
                    f"{least} are in the smaller of the knockout's groups, {FEW} needed"
                )
                continue
            drawn = scene.inputs.draws.take(inside)
            samples = areas(one.score[None, inside], called[inside], place.folds[inside], drawn)[0]
            method = in_groups_of(scene.rule, f"{METHOD}, pairs within folds")
            rows.append(
                Statistic(
                    "auc",
                    estimate_of(samples, len(inside), method),
                    one.method,
                    KNOCKOUT,
                    assignment=scene.rule,
                    truth=truth,
                    p_value=p_value(samples, null=0.5),
                )
            )
    return rows, missing


EXPERIMENT = Experiment("agreement", "whether the methods call the same items Q-Anchored", run)
