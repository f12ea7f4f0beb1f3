"""Matched strings: does the probe still know truth, and how much of that needs the question, if words cannot tell?

The questions of the run exchange their accepted answers two by two (`matched_pairs`), so that every answer is true for
one question and false for another, every question has one of each, and words, answers and relations alone are at an
AUC of 0.5 by design. The model reads these supplied answers, clean and with the key words or random tokens cut. Probes
are trained anew on half of the pairs and score the other half; the question share Λ stands beside that of the model's
own answers. There an answer can speak for itself (some answers are likelier to be true than others); here it cannot.
So what Λ lacks of 1 among the model's own answers and not here was the answers' priors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from anchorscope.datasets.question import Question
from anchorscope.evidence.areas import areas
from anchorscope.evidence.draws import Draws, resampling
from anchorscope.evidence.experiments.compare import METHOD, estimate_of, group_means
from anchorscope.evidence.experiments.experiment import Experiment, ExperimentInputs, Found, Statistic
from anchorscope.evidence.experiments.heads import most_frequent_reference
from anchorscope.evidence.experiments.matched_pairs import (
    SIZE,
    Matching,
    imbalances,
    match_questions,
    matched_questions,
    some_pairs,
)
from anchorscope.evidence.experiments.set_shares import (
    AnswerSet,
    measure_shares,
    share_difference,
    share_rows,
    some_layers,
)
from anchorscope.evidence.experiments.supplied import SuppliedStates, all_fit, run_supplied, supplied_items
from anchorscope.evidence.probe_scores import relation_only, words_only
from anchorscope.items import Item
from anchorscope.question_share.principal import default_directions
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.stats.estimate import Estimate, group_weights
from anchorscope.stats.streams import drawn, priorities

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


@dataclass(frozen=True)
class MatchedSet:
    """The supplied items, pair by pair, and their states."""

    items: Sequence[Item]
    """Four of each pair: the first question with the true and the false answer, then the second."""
    states: SuppliedStates
    """Of these items."""
    weights: Float[ndarray, "resample item"]
    """Bootstrap weights over the pairs."""
    device: str
    """Where draws are computed."""

    @cached_property
    def draws(self) -> Draws:
        """The bootstrap's draws."""
        return Draws.of(self.weights, self.device)

    @property
    def labels(self) -> Bool[ndarray, " item"]:
        """Which answers are true."""
        return np.array([bool(item.label.truthful) for item in self.items])

    @property
    def groups(self) -> Int[ndarray, " item"]:
        """The pair of each item."""
        return np.array([item.label.group for item in self.items], dtype=np.int64)


def run(inputs: ExperimentInputs) -> Found:
    """Builds the pairs, runs them, and measures both sets alike."""
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
    matched = _run_pairs(inputs, items)
    counted = Estimate(len(matched.items) // SIZE, np.nan, np.nan, len(matched.items), "counted")
    shares, idle = _shares(inputs, matched)
    statistics = (Statistic("pairs", counted, MATCHED), *_baselines(matched), *_free_probe(inputs, matched), *shares)
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
    words = [spans[index] for pair in pairs for index in (pair.first, pair.first, pair.second, pair.second)]
    groups = np.repeat(np.arange(len(pairs)), SIZE)
    told = imbalances(texts, groups)
    assert not told, f"not as often true as false: {told[0]}"
    items = supplied_items(inputs.setting.writer(), texts, words, groups.tolist())
    whole = [items[first : first + SIZE] for first in range(0, len(items), SIZE)]
    fitting = [pair for pair in whole if all_fit(inputs, pair)]
    return [
        replace(item, label=replace(item.label, group=group)) for group, pair in enumerate(fitting) for item in pair
    ], len(whole) - len(fitting)


def _run_pairs(inputs: ExperimentInputs, items: Sequence[Item]) -> MatchedSet:
    groups = np.repeat(np.arange(len(items) // SIZE), SIZE)
    weights = group_weights(groups, len(inputs.weights), inputs.rng("matched"))
    return MatchedSet(items, run_supplied(inputs, items, "matched strings"), weights, inputs.device)


def _baselines(matched: MatchedSet) -> list[Statistic]:
    """What is at 0.5 by design, out of fold with pairs whole, and the model's own confidence, which is not."""
    labels, folds = matched.labels, matched.groups % _FOLDS  # dealt out in turn, so that every fold has every relation
    questions = [item.question.question for item in matched.items]
    answers = [item.answer.text for item in matched.items]
    log_probs = matched.states.log_probs
    scores = {
        "words": words_only(questions, answers, labels, folds),
        "relation": relation_only([item.question.relation for item in matched.items], labels, folds),
        "confidence_mean": np.array([np.mean(one) for one in log_probs]),
        "confidence_min": np.array([np.min(one) for one in log_probs]),
    }
    together = np.zeros_like(folds)
    return [
        _auc(f"auc_{name}", values, matched, together if name.startswith("confidence") else folds)
        for name, values in scores.items()
    ]


def _auc(quantity: str, scores: ndarray, matched: MatchedSet, strata: ndarray, layer: int | None = None) -> Statistic:
    with resampling(matched.draws.device):
        samples = areas(scores[None].astype(np.float32), matched.labels, strata, matched.draws)[0]
    found = estimate_of(samples, len(matched.items))
    return Statistic(quantity, found, MATCHED, truth="all", probe_layer=layer)


def _free_probe(inputs: ExperimentInputs, matched: MatchedSet) -> list[Statistic]:
    """The run's own probe, trained on the model's answers, on the matched ones: its AUC, and the pairs that it wins."""
    layer = most_frequent_reference(inputs)
    fold_of = {item.label.group: int(fold) for item, fold in zip(inputs.used_items, inputs.splits.folds, strict=True)}
    group_of = {item.item_id: item.label.group for item in inputs.items}
    ids = [item.item_id.rpartition(":")[0] for item in matched.items]
    folds = np.array([fold_of.get(group_of[one], 0) for one in ids], dtype=np.int64)  # no probe knows the others
    full = inputs.measured.probe("full")
    weight, bias = (part[full, :, layer].float() for part in (inputs.probes.weight, inputs.probes.bias))
    scores = (matched.states.clean[layer].float() @ weight.T + bias).numpy()[np.arange(len(folds)), folds]
    # Two questions may lie in different folds, whose probes are not compared: only the rivals of one question are.
    won = _won(scores, matched, layer, "won_free_probe", ("question",))
    return [_auc("auc_free_probe", scores, matched, folds, layer), *won]


def _won(scores: ndarray, matched: MatchedSet, layer: int, quantity: str, by: Sequence[str]) -> list[Statistic]:
    """How often the true one of two items scores higher: of one question, or of one answer; ties count half."""
    true_first, false_first, true_second, false_second = np.arange(len(scores)).reshape(-1, SIZE).T
    rivals = {"question": (false_first, false_second), "answer": (false_second, false_first)}
    rows = []
    for name in by:
        won = np.full(len(scores), np.nan)
        for true, false in zip((true_first, true_second), rivals[name], strict=True):
            won[true] = np.heaviside(scores[true] - scores[false], 0.5)
        samples = group_means(won[:, None], np.isfinite(won), matched.draws)[0]
        found = estimate_of(samples, len(scores) // 2, METHOD)
        rows.append(Statistic(quantity, found, MATCHED, f"same {name}", truth="all", probe_layer=layer))
    return rows


def _shares(inputs: ExperimentInputs, matched: MatchedSet) -> tuple[list[Statistic], list[str]]:
    """Λ of the matched answers and of the model's own, with the same number of directions; and what is missing."""
    reference, clean = most_frequent_reference(inputs), matched.states.clean
    layers = some_layers(len(clean), reference, MOST_LAYERS)
    place = layers.index(reference)
    sets = (_matched_answers(matched, layers), _free_answers(inputs, layers, list(matched.states.cut)))
    directions = min(default_directions(len(one.labels), clean.shape[-1]) for one in sets)
    both = [measure_shares(one, directions, inputs.setting.seed, inputs.device, inputs.progress) for one in sets]
    found = [share_rows(one, layers, reference) for one in both]
    rows, idle = ([one for part in parts for one in part] for parts in zip(*found, strict=True))
    scores = both[0].evidence[place].mean(axis=0)  # the items of a pair are always scored by the same probe
    rows += _won(scores, matched, reference, "won", ("question", "answer"))
    if all(one.has_evidence(place) for one in both):
        rows.append(share_difference(both[0], both[1], place, reference))
    return rows, idle


def _matched_answers(matched: MatchedSet, layers: Sequence[int]) -> AnswerSet:
    return AnswerSet(
        MATCHED,
        matched.labels,
        matched.groups,
        [item.question.relation for item in matched.items],
        [item.item_id for item in matched.items],
        matched.groups % _FOLDS,
        matched.states.clean[layers],
        {name: states[layers] for name, states in matched.states.cut.items()},
        matched.weights,
    )


def _free_answers(inputs: ExperimentInputs, layers: Sequence[int], cuts: Sequence[str]) -> AnswerSet:
    items, cut_states = inputs.used_items, inputs.cut_states()
    return AnswerSet(
        FREE,
        inputs.measured.labels,
        inputs.measured.groups,
        [item.question.relation for item in items],
        [item.item_id for item in items],
        inputs.splits.folds,
        inputs.states()[layers],
        {name: cut_states[name][layers] for name in cuts},
        inputs.weights,
    )


EXPERIMENT = Experiment(
    "matched", "questions exchange their accepted answers: AUC and question share where words cannot tell", run
)
