"""ΔP curves: how much probability an item's true label loses at every layer, on average over a pathway's items.

One curve per intervention, assignment, group and truth label, with a bootstrap interval over groups, conditional on the
fitted probes. The `corrected` assignment removes the shift that a cut gives to all items: one number s per fold and
layer, for which the share of items with log-odds − s > 0 after the cut equals the share with log-odds > 0 before it.
Every draw estimates its own shifts, for membership (reference layer, knockout) and for ΔP (every layer and
intervention); so an item near the line changes its group from draw to draw.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anchorscope.catalogue import KNOCKOUT
from anchorscope.evidence.draws import (
    Draws,
    estimates,
    number_until,
    ratio,
    row_chunks,
    total,
)
from anchorscope.evidence.measured import (
    GROUPS,
    Calls,
    Measured,
    delta_p,
    noise_at_reference,
    plain_calls,
)

Floats = NDArray[np.floating]

_FEW = 16  # items looked at for the first that is drawn
_SPREAD, _MARGIN = (
    6,
    8,
)  # standard deviations, and some places more, in which a draw's last true call is looked for


def shifts(
    before: Floats,
    after: Floats,
    folds: NDArray[np.integer],
    n_folds: int,
    draws: Draws,
) -> Tensor:
    """s of every layer and fold in every draw, [layer, fold, draw], from log-odds [layer, item]."""
    by_fold = torch.full(
        (len(after), n_folds, draws.counts.shape[1]),
        math.nan,
        device=draws.device,
        dtype=draws.to_device(after[:0]).dtype,
    )
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        clean, cut = (
            draws.to_device(log_odds[:, inside]) for log_odds in (before, after)
        )
        by_fold[:, fold] = matching_shift(clean, cut, draws.take(inside))
    return by_fold


def matching_shift(before: Tensor, after: Tensor, draws: Draws) -> Tensor:
    """s of one fold in every draw, [layer, draw], from log-odds [layer, item].

    Between the last item called true and the first called false any s would do. It is placed where zero lies between
    the two items around it before the cut: so a cut that changes nothing is not corrected at all, and one that moves
    every item alike is undone exactly.
    """
    positive = before > 0
    high, low = (
        -_first_drawn(-before, positive, draws),
        _first_drawn(before, ~positive, draws),
    )
    new_high, new_low = _around(after, positive, draws)
    share = torch.where(high > low, high / (high - low), 1.0)
    between = new_high - share * (new_high - new_low)
    # Where all items are called alike, the outermost one keeps its distance from zero.
    shift = torch.where(
        high.isinf(), new_low - low, torch.where(low.isinf(), new_high - high, between)
    )
    return shift.to(after.dtype)


def _first_drawn(scores: Tensor, inside: Tensor, draws: Draws) -> Tensor:
    """The largest score inside, [layer, draw], among the items that are drawn; −∞ where there is none."""
    ranked, order = torch.where(inside, scores, -math.inf).sort(dim=1, descending=True)
    # A draw leaves out a third of the items: one of the first few is nearly always there.
    limit = draws.counts.new_ones((1, len(scores), draws.counts.shape[1]))
    (places,) = number_until(draws.counts, order[:, :_FEW], limit)
    if bool((places == _FEW).any()):
        (places,) = number_until(draws.counts, order, limit)
    return _padded(ranked).gather(1, places)


def _around(scores: Tensor, positive: Tensor, draws: Draws) -> tuple[Tensor, Tensor]:
    """Score of the last item that is called true and of the first called false, if as many are true as are positive.

    [layer, draw] each. That many of the highest scores are true; draws differ little in how many places these take.
    """
    ranked, order = scores.sort(dim=1, descending=True, stable=True)
    counts = draws.counts
    called_true = positive.to(counts.dtype) @ counts  # how many in each draw
    n, middle = len(counts), positive.sum(dim=1, keepdim=True)
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(n, device=order.device).expand_as(order)
    )
    other = (
        (positive != (rank < middle)).sum(dim=1).max()
    )  # each of these moves the place by its weight − 1
    width = min(n, 2 * math.ceil(_SPREAD * math.sqrt(int(other)) + _MARGIN))
    while True:
        first = (middle - width // 2).clamp(0, n - width)
        base = (rank < first).to(counts.dtype) @ counts
        window = order.gather(1, first + torch.arange(width, device=order.device))
        # The first place by which all true calls are spent, and the first at which there are more items than that.
        rest = called_true - base
        last_true, first_false = number_until(
            counts, window, torch.stack([rest, rest + 1])
        )
        outside = (base >= called_true.clamp(min=1)) | (
            (first_false == width) & (first < n - width)
        )
        if width == n or not bool(outside.any()):
            break
        width = n
    high, low = (
        _padded(ranked).gather(1, first + where) for where in (last_true, first_false)
    )
    return torch.where(called_true > 0, high, math.inf), low


def _padded(ranked: Tensor) -> Tensor:
    """Scores in double precision, and what comes after the last."""
    return torch.nn.functional.pad(ranked.double(), (0, 1), value=-math.inf)


CELLS = tuple((group, truth) for group in GROUPS for truth in (True, False))
"""The parts of which every group, whole or split by truth, is made."""

Indices = NDArray[np.integer]
_WIDEST = 60.0  # draws whose shift is further from the sample's would leave single precision as odds


@dataclass(frozen=True)
class Corrected:
    """Pathways of one place in every draw."""

    measured: Measured
    draws: Draws
    correct: NDArray[np.bool_]
    """Whether the probe calls the item right before the cut, [item]."""
    called: Tensor
    """Whether it is called true after the knockout, the shift taken away, [item, draw]."""
    flipped: Tensor
    """Whether its call changes by more than noise, [item, draw]."""
    knockout: Tensor
    """Shifts under the knockout, [layer, fold, draw]."""

    def sample(self) -> Calls:
        """The pathways of the sample itself."""
        return Calls(correct=self.correct, flipped=self.flipped[:, 0].cpu().numpy())


@dataclass(frozen=True)
class CellSums:
    """Sums over the items of each cell that an intervention was run on, in every draw."""

    delta_p: Tensor
    """Of ΔP in percentage points, [cell, layer, fold, draw]."""
    number: Tensor
    """Of items, [cell, draw]."""


def correct_shift(measured: Measured, draws: Draws) -> Corrected:
    """Shifts under the knockout and the pathways that follow."""
    folds, reference = measured.folds, measured.reference[measured.probe("full")]
    knockout = _shifts(measured, KNOCKOUT, draws)
    before, after = measured.at_reference(KNOCKOUT)
    moved = (
        draws.to_device(after)[:, None]
        - knockout[draws.to_device(reference[folds]), draws.to_device(folds)]
    )
    clean = draws.to_device(before)[:, None]
    called = moved > 0
    flipped = (called != (clean > 0)) & (
        (moved - clean).abs() > noise_at_reference(measured, "full")
    )
    return Corrected(
        measured, draws, (before > 0) == measured.labels, called, flipped, knockout
    )


def _shifts(measured: Measured, intervention: str, draws: Draws) -> Tensor:
    index, ran = measured.probe("full"), measured.ran[intervention]
    before, after = measured.before[index][:, ran], measured.after[intervention][index]
    return shifts(
        before, after, measured.folds[ran], measured.reference.shape[1], draws.take(ran)
    )


@dataclass(frozen=True)
class _Members:
    """Members of the cells in one fold. One that is in two cells, in different draws, stands here twice."""

    items: Indices
    """Indices into the items that were run."""
    cells: list[slice]
    """Where the members of each cell stand."""
    counts: Tensor
    """How often each is in each draw, as a member of this cell, [member, draw]."""


def cell_sums(corrected: Corrected, intervention: str) -> CellSums:
    """ΔP under an intervention with the common shift taken away, summed over the corrected cells."""
    measured, draws = corrected.measured, corrected.draws
    index, ran = measured.probe("full"), measured.ran[intervention]
    moved = (
        corrected.knockout
        if intervention == KNOCKOUT
        else _shifts(measured, intervention, draws)
    )
    before, after = measured.before[index][:, ran], measured.after[intervention][index]
    n_folds, width = measured.reference.shape[1], draws.counts.shape[1]
    delta = torch.zeros(
        (len(CELLS), len(after), n_folds, width), dtype=moved.dtype, device=draws.device
    )
    number = torch.zeros((len(CELLS), width), dtype=torch.float64, device=draws.device)
    for fold in np.unique(measured.folds[ran]):
        members = _members(corrected, ran, int(fold))
        clean, cut = (
            draws.to_device(before[:, members.items]),
            draws.to_device(after[:, members.items]),
        )
        delta[:, :, fold] = _probability_sums(cut, moved[:, fold], members)
        for cell, (_, truth) in enumerate(CELLS):
            inside = members.counts[members.cells[cell]]
            delta[cell, :, fold] -= torch.sigmoid(
                clean[:, members.cells[cell]]
            ) @ inside.to(clean.dtype)
            delta[cell, :, fold] *= (
                100 if truth else -100
            )  # the probability of the true label
            number[cell] += total(inside)
    return CellSums(delta, number)


def _members(corrected: Corrected, ran: Indices, fold: int) -> _Members:
    measured, draws = corrected.measured, corrected.draws
    items: list[Indices] = []
    cells, counts, start = [], [], 0
    for group, truth in CELLS:
        candidates = (
            corrected.correct[ran]
            & (measured.labels[ran] == truth)
            & (measured.folds[ran] == fold)
        )
        within = np.flatnonzero(candidates)
        members = draws.to_device(ran[within])
        inside = (
            corrected.flipped[members]
            if group == GROUPS[0]
            else ~corrected.flipped[members]
        )
        some = inside.any(dim=1)
        items.append(within[some.cpu().numpy()])
        cells.append(slice(start, start := start + len(items[-1])))
        counts.append(draws.counts[members[some]] * inside[some])
    return _Members(np.concatenate(items), cells, torch.cat(counts))


def _probability_sums(log_odds: Tensor, shift: Tensor, members: _Members) -> Tensor:
    """Sums of the probability of "truthful" after a shift [layer, draw], [cell, layer, draw]."""
    counts = members.counts.to(log_odds.dtype)
    sums = log_odds.new_zeros((len(CELLS), *shift.shape))
    indicator = log_odds.new_zeros((len(CELLS), len(counts)))
    for cell, where in enumerate(members.cells):
        indicator[cell, where] = 1
    own = shift[:, :1]
    near = not bool(((shift - own).abs() > _WIDEST).any())
    # sigmoid(x - s) = e⁻ˢ / (e⁻ˢ + e⁻ˣ): one division for each item and draw instead of an exponential.
    odds_shift, odds = torch.exp(own - shift), torch.exp(own - log_odds)
    memory = log_odds.new_empty(
        0
    )  # one table serves all rows: making it anew takes longer than filling it
    for rows in row_chunks(len(log_odds), len(counts), counts):
        if near:
            table = torch.add(
                odds[rows, :, None], odds_shift[rows, None], out=memory.resize_(0)
            )
            torch.div(counts, table, out=table)
        else:
            table = torch.sigmoid(log_odds[rows, :, None] - shift[rows, None]) * counts
        sums[:, rows] = (indicator @ table).transpose(0, 1)
    return sums * odds_shift if near else sums


def of_group(sums: Sequence[Tensor], group: str, truth: str) -> Tensor:
    """Sums per cell added up over those of a group: all of it, or its true or its false answers."""
    wanted = {"all": (True, False), "true": (True,), "false": (False,)}[truth]
    return torch.stack([sums[CELLS.index((group, kind))] for kind in wanted]).sum(dim=0)


def curve_samples(sums: CellSums, group: str, truth: str) -> Tensor:
    """Mean ΔP of a group per layer, [layer, draw]."""
    summed = of_group(sums.delta_p.unbind(), group, truth).sum(
        dim=1, dtype=torch.float64
    )
    return ratio(summed, of_group(sums.number.unbind(), group, truth))


def reference_samples(sums: CellSums, reference: Indices, group: str) -> Tensor:
    """Mean ΔP of a group at each fold's own reference layer, [draw]."""
    layers, folds = torch.from_numpy(reference), torch.arange(len(reference))
    summed = of_group(sums.delta_p[:, layers, folds].unbind(), group, "all").sum(
        dim=0, dtype=torch.float64
    )
    return ratio(summed, of_group(sums.number.unbind(), group, "all"))


TRUTHS = ("all", "true", "false")
"""Curves over all items of a group, and split by whether the answer is true."""


@dataclass(frozen=True)
class Curve:
    """Mean ΔP per layer of one group, in percentage points."""

    intervention: str
    assignment: str
    group: str
    truth: str
    delta_p: Floats
    ci_low: Floats
    ci_high: Floats
    n: int
    n_groups: int
    samples: Tensor
    """In every draw, [layer, draw]: a reading of a curve's shape needs all layers of a draw together."""


Means = dict[tuple[str, str], Tensor]
"""Mean ΔP [layer, draw] per group and truth label; the first draw is the sample itself."""


def plain_curves(
    measured: Measured, intervention: str, draws: Draws, move: int = 0
) -> list[Curve]:
    """Curves of the plain assignment; `move` shifts the reference layer."""
    calls = plain_calls(measured, move=move)
    return _curves(
        "plain",
        [calls],
        _means(calls, measured, intervention, "full", draws),
        measured,
        intervention,
    )


def cross_fitted_curves(
    measured: Measured, intervention: str, draws: Draws
) -> list[Curve]:
    """One half's probe assigns and the other's measures, then the other way round; the two curves averaged."""
    calls = [plain_calls(measured, assigner) for assigner in ("a", "b")]
    first, second = (
        _means(calls[half], measured, intervention, "ba"[half], draws)
        for half in range(2)
    )
    means = {cell: (samples + second[cell]) / 2 for cell, samples in first.items()}
    return _curves("cross-fitted", calls, means, measured, intervention)


def corrected_curves(
    corrected: Corrected, intervention: str, sums: CellSums
) -> list[Curve]:
    """Curves with the common shift taken away."""
    means = {
        (group, truth): curve_samples(sums, group, truth)
        for group in GROUPS
        for truth in TRUTHS
    }
    return _curves(
        "corrected", [corrected.sample()], means, corrected.measured, intervention
    )


def _curves(
    assignment: str,
    calls: Sequence[Calls],
    means: Means,
    measured: Measured,
    intervention: str,
) -> list[Curve]:
    """The curves with their numbers of items: the mean over the calls that they rest on."""
    ran, curves = measured.ran[intervention], []
    for (group, truth), samples in means.items():
        inside = [by.members(group)[ran] for by in calls]
        if truth != "all":
            inside = [
                members & (measured.labels[ran] == (truth == "true"))
                for members in inside
            ]
        items = [
            np.unique(ran[members]) for members in inside
        ]  # an item with several donors is one item
        n = round(sum(map(len, items)) / len(items))
        n_groups = round(
            sum(len(np.unique(measured.groups[some])) for some in items) / len(items)
        )
        curves.append(
            Curve(
                intervention,
                assignment,
                group,
                truth,
                *estimates(samples),
                n,
                n_groups,
                samples,
            )
        )
    return curves


def _means(
    calls: Calls, measured: Measured, intervention: str, probe: str, draws: Draws
) -> Means:
    """Mean ΔP by one probe."""
    index, ran = measured.probe(probe), measured.ran[intervention]
    labels = measured.labels[ran]
    delta = delta_p(
        measured.before[index][:, ran], measured.after[intervention][index], labels
    ).T
    totals, numbers = [], []
    for group, truth in CELLS:
        inside = calls.members(group)[ran] & (labels == truth)
        sample = draws.take(ran[inside])
        totals.append(sample.sums(delta[inside]))
        numbers.append(sample.numbers())
    return {
        (group, truth): ratio(
            of_group(totals, group, truth), of_group(numbers, group, truth)
        )
        for group in GROUPS
        for truth in TRUTHS
    }
