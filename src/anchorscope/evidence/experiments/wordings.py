"""The same items in several wordings: is what the cut does to an item a property of the item, or noise?

Each item is asked again in other words, and after other solved examples; its answer, token by token, and its label
stay. A probe that learned from the original wording of one half of the items scores all wordings of the other half, so
that their scales agree, and what the cut states explain of its log-odds is learned out of fold, all wordings of an item
held out together. An item's share is the posterior mean of `question_share.posterior`, given the means of z and ẑ over
some of its wordings; beside it the plain ratio Σ z (z − ẑ) / Σ z². Neither uses a label. Both are computed once from
the even wordings and once from the odd ones: if items differ in them, the two agree. ΔP, averaged over wordings in the
same way, stands beside them. About single items only what is reliable can be said.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.other_examples import EXAMPLE_SETS, has_examples, with_examples
from anchorscope.catalogue import KNOCKOUT as KNOCKOUT_NAME
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise
from anchorscope.datasets.wordings import reworded
from anchorscope.evidence.draws import Draws, ratio, resampling
from anchorscope.evidence.experiments.compare import estimate_of, of_truth
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.evidence.experiments.heads import most_frequent_reference
from anchorscope.evidence.experiments.reliability import rank_correlation, spearman_brown
from anchorscope.evidence.experiments.supplied import asked_again, run_supplied
from anchorscope.evidence.measured import probability
from anchorscope.interventions.cuts import KNOCKOUT
from anchorscope.interventions.intervention import Writer
from anchorscope.items import Item
from anchorscope.probes.folds import truth_strata
from anchorscope.question_share.clean_evidence import clean_evidence
from anchorscope.question_share.evidence import Lost, lost_evidence
from anchorscope.question_share.halves import Halves, make_halves
from anchorscope.question_share.posterior import ItemShares, Line, fit_line, item_shares
from anchorscope.question_share.principal import default_directions, principal_states
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.stats.estimate import Estimate

FEWEST = 60
"""Items below which no reliability is told."""
ODD, EVEN = "odd wordings", "even wordings"
_TRUTHS = ("all", "true", "false")


@dataclass(frozen=True)
class Rows:
    """All wordings of some items, as rows of one table: the original of every used item first."""

    clean: Float[Tensor, "row d_model"]
    cut: Float[Tensor, "row d_model"]
    item: ndarray
    """The used item of each row."""
    wording: ndarray
    """0 for the original."""

    def table(self, values: Float[ndarray, " row"], items: ndarray) -> Float[ndarray, "wording item"]:
        """Values of some items, all of which have every wording."""
        found = np.full((int(self.wording.max()) + 1, int(self.item.max()) + 1), np.nan)
        found[self.wording, self.item] = values
        return found[:, items]


def run(inputs: ExperimentInputs) -> Found:
    """Runs every wording, and compares what odd and even ones say of the items."""
    writer = inputs.setting.writer()
    items, others, missing = _items(inputs, writer)
    if len(items) < FEWEST:
        why = "their relation has no other sentences of ours, and the prompt shows no examples that could be others"
        return Found(missing=(f"only {len(items)} items can be asked in other wordings, {FEWEST} needed; {why}",))
    n_wordings, layer = 1 + (len(others[0]) or len(EXAMPLE_SETS) - 1), most_frequent_reference(inputs)
    rows = _run_wordings(inputs, writer, items, others, n_wordings, layer)
    lost, under_random = _explained(inputs, rows, layer)
    z, explained = (rows.table(part[0], items) for part in (lost.clean, lost.explained))
    changes = _delta_p(inputs, rows, items, layer)
    halves = {EVEN: np.arange(0, n_wordings, 2), ODD: np.arange(1, n_wordings, 2)}

    def posterior(some: ndarray) -> ItemShares:
        return item_shares(z[some].mean(axis=0), explained[some].mean(axis=0), under_random)

    by_half = {
        "item_share": {half: posterior(some).mean for half, some in halves.items()},
        "item_ratio": {half: _ratio(z[some], explained[some]) for half, some in halves.items()},
        "delta_p": {half: changes[some].mean(axis=0) for half, some in halves.items()},
    }
    statistics = [
        Statistic("wordings", Estimate(n_wordings, np.nan, np.nan, len(items), "counted")),
        *_reliabilities(inputs, by_half, items, layer),
        *_share_by_wording(inputs, rows, lost, items, layer),
    ]
    whole = posterior(np.arange(n_wordings))
    over_all = {"item_share": whole.mean, "item_share_low": whole.low, "item_share_high": whole.high,
                "item_ratio": _ratio(z, explained), "delta_p": changes.mean(axis=0)}  # fmt: skip
    values = [ItemValues(name, items, found) for name, found in over_all.items()]
    values += [ItemValues(name, items, found, half) for name, two in by_half.items() for half, found in two.items()]
    return Found(tuple(statistics), tuple(values), missing)


def _items(inputs: ExperimentInputs, writer: Writer) -> tuple[ndarray, list[list[Question]], tuple[str, ...]]:
    """The used items that are asked in other wordings, their questions in our other sentences, and what is to be told.

    Where enough items have sentences, only those are asked; else all have the same words after other examples.
    """
    shown = {normalise(one.subject) for examples in EXAMPLE_SETS for one in examples}
    some = [one for one in inputs.some_items().tolist()
            if normalise(inputs.used_items[one].question.subject or "") not in shown]  # fmt: skip
    others = {one: reworded(inputs.used_items[one].question) for one in some}
    with_sentences = [one for one in some if others[one]]
    if len(with_sentences) >= FEWEST:
        left_out = len(some) - len(with_sentences)
        told = f"{left_out} of {len(some)} items are left out: their relation has no other sentences of ours"
        return np.array(with_sentences), [others[one] for one in with_sentences], (told,) if left_out else ()
    if not has_examples(writer.template):
        return np.array(with_sentences), [], ()
    told = (
        f"dataset {inputs.dataset!r} has no relations that we have other sentences for (atlas and PopQA have): the "
        f"{len(EXAMPLE_SETS)} wordings differ in the prompt's examples only"
    )
    return np.array(some), [[] for _ in some], (told,)


def _run_wordings(
    inputs: ExperimentInputs, writer: Writer, items: ndarray, others: Sequence[Sequence[Question]], n_wordings: int,
    layer: int,
) -> Rows:  # fmt: skip
    """The states of every wording at one layer; those of the original are there."""
    clean, cut = [inputs.states()[layer]], [inputs.cut_states()[KNOCKOUT_NAME][layer]]
    chosen = [inputs.used_items[index] for index in items]
    for number in range(1, n_wordings):
        template = with_examples(writer.template, EXAMPLE_SETS[number % len(EXAMPLE_SETS)])
        asked = [_asked(item, mine, number) for item, mine in zip(chosen, others, strict=True)]
        again = asked_again(replace(writer, template=template), chosen, *map(list, zip(*asked, strict=True)))
        found = run_supplied(inputs, again, f"wording {number} of {n_wordings - 1}", (KNOCKOUT,))
        clean.append(found.clean[layer])
        cut.append(found.cut[KNOCKOUT_NAME][layer])
    return Rows(
        torch.cat(clean), torch.cat(cut),
        np.concatenate([np.arange(inputs.n), *([items] * (n_wordings - 1))]),
        np.concatenate([np.zeros(inputs.n, np.int64), np.repeat(np.arange(1, n_wordings), len(items))]),
    )  # fmt: skip


def _asked(item: Item, others: Sequence[Question], number: int) -> tuple[Question, QuestionSpans]:
    """An item's question in one of the wordings, and its exact words."""
    if others:
        return others[number - 1], locate_question_words(others[number - 1])
    return item.question, item.located.words or locate_question_words(item.question)


def _explained(inputs: ExperimentInputs, rows: Rows, layer: int) -> tuple[Lost, Line]:
    """Evidence of every row by probes of the original wordings, what the cut states explain of it, and what random cuts
    leave of it in the original wording."""
    used, device, labels = inputs.used_items, inputs.device, inputs.measured.labels
    strata, ids = truth_strata(labels, [item.question.relation for item in used]), [item.item_id for item in used]
    own = make_halves(inputs.measured.groups, strata, inputs.setting.seed, ids)
    halves = spread(own, rows.item, rows.wording == 0)
    directions = default_directions(inputs.n, rows.clean.shape[-1])
    at_random = inputs.cut_states()["random"][layer]
    clean, cut, control = (
        principal_states(part[None], directions, device) for part in (rows.clean, rows.cut, at_random)
    )
    evidence = clean_evidence(clean, halves, labels[rows.item], device, inputs.progress)
    folds = inputs.splits.folds
    lost = lost_evidence(
        evidence, cut, halves, labels[rows.item], folds[rows.item], device, inputs.progress, "wordings: key words cut"
    )
    originals = evidence._replace(
        principal=evidence.principal[:, : inputs.n], by_probe=evidence.by_probe[..., : inputs.n],
        step=evidence.step[..., : inputs.n],
    )  # fmt: skip
    left = lost_evidence(originals, control, own, labels, folds, device, inputs.progress, "wordings: random cut")
    return lost, fit_line(left.clean[0], left.explained[0])


def spread(halves: Halves, item: ndarray, learns: Bool[ndarray, " row"]) -> Halves:
    """The splits of items for rows that stand for them; probes learn from some of the rows only."""
    inner = np.where(learns, halves.inner[:, :, item], -1)
    return Halves(halves.first[:, item], halves.folds[:, item], inner)


def _ratio(z: Float[ndarray, "wording item"], explained: Float[ndarray, "wording item"]) -> Float[ndarray, " item"]:
    return (z * (z - explained)).sum(axis=0) / np.maximum((z**2).sum(axis=0), 1e-12)


def _delta_p(inputs: ExperimentInputs, rows: Rows, items: ndarray, layer: int) -> Float[ndarray, "wording item"]:
    """ΔP of every wording in percentage points, by the run's own out-of-fold probes at one layer."""
    full, folds = inputs.measured.probe("full"), torch.as_tensor(inputs.splits.folds[rows.item])
    weight, bias = (part[full, :, layer].float()[folds] for part in (inputs.probes.weight, inputs.probes.bias))
    before, after = (((part.float() * weight).sum(dim=1) + bias).numpy() for part in (rows.clean, rows.cut))
    sign = np.where(inputs.measured.labels[rows.item], 1, -1)
    return rows.table(100 * (probability(sign * after) - probability(sign * before)), items)


def _reliabilities(
    inputs: ExperimentInputs, by_half: Mapping[str, Mapping[str, ndarray]], items: ndarray, layer: int
) -> list[Statistic]:
    """Rank correlation of the two halves of the wordings, and the reliability of all of them, within truth as well."""
    draws, labels, rows = inputs.draws.take(items), inputs.measured.labels[items], []
    method = "rank correlation of odd and even wordings, bootstrap over groups"
    with resampling(draws.device):
        for measure, halves in by_half.items():
            for truth in _TRUTHS:
                inside = of_truth(labels, truth)
                samples = rank_correlation(halves[EVEN][inside], halves[ODD][inside], draws.take(inside))
                for quantity, found, how in (
                    ("split_half", samples, method),
                    ("reliability", spearman_brown(samples), f"Spearman–Brown of the {method}"),
                ):
                    estimate = estimate_of(found, int(inside.sum()), how)
                    rows.append(Statistic(quantity, estimate, measure, truth=truth, probe_layer=layer))
    return rows


def _share_by_wording(
    inputs: ExperimentInputs, rows: Rows, lost: Lost, items: ndarray, layer: int
) -> list[Statistic]:
    """Λ of the same items in every wording."""
    draws: Draws = inputs.draws.take(items)
    tables = [rows.table(part[0], items) for part in (lost.lost, lost.had)]
    found = []
    for number, (gone, had) in enumerate(zip(*tables, strict=True)):
        sums = draws.sums(np.stack([gone, had], axis=1))
        name = "original wording" if number == 0 else f"wording {number}"
        estimate = estimate_of(ratio(sums[0], sums[1]), len(items), "half splits, bootstrap over groups")
        found.append(Statistic("question_share", estimate, name, truth="all", probe_layer=layer))
    return found


EXPERIMENT = Experiment(
    "wordings", "the same items in other words and after other examples: how reliable an item's share is", run
)
