"""The same items in several wordings: is what the cut does to an item a property of the item, or noise?

Each item is asked again in other words, and after other solved examples; its answer, token by token, and its label
stay. A probe that learned from the original wording of one half of the items scores all wordings of the other half, so
that their scales agree, and what the cut states explain of its log-odds is learned out of fold, all wordings of an item
held out together. An item's share is the posterior mean of `question_share.posterior`, given the means of z and ẑ over
some of its wordings; beside it the plain ratio Σ z (z − ẑ) / Σ z². Neither uses a label. Both are computed once from
the even wordings and once from the odd ones: if items differ in them, the two agree. ΔP, averaged over wordings in the
same way, stands beside them. Judged by the same probes, odd and even wordings also agree in what these got wrong; so
all is done a second time with other probes for the odd wordings. Only what is reliable can be said of single items.

Reliability is a split-half correlation of ranks, as a few items with little evidence have wild shares. Ranks are those
of the sample; every draw of the bootstrap weighs the items again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from jaxtyping import Bool, Float
from numpy import ndarray
from scipy.stats import rankdata

from anchorscope.answers.template import EXAMPLE_SETS, has_examples, with_examples
from anchorscope.datasets.question import Question
from anchorscope.datasets.relations import reworded
from anchorscope.datasets.text import normalise
from anchorscope.evidence.measured import probability
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.statistics import TRUTHS, estimate_of, of_truth
from anchorscope.experiments.supplied import all_fit, asked_again, run_supplied
from anchorscope.items import Item
from anchorscope.probes.folds import truth_strata
from anchorscope.question_share.posterior import ItemShares, Line, fit_line, item_shares
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY
from anchorscope.report.panel_figure import ChartSpec, Forest, Marks
from anchorscope.report.result_rows import find, present, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.stats.estimate import Estimate

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.interventions.intervention import Writer
    from anchorscope.question_share.evidence import Lost
    from anchorscope.question_share.halves import Halves

FEWEST = 60
"""Items below which no reliability is told."""
ODD, EVEN = "odd wordings", "even wordings"
SAME_PROBES, OTHER_PROBES = "same probes", "other probes"
"""Whether odd and even wordings are judged by the same probes: their errors would agree as well."""


@dataclass(frozen=True)
class Rows:
    """All wordings of some items, as rows of one table: the original of every used item first."""

    clean: Float[Tensor, "row d_model"]
    """Nothing cut."""
    cut: Float[Tensor, "row d_model"]
    """The wording's own key words cut."""
    item: ndarray
    """The used item of each row."""
    wording: ndarray
    """0 for the original."""

    def table(self, values: Float[ndarray, " row"], items: ndarray) -> Float[ndarray, "wording item"]:
        """Values of some items, all of which have every wording."""
        found = np.full((int(self.wording.max()) + 1, int(self.item.max()) + 1), np.nan)
        found[self.wording, self.item] = values
        return found[:, items]

    def sets(self, items: ndarray) -> Bool[ndarray, "wording row"]:
        """Which rows are some items in each wording."""
        return (self.wording == np.arange(int(self.wording.max()) + 1)[:, None]) & np.isin(self.item, items)


def run(inputs: ExperimentInputs) -> Found:
    """Runs every wording, and compares what odd and even ones say of the items."""
    writer = inputs.setting.writer()
    items, others, missing = _items(inputs, writer)
    n_wordings = 1 + ((len(others[0]) if others else 0) or len(EXAMPLE_SETS) - 1)
    texts = _texts(inputs, writer, items, others, n_wordings) if len(items) >= FEWEST else []
    fitting = [place for place in range(len(items)) if all_fit(inputs, [one[place] for one in texts])]
    if len(fitting) < len(items):
        missing += (
            f"{len(items) - len(fitting)} of {len(items)} items are left out: in other wordings they do not "
            f"fit the model's context of {inputs.planner.context:,} tokens",
        )
        items, texts = items[fitting], [[one[place] for place in fitting] for one in texts]
    if len(items) < FEWEST:
        why = "their relation has no other sentences of ours, and the prompt shows no examples that could be others"
        return Found(missing=(f"only {len(items)} items can be asked in other wordings, {FEWEST} needed; {why}",))
    layer = inputs.most_frequent_reference
    rows = _run_wordings(inputs, items, texts, layer)
    found = _explained(inputs, rows, items, layer)
    changes = {probe: _delta_p(inputs, rows, items, layer, probe) for probe in ("full", "a", "b")}
    halves = {EVEN: np.arange(0, n_wordings, 2), ODD: np.arange(1, n_wordings, 2)}
    by_half: dict[tuple[str, str], dict[str, ndarray]] = {}
    for probes, tables, judges in (
        (SAME_PROBES, (found.all_splits, found.all_splits), ("full", "full")),
        (OTHER_PROBES, found.split_halves, ("a", "b")),
    ):
        of = dict(zip(halves, tables, strict=True))
        by_half["item_share", probes] = {half: of[half].posterior(some).mean for half, some in halves.items()}
        by_half["item_ratio", probes] = {half: of[half].ratio(some) for half, some in halves.items()}
        by_half["delta_p", probes] = {
            half: changes[probe][some].mean(axis=0) for (half, some), probe in zip(halves.items(), judges, strict=True)
        }
    statistics = [
        Statistic("wordings", Estimate(n_wordings, np.nan, np.nan, len(items), "counted")),
        *_reliabilities(inputs, by_half, items, layer),
        *_share_by_wording(inputs, rows, found.lost, items, layer),
    ]
    everything = np.arange(n_wordings)
    whole = found.all_splits.posterior(everything)
    over_all = {
        "item_share": whole.mean,
        "item_share_low": whole.low,
        "item_share_high": whole.high,
        "item_ratio": found.all_splits.ratio(everything),
        "delta_p": changes["full"].mean(axis=0),
    }
    values = [ItemValues(name, items, one) for name, one in over_all.items()]
    values += [
        ItemValues(name, items, one, half)
        for (name, probes), two in by_half.items()
        if probes == SAME_PROBES
        for half, one in two.items()
    ]
    return Found(tuple(statistics), tuple(values), missing)


def _items(inputs: ExperimentInputs, writer: Writer) -> tuple[ndarray, list[list[Question]], tuple[str, ...]]:
    """The used items that are asked in other wordings, their questions in our other sentences, and what is to be told.

    Where enough items have sentences, only those are asked; else all have the same words after other examples.
    """
    shown = {normalise(one.subject) for examples in EXAMPLE_SETS for one in examples}
    some = [
        one
        for one in inputs.some_items().tolist()
        if normalise(inputs.used_items[one].question.subject or "") not in shown
    ]
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


def _texts(
    inputs: ExperimentInputs, writer: Writer, items: ndarray, others: Sequence[Sequence[Question]], n_wordings: int
) -> list[list[Item]]:
    """The items in every wording but the original."""
    chosen, found = [inputs.used_items[index] for index in items], []
    for number in range(1, n_wordings):
        template = with_examples(writer.template, EXAMPLE_SETS[number % len(EXAMPLE_SETS)])
        asked = [_asked(item, mine, number) for item, mine in zip(chosen, others, strict=True)]
        found.append(asked_again(replace(writer, template=template), chosen, *map(list, zip(*asked, strict=True))))
    return found


def _run_wordings(inputs: ExperimentInputs, items: ndarray, texts: Sequence[Sequence[Item]], layer: int) -> Rows:
    """The states of every wording at one layer; those of the original are there."""
    import torch

    from anchorscope.interventions.cuts import KNOCKOUT

    clean, cut = [inputs.states()[layer]], [inputs.cut_states()[KNOCKOUT.name][layer]]
    for number, again in enumerate(texts, 1):
        found = run_supplied(inputs, again, f"wording {number} of {len(texts)}", (KNOCKOUT,))
        clean.append(found.clean[layer])
        cut.append(found.cut[KNOCKOUT.name][layer])
    return Rows(
        torch.cat(clean),
        torch.cat(cut),
        np.concatenate([np.arange(inputs.n), *([items] * len(texts))]),
        np.concatenate([np.zeros(inputs.n, np.int64), np.repeat(np.arange(1, len(texts) + 1), len(items))]),
    )


def _asked(item: Item, others: Sequence[Question], number: int) -> tuple[Question, QuestionSpans]:
    """An item's question in one of the wordings, and its exact words."""
    if others:
        return others[number - 1], locate_question_words(others[number - 1])
    return item.question, item.located.words or locate_question_words(item.question)


@dataclass(frozen=True)
class ItemEvidence:
    """Evidence of some items in every wording, by the probes of some splits."""

    clean: Float[ndarray, "wording item"]
    """z."""
    explained: Float[ndarray, "wording item"]
    """ẑ: what the cut states explain of it."""
    under_random: Line
    """What random cuts leave of z in the original wording."""

    def posterior(self, some: ndarray) -> ItemShares:
        """The items' shares, given some of their wordings."""
        return item_shares(self.clean[some].mean(axis=0), self.explained[some].mean(axis=0), self.under_random)

    def ratio(self, some: ndarray) -> Float[ndarray, " item"]:
        """The same without a model: Σ z (z − ẑ) / Σ z² over some wordings."""
        z, rest = self.clean[some], self.clean[some] - self.explained[some]
        return (z * rest).sum(axis=0) / np.maximum((z**2).sum(axis=0), 1e-12)


class Explained(NamedTuple):
    """What the cut states explain of the evidence of all wordings."""

    lost: Lost
    """Over the rows; each wording is a set after `GROUPS`."""
    all_splits: ItemEvidence
    split_halves: tuple[ItemEvidence, ItemEvidence]
    """By one half of the splits' probes, and by the other."""


def _explained(inputs: ExperimentInputs, rows: Rows, items: ndarray, layer: int) -> Explained:
    """Evidence of every row by probes of the original wordings, and what is left of it."""
    from anchorscope.question_share.clean_evidence import CleanEvidence, clean_evidence
    from anchorscope.question_share.evidence import lost_evidence
    from anchorscope.question_share.halves import Halves, make_halves
    from anchorscope.question_share.principal import default_directions, principal_states

    used, device, labels, folds = inputs.used_items, inputs.device, inputs.measured.labels, inputs.splits.folds
    strata, ids = truth_strata(labels, [item.question.relation for item in used]), [item.item_id for item in used]
    own = make_halves(inputs.measured.groups, strata, inputs.setting.seed, ids)
    halves = spread(own, rows.item, rows.wording == 0)
    directions = default_directions(inputs.n, rows.clean.shape[-1])
    states = (rows.clean, rows.cut, inputs.cut_states()["random"][layer])
    clean, cut, control = (principal_states(part[None], directions, device) for part in states)
    evidence = clean_evidence(clean, halves, labels[rows.item], device, inputs.progress)
    n = inputs.n
    originals = evidence._replace(
        principal=evidence.principal[:, :n], by_probe=evidence.by_probe[..., :n], step=evidence.step[..., :n]
    )
    left = lost_evidence(originals, control, own, labels, folds, device, inputs.progress, "wordings: random cut")
    line = fit_line(left.clean[0], left.explained[0])

    def lost(splits: slice) -> Lost:
        known = CleanEvidence(evidence.principal, *(part[:, splits] for part in evidence[1:]))
        some = Halves(halves.first[splits], halves.folds[splits], halves.inner[splits])
        return lost_evidence(
            known,
            cut,
            some,
            labels[rows.item],
            folds[rows.item],
            device,
            inputs.progress,
            "wordings: key words cut",
            sets=rows.sets(items),
        )

    def of_items(one: Lost) -> ItemEvidence:
        return ItemEvidence(rows.table(one.clean[0], items), rows.table(one.explained[0], items), line)

    middle, whole = own.n_splits // 2, lost(slice(None))
    two = of_items(lost(slice(0, middle))), of_items(lost(slice(middle, None)))
    return Explained(whole, of_items(whole), two)


def spread(halves: Halves, item: ndarray, learns: Bool[ndarray, " row"]) -> Halves:
    """The splits of items for rows that stand for them; probes learn from some of the rows only."""
    from anchorscope.question_share.halves import Halves

    inner = np.where(learns, halves.inner[:, :, item], -1)
    return Halves(halves.first[:, item], halves.folds[:, item], inner)


def _delta_p(
    inputs: ExperimentInputs, rows: Rows, items: ndarray, layer: int, probe: str
) -> Float[ndarray, "wording item"]:
    """ΔP of every wording in percentage points, by one of the run's own out-of-fold probes at one layer."""
    import torch

    named, folds = inputs.measured.probe(probe), torch.as_tensor(inputs.splits.folds[rows.item])
    weight, bias = (part[named, :, layer].float()[folds] for part in (inputs.probes.weight, inputs.probes.bias))
    before, after = (((part.float() * weight).sum(dim=1) + bias).numpy() for part in (rows.clean, rows.cut))
    sign = np.where(inputs.measured.labels[rows.item], 1, -1)
    return rows.table(100 * (probability(sign * after) - probability(sign * before)), items)


def _reliabilities(
    inputs: ExperimentInputs, by_half: Mapping[tuple[str, str], Mapping[str, ndarray]], items: ndarray, layer: int
) -> list[Statistic]:
    """Rank correlation of the two halves of the wordings, and the reliability of all of them, within truth as well."""
    from anchorscope.evidence.draws import resampling

    draws, labels, rows = inputs.draws.take(items), inputs.measured.labels[items], []
    method = "rank correlation of odd and even wordings, bootstrap over groups"
    with resampling(draws.device):
        for (measure, probes), halves in by_half.items():
            for truth in TRUTHS:
                inside = of_truth(labels, truth)
                samples = rank_correlation(halves[EVEN][inside], halves[ODD][inside], draws.take(inside))
                for quantity, found, how in (
                    ("split_half", samples, method),
                    ("reliability", spearman_brown(samples), f"Spearman–Brown of the {method}"),
                ):
                    estimate = estimate_of(found, int(inside.sum()), how)
                    rows.append(Statistic(quantity, estimate, measure, probes, truth=truth, probe_layer=layer))
    return rows


def _share_by_wording(inputs: ExperimentInputs, rows: Rows, lost: Lost, items: ndarray, layer: int) -> list[Statistic]:
    """Λ of the same items in every wording."""
    import torch

    from anchorscope.question_share.evidence import GROUPS
    from anchorscope.question_share.intervals import ShareDraws

    n_splits = lost.by_split.shape[-1]
    draws = ShareDraws(inputs.weights[:, rows.item], n_splits, inputs.rng("wordings"))
    found = []
    for number in range(int(rows.wording.max()) + 1):
        samples = torch.from_numpy(draws.shares(lost, len(GROUPS) + number)[0])
        estimate = estimate_of(samples, len(items), f"{n_splits} half splits, bootstrap over groups")
        name = "original wording" if number == 0 else f"wording {number}"
        found.append(Statistic("question_share", estimate, name, truth="all", probe_layer=layer))
    return found


def rank_correlation(
    first: Float[ndarray, " item"], second: Float[ndarray, " item"], draws: Draws
) -> Float[Tensor, " draw"]:
    """Spearman's correlation of two measures in every draw; NaN where one of them is constant."""
    import torch

    x, y = (_standardised(values) for values in (first, second))
    n, sx, sy, sxx, syy, sxy = draws.sums(np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1))
    covariance = sxy / n - sx * sy / n**2
    spread = ((sxx / n - (sx / n) ** 2) * (syy / n - (sy / n) ** 2)).clamp(min=0).sqrt()
    return torch.where(spread > 1e-12, covariance / spread, torch.nan)


def spearman_brown(halves: Float[Tensor, " draw"]) -> Float[Tensor, " draw"]:
    """The reliability of the whole from the correlation of its halves."""
    return 2 * halves / (1 + halves)


def _standardised(values: Float[ndarray, " item"]) -> Float[ndarray, " item"]:
    ranks = rankdata(values)
    return (ranks - ranks.mean()) / max(float(ranks.std()), 1e-12)


EXPERIMENT = Experiment(
    "wordings", "the same items in other words and after other examples: how reliable an item's share is", run
)


MEASURES = {"item_share": "share of an item", "item_ratio": "the same as a plain ratio", "delta_p": "ΔP of an item"}
"""Variant → its words."""
_STYLES: dict[str, dict[str, Any]] = {
    "item_share": {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markerfacecolor": "#0072b2"},
    "item_ratio": {"color": "#56b4e9", "marker": "^", "markersize": 4.6, "markerfacecolor": "white"},
    "delta_p": {"color": CONTROL_GREY, "marker": "s", "markersize": 4.6, "markerfacecolor": "white"},
}
PROBES = (OTHER_PROBES, SAME_PROBES)
"""Who judged the odd wordings; the first is drawn."""
_COLUMNS = ("dataset", "quantity", "variant", "against", "truth", "value", "ci_low", "ci_high", "n", "method")


def _drawn(findings: Findings) -> pl.DataFrame:
    return statistics(findings, "wordings", "reliability", "question_share").select(_COLUMNS)


def _panels(data: pl.DataFrame) -> list[Forest]:
    wordings = present(select(data, quantity="question_share"), "variant")
    return [
        Forest(
            "truth",
            TRUTHS,
            Marks("variant", {name: (words, _STYLES[name]) for name, words in MEASURES.items()}),
            "reliability",
            where={"quantity": "reliability", "against": PROBES[0]},
        ),
        Forest(
            "variant",
            {name: name for name in wordings},
            Marks("quantity", {"question_share": (MEASURES["item_share"], _STYLES["item_share"])}),
            "Λ",
        ),
    ]


def _repeats(rows: pl.DataFrame) -> section.Said | None:
    found = find(rows, quantity="reliability", variant="item_share", against=PROBES[0], truth="all")
    return section.number(found, above(found, section.RELIABLE), estimate)


SECTION = section.SectionSpec(
    slug="wordings",
    title="Other wordings",
    rows=lambda findings: statistics(findings, "wordings"),
    asks="Is what the cut does to an item the item's own, or of one wording?",
    careful="Judged by the same probes, wordings also agree in what these got wrong. ΔP repeats itself by its label: "
    "read it within truth.",
    answer=section.Answer(
        "Single items repeat themselves well enough to be sorted: the reliability of their share is above 0.7",
        "Single items should not be sorted by their share: its reliability is below 0.7",
        "Whether single items can be sorted by their share (reliability above 0.7) is undecided",
        _repeats,
    ),
    charts=(
        ChartSpec(
            "wordings",
            "the same items in other wordings",
            "Reliability of single items over wordings, and the question share in every wording",
            "At the most frequent reference layer.",
            "Left: reliability of a measure over all wordings, from its rank correlation between odd and even ones "
            "(Spearman–Brown), each judged by other probes. Right: question share of the same items in every wording. "
            "Lines: 95 % intervals.",
            _drawn,
            _panels,
            height=2.2,
            labels=0.9,
            gap=1.4,
        ),
    ),
    tables=(
        section.TableSpec(
            "How well single items repeat themselves: reliability",
            (section.Key("variant", "measure", MEASURES), section.Key("truth", "of", TRUTHS)),
            (*(section.value(probes, estimate, against=probes) for probes in PROBES), section.items()),
            lambda rows: select(rows, quantity="reliability"),
        ),
        section.TableSpec(
            "Question share of the same items, wording by wording",
            (section.Key("variant", "wording"),),
            (section.value("question share", estimate), section.items()),
            lambda rows: select(rows, quantity="question_share"),
        ),
    ),
)
