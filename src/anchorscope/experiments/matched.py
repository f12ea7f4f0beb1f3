"""Matched strings: does the probe still know truth, and how much of that needs the question, if words cannot tell?

The questions of the run exchange their accepted answers two by two, so that every answer is true for one question and
false for another, every question has one of each, and words, answers and relations alone are at an AUC of 0.5 by
design. The model reads these supplied answers, clean and with the key words or random tokens cut. Probes
are trained anew on half of the pairs and score the other half; the question share Λ stands beside that of the model's
own answers. There an answer can speak for itself (some answers are likelier to be true than others); here it cannot.
So what Λ lacks of 1 among the model's own answers and not here was the answers' priors.

Pairs: from "capital of France: Paris" and "capital of Peru: Lima" come four items, two of them false. Such a group is
closed: every word of a question and every word of an answer is in as many true as false items of it, so that nothing
can be learned from words, answers or relations as long as groups stay whole (a bag of words gives each word the weight
0). Questions are of one kind if they have the same relation; without one, if they ask with the same word and their
answers look alike (a number, one word, several). Two can be paired if no accepted answer of either is accepted by the
other, and no word of content stands both in a question and in an answer of the pair. The most frequent answers are
paired first, with each other: more questions find a partner, and answers meet others about as frequent as they are.

Shares: the same number of principal directions, the same splits and the same draws within each of the two sets. `none`
is the floor: nothing is cut, and what is "lost" is what estimation loses.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from numpy.typing import NDArray

from anchorscope.answers.grade import grade
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, words
from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, Statistic
from anchorscope.experiments.statistics import TRUTHS, estimate_of, group_means, of_truth
from anchorscope.experiments.supplied import all_fit, run_supplied, supplied_items
from anchorscope.items import Item
from anchorscope.probes.folds import truth_strata
from anchorscope.progress import Progress
from anchorscope.report.findings import Findings
from anchorscope.report.palette import CONTROL_GREY
from anchorscope.report.panel_figure import ChartSpec, Forest, Marks
from anchorscope.report.result_rows import find, select, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate, percent
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.spans.words import EMPTY_WORDS, QUESTION_WORDS
from anchorscope.stats.estimate import Estimate, group_weights
from anchorscope.stats.streams import Priorities, drawn, priorities, stream

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws
    from anchorscope.question_share.evidence import Halves, Lost
    from anchorscope.question_share.shares import ShareDraws

MATCHED, FREE = "matched", "free"
"""The supplied answers, and the model's own."""
FEWEST_PAIRS = 30
"""Pairs below which nothing is said: 60 true and 60 false answers."""
MOST_PAIRS = 750
"""3,000 items: as many as a run uses of a dataset; states of more would not fit beside a large model's."""
MOST_LAYERS = 9
"""Layers in which the share is measured: the reference layer, and some from the first to the last."""
_FOLDS = 5  # of the baselines that learn
_LOOKED_AT = 3  # questions looked at for every pair that is wanted: some find no partner

SIZE = 4
"""Items of a group: two questions, two answers each."""
FLOOR = "none"
"""Nothing cut: what estimation alone loses."""


@dataclass(frozen=True)
class MatchedPair:
    """Two questions whose answers are exchanged, by their places in the list they came from."""

    first: int
    """The earlier one."""
    second: int
    """The later one."""
    kind: str
    """What both are: their relation, or how they ask and what their answers look like."""


@dataclass(frozen=True)
class Matching:
    """The pairs of a question set, and what could not be paired."""

    pairs: tuple[MatchedPair, ...]
    """By their first question; no question is in two."""
    n_questions: int
    """Questions that were looked at."""
    repeated: int
    """Left out because the answer is in the question, or is not accepted by the grader itself."""
    alone: int
    """Left out because no other question of the kind could exchange answers with it."""
    without_relation: int
    """Questions among all that have no relation, whose kind was read off their words."""

    def told(self) -> str | None:
        """What has to be said of the questions that are left out; None if none is."""
        left_out = []
        if self.repeated:
            left_out.append(f"{self.repeated} whose answer shares a word with the question or is not graded as right")
        if self.alone:
            left_out.append(f"{self.alone} to which no other question of the same kind has a clearly false answer")
        if not left_out:
            return None
        return f"of {self.n_questions} questions {' and '.join(left_out)} are left out"


def match_questions(questions: Sequence[Question], seed: int) -> Matching:
    """Pairs the questions of each kind; which of equally good partners is found is drawn with the seed."""
    fit = [index for index, one in enumerate(questions) if _has_clear_answer(one)]
    kinds: dict[str, list[int]] = {}
    for index in fit:
        kinds.setdefault(kind_of(questions[index]), []).append(index)
    order = priorities(seed, "matched", [one.item_id for one in questions])
    pairs = [
        MatchedPair(min(pair), max(pair), kind)
        for kind, members in sorted(kinds.items())
        for pair in _paired(questions, members, order)
    ]
    return Matching(
        pairs=tuple(sorted(pairs, key=lambda pair: pair.first)),
        n_questions=len(questions),
        repeated=len(questions) - len(fit),
        alone=len(fit) - 2 * len(pairs),
        without_relation=sum(one.relation is None for one in questions),
    )


def some_pairs(matching: Matching, questions: Sequence[Question], most: int | None, seed: int) -> list[MatchedPair]:
    """All pairs, or so many of them drawn at random."""
    if most is None or len(matching.pairs) <= most:
        return list(matching.pairs)
    names = [f"{questions[pair.first].item_id}\n{questions[pair.second].item_id}" for pair in matching.pairs]
    return [matching.pairs[place] for place in drawn(priorities(seed, "matched pairs", names), most)]


def true_answer(question: Question) -> str:
    """The answer that stands for a question: the first of those accepted, which is how datasets name it.

    Sets without relations list what redirects to the answer, in any order: there it is the form closest to the others.
    """
    if question.relation is not None or len(question.answers) < 3:
        return question.answers[0]
    forms = [set(words(answer)) for answer in question.answers]
    alike = [sum(len(one & other) / max(1, len(one | other)) for other in forms) for one in forms]
    return question.answers[int(np.argmax(alike))]


def matched_questions(questions: Sequence[Question], pairs: Iterable[MatchedPair]) -> list[Question]:
    """The four items of each pair, one pair after the other, with their answers and labels."""
    found = []
    for pair in pairs:
        for own, other in ((pair.first, pair.second), (pair.second, pair.first)):
            asked = questions[own]
            for truthful, giver in ((True, own), (False, other)):
                item_id, given = f"{asked.item_id}:{'true' if truthful else 'false'}", true_answer(questions[giver])
                found.append(replace(asked, item_id=item_id, model_answer=given, truthful=truthful))
    return found


def kind_of(question: Question) -> str:
    """What a question may exchange answers within."""
    if question.relation is not None:
        return question.relation
    asking = next((word for word in words(question.question) if word in QUESTION_WORDS), "no question word")
    answer = words(true_answer(question))
    words_in_it = "one word" if len(answer) < 2 else "several words"
    return f"{asking}, {'number' if any(word[0].isdigit() for word in answer) else words_in_it}"


def imbalances(questions: Sequence[Question], groups: NDArray[np.integer]) -> list[str]:
    """Questions and answers that are not in as many true as false items of a group: by design there is none."""
    counts: dict[tuple[int, str], int] = {}
    for one, group in zip(questions, groups.tolist(), strict=True):
        for text in (f"question {one.question}", f"answer {one.model_answer}"):
            counts[group, text] = counts.get((group, text), 0) + (1 if one.truthful else -1)
    return [text for (_, text), count in counts.items() if count]


def _has_clear_answer(question: Question) -> bool:
    answer = true_answer(question)
    return not _shares_words(question.question, answer) and grade(answer, question.answers, question.question)


def _shares_words(question: str, answer: str) -> bool:
    return not (set(words(question)) & set(words(answer))) <= EMPTY_WORDS


def _paired(questions: Sequence[Question], members: Sequence[int], order: Priorities) -> Iterable[tuple[int, int]]:
    """Pairs among questions of one kind: always one with the answer that most of the rest have, and the next best."""
    answers: dict[str, list[int]] = {}
    for index in sorted(members, key=lambda index: (-int(order[index]), index)):
        answers.setdefault(normalise(true_answer(questions[index])), []).append(index)  # drawn from the end
    heap = [_entry(answer, rest, order) for answer, rest in answers.items()]
    heapq.heapify(heap)
    while heap:
        *_, answer = heapq.heappop(heap)
        index = answers[answer].pop()
        passed = []
        while heap:
            passed.append(heapq.heappop(heap))
            others = answers[passed[-1][-1]]
            found = next((other for other in reversed(others) if _exchange(questions[index], questions[other])), None)
            if found is not None:
                others.remove(found)
                yield index, found
                break
        for one in {answer, *(entry[-1] for entry in passed)}:
            if answers[one]:
                heapq.heappush(heap, _entry(one, answers[one], order))


def _entry(answer: str, rest: Sequence[int], order: Priorities) -> tuple[int, int, str]:
    """The answer with most questions comes first; of equals, the one whose next question was drawn first."""
    return -len(rest), int(order[rest[-1]]), answer


def _exchange(first: Question, second: Question) -> bool:
    """Whether each has an answer that is clearly false for the other."""
    return all(
        not _shares_words(asked.question, true_answer(giver))
        and not any(grade(answer, asked.answers, asked.question) for answer in giver.answers)
        for asked, giver in ((first, second), (second, first))
    )


@dataclass(frozen=True)
class AnswerSet:
    """Answers with their states at one place."""

    name: str
    """As in the column `variant`."""
    items: Sequence[Item]
    """Of the matched answers four per pair: the first question with the true and the false answer, then the second."""
    labels: Bool[ndarray, " item"]
    """Which answers are true."""
    groups: Int[ndarray, " item"]
    """What never stands on both sides of a split."""
    folds: Int[ndarray, " item"]
    """Groups whole: by these an item's share is predicted from other items."""
    clean: Float[Tensor, "layer item d_model"]
    """Nothing cut."""
    cut: Mapping[str, Float[Tensor, "layer item d_model"]]
    """Under each cut, by its name."""
    weights: Float[ndarray, "resample item"]
    """Bootstrap weights over its own groups."""
    device: str
    """Where draws are computed."""

    @cached_property
    def draws(self) -> Draws:
        """The bootstrap's draws."""
        from anchorscope.evidence.draws import Draws

        return Draws.of(self.weights, self.device)

    def in_layers(self, layers: Sequence[int]) -> AnswerSet:
        """The same with the states of some layers only."""
        return replace(self, clean=self.clean[layers], cut={name: one[layers] for name, one in self.cut.items()})


@dataclass(frozen=True)
class SetShares:
    """What was measured of a set."""

    answers: AnswerSet
    halves: Halves
    """Who learned from whom."""
    evidence: Float[ndarray, "layer split item"]
    """z: log-odds by the probe of the other half."""
    lost: Mapping[str, Lost]
    """By cut; `none` among them."""
    seed: int
    """Of the draws."""

    @cached_property
    def draws(self) -> ShareDraws:
        """The draws of the shares."""
        from anchorscope.question_share.shares import ShareDraws

        rng = stream(self.seed, "experiment", self.answers.name, "splits")
        return ShareDraws(self.answers.weights, self.halves.n_splits, rng)

    def share(self, cut: str, place: int, group: str = "all") -> Float[Tensor, " draw"]:
        """Λ of a group of items under a cut, in one of the layers, in every draw."""
        import torch

        from anchorscope.question_share.evidence import GROUPS, Lost

        found = Lost(*(part[place : place + 1] for part in self.lost[cut]))
        return torch.from_numpy(self.draws.shares(found, GROUPS.index(group))[0])

    def has_evidence(self, place: int) -> bool:
        """Whether the probes of a layer have evidence that a share could be of."""
        had = next(iter(self.lost.values())).had[place : place + 1]
        return bool(self.draws.has_evidence(had)[0])

    def auc(self, place: int) -> Float[Tensor, " draw"]:
        """AUC in every draw: of each split's scores within its halves, averaged over the splits."""
        import torch

        from anchorscope.evidence.draws import areas

        found = [
            areas(scores[None].astype(np.float32), self.answers.labels, first.astype(np.int64), self.answers.draws)[0]
            for scores, first in zip(self.evidence[place], self.halves.first, strict=True)
        ]
        return torch.stack(found).mean(dim=0)


def measure_shares(answers: AnswerSet, directions: int, seed: int, progress: Progress) -> SetShares:
    """Half-split probes on the clean states, and what each cut takes from their evidence."""
    from anchorscope.question_share.evidence import clean_evidence, lost_evidence, make_halves
    from anchorscope.question_share.principal import principal_states

    labels, device, title = answers.labels, answers.device, f"{answers.name} answers"
    strata = truth_strata(labels, [item.question.relation for item in answers.items])
    halves = make_halves(answers.groups, strata, seed, [item.item_id for item in answers.items])
    clean = principal_states(answers.clean, directions, device)
    evidence = clean_evidence(clean, halves, labels, device, progress, f"{title}: probes")
    states = {name: principal_states(cut, directions, device) for name, cut in answers.cut.items()} | {FLOOR: clean}
    lost = {
        name: lost_evidence(
            evidence, after, halves, labels, answers.folds, device, progress, f"{title}: question share, {name}"
        )
        for name, after in states.items()
    }
    return SetShares(answers, halves, evidence.held_out(halves).numpy(), lost, seed)


def share_rows(measured: SetShares, layers: Sequence[int], reference: int) -> tuple[list[Statistic], list[str]]:
    """AUC and Λ of every cut in every layer, within true and false answers at the reference layer; and what is missing.

    A layer whose probes have no evidence has an AUC and no share.
    """
    from anchorscope.evidence.draws import resampling

    answers, labels = measured.answers.name, measured.answers.labels
    method = f"{measured.halves.n_splits} half splits, bootstrap over groups"
    rows, idle = [], []
    with resampling(measured.answers.draws.device):
        for place, layer in enumerate(layers):
            found = estimate_of(measured.auc(place), len(labels), method)
            rows.append(Statistic("auc", found, answers, truth="all", probe_layer=layer))
            if not measured.has_evidence(place):
                idle.append(str(layer))
                continue
            for cut in measured.lost:
                quantity = "question_share" if cut == "knockout" else f"question_share_{cut}"
                for truth in TRUTHS if layer == reference else ("all",):
                    n = int(of_truth(labels, truth).sum())
                    found = estimate_of(measured.share(cut, place, truth), n, method)
                    rows.append(Statistic(quantity, found, answers, truth=truth, probe_layer=layer))
    missing = [f"question_share of {answers} answers in layers {', '.join(idle)}: the probe has no evidence there"]
    return rows, missing if idle else []


def some_layers(n_layers: int, reference: int, most: int) -> list[int]:
    """The reference layer, and others spread evenly from the first to the last, at most so many in all."""
    spread = np.linspace(0, n_layers - 1, min(most - 1, n_layers)).round().astype(int).tolist()
    return sorted({reference, *spread})


def run(inputs: ExperimentInputs) -> Found:
    """Builds the pairs, runs them, and measures both sets alike."""
    from anchorscope.interventions.cuts import KNOCKOUT, RANDOM

    asked = [item for item in inputs.items if item.tokens is not None]
    most = min(inputs.setting.most_items or MOST_PAIRS, MOST_PAIRS)
    questions, spans = _looked_at(asked, most * _LOOKED_AT, inputs.setting.seed)
    matching = match_questions(questions, inputs.setting.seed)
    missing = [told for told in (matching.told(), _about_kinds(matching)) if told]
    if len(matching.pairs) < FEWEST_PAIRS:
        few = f"only {len(matching.pairs)} pairs of questions can exchange their answers, {FEWEST_PAIRS} needed"
        return Found(missing=("; ".join([few, *missing]),))
    items, too_long = _items_of_pairs(inputs, matching, questions, spans, most)
    if too_long:
        missing.append(f"{too_long} pairs are left out: with the other's answer they do not fit the model's context")
    if len(items) < FEWEST_PAIRS * SIZE:
        return Found(missing=("; ".join([f"only {len(items) // SIZE} pairs, {FEWEST_PAIRS} needed", *missing]),))
    states = run_supplied(inputs, items, "matched strings", (KNOCKOUT, RANDOM))
    labels = np.array([bool(item.label.truthful) for item in items])
    groups = np.array([item.label.group for item in items], dtype=np.int64)
    weights = group_weights(groups, len(inputs.weights), inputs.rng("matched"))
    folds = groups % _FOLDS  # dealt out in turn, so that every fold has every relation
    matched = AnswerSet(MATCHED, items, labels, groups, folds, states.clean, states.cut, weights, inputs.device)
    counted = Estimate(len(items) // SIZE, np.nan, np.nan, len(items), "counted")
    baselines = _baselines(matched, states.log_probs)
    shares, idle = _shares(inputs, matched)
    statistics = (Statistic("pairs", counted, MATCHED), *baselines, *_free_probe(inputs, matched), *shares)
    return Found(statistics, missing=(*missing, *idle))


def _looked_at(asked: Sequence[Item], most: int, seed: int) -> tuple[list[Question], list[QuestionSpans]]:
    """Questions with their exact words: all that have an answer to read, or so many drawn at random."""
    some = drawn(priorities(seed, "matched questions", [item.item_id for item in asked]), most)
    chosen = [asked[index] for index in some]
    # Answers and labels of the run do not matter here: the accepted answers do.
    questions = [replace(item.question, model_answer=None, truthful=None) for item in chosen]
    return questions, [item.located.words or locate_question_words(item.question) for item in chosen]


def _about_kinds(matching: Matching) -> str | None:
    if not matching.without_relation:
        return None
    return (
        f"{matching.without_relation} of {matching.n_questions} questions have no relation: they exchange answers with "
        f"questions that ask with the same word and have an answer of the same shape, so that many false answers are "
        f"of another kind than the true one"
    )


def _items_of_pairs(
    inputs: ExperimentInputs,
    matching: Matching,
    questions: Sequence[Question],
    spans: Sequence[QuestionSpans],
    most: int,
) -> tuple[list[Item], int]:
    """The items of the pairs that the model can read, pair by pair, and how many pairs it cannot."""
    pairs = some_pairs(matching, questions, most, inputs.setting.seed)
    texts = matched_questions(questions, pairs)
    exact_words = [spans[index] for pair in pairs for index in (pair.first, pair.first, pair.second, pair.second)]
    groups = np.repeat(np.arange(len(pairs)), SIZE)
    told = imbalances(texts, groups)
    assert not told, f"not as often true as false: {told[0]}"
    items = supplied_items(inputs.setting.writer(), texts, exact_words, groups.tolist())
    whole = [items[first : first + SIZE] for first in range(0, len(items), SIZE)]
    fitting = [pair for pair in whole if all_fit(inputs, pair)]
    return [
        replace(item, label=replace(item.label, group=group)) for group, pair in enumerate(fitting) for item in pair
    ], len(whole) - len(fitting)


def _baselines(matched: AnswerSet, log_probs: Sequence[Sequence[float]]) -> list[Statistic]:
    """What is at 0.5 by design, out of fold with pairs whole, and the model's own confidence, which is not."""
    from anchorscope.evidence.scores import relation_only, words_only

    labels, folds = matched.labels, matched.folds
    questions = [item.question.question for item in matched.items]
    answers = [item.answer.text for item in matched.items]
    relations = [item.question.relation for item in matched.items]
    together = np.zeros_like(folds)
    return [
        _auc("auc_words", words_only(questions, answers, labels, folds), matched, folds),
        _auc("auc_relation", relation_only(relations, labels, folds), matched, folds),
        _auc("auc_confidence_mean", np.array([np.mean(tokens) for tokens in log_probs]), matched, together),
        _auc("auc_confidence_min", np.array([np.min(tokens) for tokens in log_probs]), matched, together),
    ]


def _auc(quantity: str, scores: ndarray, matched: AnswerSet, strata: ndarray, layer: int | None = None) -> Statistic:
    from anchorscope.evidence.draws import areas, resampling

    with resampling(matched.draws.device):
        samples = areas(scores[None].astype(np.float32), matched.labels, strata, matched.draws)[0]
    found = estimate_of(samples, len(matched.items))
    return Statistic(quantity, found, MATCHED, truth="all", probe_layer=layer)


def _free_probe(inputs: ExperimentInputs, matched: AnswerSet) -> list[Statistic]:
    """The run's own probe, trained on the model's answers, on the matched ones: its AUC, and the pairs that it wins."""
    layer = inputs.most_frequent_reference
    fold_of = {item.label.group: int(fold) for item, fold in zip(inputs.used_items, inputs.splits.folds, strict=True)}
    group_of = {item.item_id: item.label.group for item in inputs.items}
    ids = [item.item_id.rpartition(":")[0] for item in matched.items]
    folds = np.array([fold_of.get(group_of[one], 0) for one in ids], dtype=np.int64)  # no probe knows the others
    full = inputs.measured.probe("full")
    weight, bias = (part[full, :, layer].float() for part in (inputs.probes.weight, inputs.probes.bias))
    scores = (matched.clean[layer].float() @ weight.T + bias).numpy()[np.arange(len(folds)), folds]
    # Two questions may lie in different folds, whose probes are not compared: only the rivals of one question are.
    won = _won(scores, matched, layer, "won_free_probe", ("question",))
    return [_auc("auc_free_probe", scores, matched, folds, layer), *won]


def _won(scores: ndarray, matched: AnswerSet, layer: int, quantity: str, by: Sequence[str]) -> list[Statistic]:
    """How often the true one of two items scores higher: of one question, or of one answer; ties count half."""
    true_first, false_first, true_second, false_second = np.arange(len(scores)).reshape(-1, SIZE).T
    rivals = {"question": (false_first, false_second), "answer": (false_second, false_first)}
    rows = []
    for name in by:
        won = np.full(len(scores), np.nan)
        for true, false in zip((true_first, true_second), rivals[name], strict=True):
            won[true] = np.heaviside(scores[true] - scores[false], 0.5)
        samples = group_means(won[:, None], np.isfinite(won), matched.draws)[0]
        found = estimate_of(samples, len(scores) // 2)
        rows.append(Statistic(quantity, found, MATCHED, f"same {name}", truth="all", probe_layer=layer))
    return rows


def _shares(inputs: ExperimentInputs, matched: AnswerSet) -> tuple[list[Statistic], list[str]]:
    """Λ of the matched answers and of the model's own, with the same number of directions; and what is missing."""
    from anchorscope.question_share.principal import default_directions

    reference, n_layers, width = inputs.most_frequent_reference, len(matched.clean), matched.clean.shape[-1]
    layers = some_layers(n_layers, reference, MOST_LAYERS)
    place = layers.index(reference)
    cut_states = inputs.cut_states()
    free = AnswerSet(
        FREE,
        inputs.used_items,
        inputs.measured.labels,
        inputs.measured.groups,
        inputs.splits.folds,
        inputs.states(),
        {name: cut_states[name] for name in matched.cut},
        inputs.weights,
        inputs.device,
    )
    directions = min(default_directions(len(answers.labels), width) for answers in (matched, free))
    own, others = (
        measure_shares(answers.in_layers(layers), directions, inputs.setting.seed, inputs.progress)
        for answers in (matched, free)
    )
    rows, idle = share_rows(own, layers, reference)
    other_rows, other_idle = share_rows(others, layers, reference)
    scores = own.evidence[place].mean(axis=0)  # the items of a pair are always scored by the same probe
    rows += [*other_rows, *_won(scores, matched, reference, "won", ("question", "answer"))]
    if own.has_evidence(place) and others.has_evidence(place):
        n, method = len(matched.labels) + len(free.labels), "difference of two bootstraps over groups, drawn apart"
        difference = estimate_of(own.share("knockout", place) - others.share("knockout", place), n, method)
        row = Statistic("question_share_difference", difference, MATCHED, FREE, truth="all", probe_layer=reference)
        rows.append(row)
    return rows, [*idle, *other_idle]


EXPERIMENT = Experiment(
    "matched", "questions exchange their accepted answers: AUC and question share where words cannot tell", run
)


SETS = {MATCHED: "exchanged answers", FREE: "the model's own answers"}
"""Variant → its words."""
AREAS = {
    "auc": "probe trained on them",
    "auc_free_probe": "the run's own probe",
    "auc_confidence_mean": "mean log-probability",
    "auc_confidence_min": "lowest log-probability",
    "auc_words": "words alone",
    "auc_relation": "relation alone",
}
"""What tells true from false, and how well."""
SHARES = {
    "question_share": "key words cut",
    "question_share_random": "random tokens cut",
    "question_share_none": "nothing cut (floor)",
}
WINS = {
    "won, same question": "of one question, the true answer wins",
    "won, same answer": "of one answer, the question it is true for wins",
    "won_free_probe, same question": "of one question, the true answer wins, by the run's own probe",
}
_STYLES: dict[str, dict[str, Any]] = {
    MATCHED: {"color": "#0072b2", "marker": "o", "markersize": 4.6, "markerfacecolor": "#0072b2"},
    FREE: {"color": CONTROL_GREY, "marker": "s", "markersize": 4.6, "markerfacecolor": "white"},
}
_MARKS = Marks("variant", {name: (words, _STYLES[name]) for name, words in SETS.items()}, 0.3)
_COLUMNS = ("dataset", "quantity", "variant", "truth", "probe_layer", "value", "ci_low", "ci_high", "n", "method")


def reference_rows(findings: Findings) -> pl.DataFrame:
    """Rows at the reference layer: those in the layer that is also told within truth, and those without a layer."""
    table = statistics(findings, "matched")
    layers = select(table, truth="true").select("dataset", "probe_layer").unique()
    with_layer = table.join(layers, on=["dataset", "probe_layer"], how="semi")
    return pl.concat([table.filter(pl.col("probe_layer").is_null()), with_layer])


def _drawn(findings: Findings) -> pl.DataFrame:
    return select(reference_rows(findings), quantity=(*AREAS, *SHARES), truth="all").select(_COLUMNS)


def _wins(rows: pl.DataFrame) -> pl.DataFrame:
    return select(rows.with_columns(pair=pl.format("{}, {}", "quantity", "against")), pair=tuple(WINS))


def _knows(rows: pl.DataFrame) -> section.Said | None:
    mine = select(rows, variant=MATCHED, truth="all")
    area, share = find(mine, quantity="auc"), find(mine, quantity="question_share")
    said = section.number(area, above(area, section.HALF), estimate, "AUC")
    return (
        said
        if said is None or share is None
        else section.Said(said.verdict, f"{said.numbers}; question share {estimate(share)}")
    )


SECTION = section.SectionSpec(
    slug="matched",
    title="Matched strings",
    rows=reference_rows,
    asks="Does the probe know truth where words cannot tell? Questions have exchanged their answers, so that words "
    "alone reach 0.5.",
    careful="A larger share here than among the model's own answers means that there answers speak for themselves.",
    answer=section.Answer(
        "A probe tells true from false where words cannot",
        "A probe tells nothing where words cannot tell",
        "Whether a probe tells true from false where words cannot is undecided",
        _knows,
    ),
    charts=(
        ChartSpec(
            "matched",
            "answers exchanged between questions",
            "AUC and question share of exchanged answers and of the model's own",
            "At the most frequent reference layer.",
            "Left: AUC of true against false answers; words and relation are at 0.5 by design. Right: the share of the "
            "probe's evidence that needs what was cut. Lines: 95 % intervals.",
            _drawn,
            lambda _: [
                Forest("quantity", AREAS, _MARKS, "AUC", null=section.HALF),
                Forest("quantity", SHARES, _MARKS, "Λ"),
            ],
            height=2.0,
            labels=1.5,
            gap=1.6,
            legend_columns=2,
        ),
    ),
    tables=(
        section.TableSpec(
            "What tells true from false",
            (section.Key("quantity", "what tells truth (AUC)", AREAS),),
            tuple(
                column
                for name, words in SETS.items()
                for column in (section.value(words, estimate, variant=name), section.items(variant=name))
            ),
            lambda rows: select(rows, quantity=tuple(AREAS), truth="all"),
        ),
        section.TableSpec(
            "Share of the probe's evidence that needs what was cut",
            (section.Key("variant", "answers", SETS), section.Key("quantity", "cut", SHARES)),
            tuple(
                section.value(head, estimate, truth=truth)
                for head, truth in zip(("share", "true answers", "false answers"), TRUTHS, strict=True)
            ),
            lambda rows: select(rows, quantity=tuple(SHARES)),
        ),
        section.TableSpec(
            "How often the true one of two items scores higher",
            (section.Key("pair", "pairs", WINS),),
            (section.value("share", percent), section.items("true items")),
            _wins,
        ),
    ),
)
