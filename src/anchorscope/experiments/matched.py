"""Matched strings: does the probe still know truth, and how much of that needs the question, if words cannot tell?

The questions of the run exchange their accepted answers two by two: from "capital of France: Paris" and "capital of
Peru: Lima" come four items, two of them false. Every word of a question and of an answer is in as many true as false
items of such a group, so words, answers and relations alone are at an AUC of 0.5 by design as long as groups stay
whole. The model reads these supplied answers, clean and with the key words or random tokens cut. Probes are trained on
half of the pairs and score the other half. A question alone or an answer alone tells nothing here, so nearly all of the
evidence has to need both together; the parts of the model's own answers stand beside them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from anchorscope.answers.grade import grade
from anchorscope.catalogue import KNOCKOUT
from anchorscope.datasets.question import Question
from anchorscope.datasets.text import normalise, words
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    Statistic,
)
from anchorscope.experiments.statistics import (
    Bools,
    Floats,
    Indices,
    auc_samples,
    estimate_of,
)
from anchorscope.experiments.supplied import all_fit, run_supplied, supplied_items
from anchorscope.items import Item
from anchorscope.report.findings import find, select
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words
from anchorscope.spans.words import EMPTY_WORDS, QUESTION_WORDS
from anchorscope.stats.estimate import Estimate, group_weights
from anchorscope.stats.streams import Priorities, drawn, priorities

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.evidence.draws import Draws

CLEAN = "clean"
MATCHED, FREE = "matched", "free"
"""The supplied answers, and the model's own."""
FEWEST_PAIRS = 30
"""Pairs below which nothing is reported: 60 true and 60 false answers."""
MOST_PAIRS = 750
"""3,000 items: as many as a run uses of a dataset."""
SIZE = 4
"""Items of a pair: two questions, two answers each."""
_FOLDS = 5  # of the baselines that learn
_TRIED = 3  # questions tried for every wanted pair: some find no partner


def match_questions(
    questions: Sequence[Question], seed: int
) -> tuple[list[tuple[int, int]], list[str]]:
    """Pairs of questions of one kind, by index, no question in two; and what to report of the others.

    Ties between equally good partners are broken by the seed.
    """
    clear = [
        index for index, question in enumerate(questions) if _has_clear_answer(question)
    ]
    kinds: dict[str, list[int]] = {}
    for index in clear:
        kinds.setdefault(kind_of(questions[index]), []).append(index)
    order = priorities(seed, "matched", [question.item_id for question in questions])
    pairs = [
        (min(pair), max(pair))
        for _, members in sorted(kinds.items())
        for pair in _pair_questions(questions, members, order)
    ]
    repeated, alone = len(questions) - len(clear), len(clear) - 2 * len(pairs)
    without_relation = sum(question.relation is None for question in questions)
    reasons = []
    if repeated or alone:
        reasons.append(
            f"of {len(questions)} questions {repeated} whose answer shares a word with the question or is not graded "
            f"as right and {alone} to which no other question of the same kind has a clearly false answer are left out"
        )
    if without_relation:
        reasons.append(
            f"{without_relation} of {len(questions)} questions have no relation: they exchange answers with questions "
            f"that ask with the same word and have an answer of the same shape, so that many false answers are of "
            f"another kind than the true one"
        )
    return sorted(pairs), reasons


def true_answer(question: Question) -> str:
    """The answer that represents a question: the first accepted one, which is how datasets name it.

    Sets without relations list redirects in any order: there it is the form closest to the others.
    """
    if question.relation is not None or len(question.answers) < 3:
        return question.answers[0]
    forms = [set(words(answer)) for answer in question.answers]
    alike = [
        sum(len(form & other) / max(1, len(form | other)) for other in forms)
        for form in forms
    ]
    return question.answers[int(np.argmax(alike))]


def matched_questions(
    questions: Sequence[Question], pairs: Iterable[tuple[int, int]]
) -> list[Question]:
    """The four items of each pair, with their answers and labels."""
    return [
        replace(
            questions[own],
            item_id=f"{questions[own].item_id}:{'true' if truthful else 'false'}",
            model_answer=true_answer(questions[own if truthful else other]),
            truthful=truthful,
        )
        for first, second in pairs
        for own, other in ((first, second), (second, first))
        for truthful in (True, False)
    ]


def kind_of(question: Question) -> str:
    """What a question may exchange answers within."""
    if question.relation is not None:
        return question.relation
    asking = next(
        (word for word in words(question.question) if word in QUESTION_WORDS),
        "no question word",
    )
    answer = words(true_answer(question))
    words_in_it = "one word" if len(answer) < 2 else "several words"
    return f"{asking}, {'number' if any(word[0].isdigit() for word in answer) else words_in_it}"


def _has_clear_answer(question: Question) -> bool:
    if not question.answers:
        return False
    answer = true_answer(question)
    return not _shares_words(question.question, answer) and grade(
        answer, question.answers, question.question
    )


def _shares_words(question: str, answer: str) -> bool:
    return not (set(words(question)) & set(words(answer))) <= EMPTY_WORDS


def _pair_questions(
    questions: Sequence[Question], members: Sequence[int], order: Priorities
) -> Iterable[tuple[int, int]]:
    """Pairs among questions of one kind, the most frequent answers first, so that more questions find a partner."""
    answers: dict[str, list[int]] = {}
    for index in sorted(members, key=lambda index: (-int(order[index]), index)):
        # drawn from the end
        answers.setdefault(normalise(true_answer(questions[index])), []).append(index)
    heap = [_entry(answer, rest, order) for answer, rest in answers.items()]
    heapq.heapify(heap)
    while heap:
        *_, answer = heapq.heappop(heap)
        index = answers[answer].pop()
        passed = []
        while heap:
            passed.append(heapq.heappop(heap))
            others = answers[passed[-1][-1]]
            partner = next(
                (
                    other
                    for other in reversed(others)
                    if _exchange(questions[index], questions[other])
                ),
                None,
            )
            if partner is not None:
                others.remove(partner)
                yield index, partner
                break
        for waiting in {answer, *(entry[-1] for entry in passed)}:
            if answers[waiting]:
                heapq.heappush(heap, _entry(waiting, answers[waiting], order))


def _entry(answer: str, rest: Sequence[int], order: Priorities) -> tuple[int, int, str]:
    """The answer with most questions comes first; of equals, the one whose next question was drawn first."""
    return -len(rest), int(order[rest[-1]]), answer


def _exchange(first: Question, second: Question) -> bool:
    """Whether neither accepts an answer of the other, and no word stands in a question and an answer."""
    return all(
        not _shares_words(asked.question, true_answer(giver))
        and not any(
            grade(answer, asked.answers, asked.question) for answer in giver.answers
        )
        for asked, giver in ((first, second), (second, first))
    )


@dataclass(frozen=True)
class AnswerSet:
    """Answers with their states at the headline place and one layer."""

    name: str
    """As in the column `variant`."""
    items: Sequence[Item]
    labels: Bools
    groups: Indices
    """Never on both sides of a split."""
    folds: Indices
    clean: Tensor
    """[item, d_model]."""
    before: Tensor
    """Clean, before the answer begins."""
    cut: Mapping[str, Tensor]
    """By the name of the cut."""
    draws: Draws
    """The bootstrap over its own groups."""


def measure_set(
    answers: AnswerSet, directions: int, inputs: ExperimentInputs
) -> tuple[Tensor, dict[str, tuple[float, float]]]:
    """AUC by half-split probes in every draw; and shares of the evidence with half of their intervals' widths."""
    import torch

    from anchorscope.evidence_parts.parts import (
        BEFORE,
        BOTH,
        CUT,
        NEEDS_QUESTION,
        EvidenceItems,
        EvidenceSolver,
        evidence_parts,
        side_by_side,
    )
    from anchorscope.evidence_parts.principal import principal_states

    relations = [item.question.relation for item in answers.items]
    ids = [item.item_id for item in answers.items]
    items = EvidenceItems(
        answers.labels, answers.groups, relations, ids, inputs.setting.seed
    )
    states = {CLEAN: answers.clean, BEFORE: answers.before, **answers.cut}
    reduced = {
        name: principal_states(part[None], directions, inputs.device)
        for name, part in states.items()
    }
    solver = EvidenceSolver(
        reduced[CLEAN], items, inputs.device, inputs.progress, f"{answers.name} answers"
    )
    areas = [
        auc_samples(
            scores.astype(np.float32),
            answers.labels,
            first.astype(np.int64),
            answers.draws,
        )
        for scores, first in zip(
            solver.evidence.held_out(items.halves).numpy()[0],
            items.halves.first,
            strict=True,
        )
    ]
    area = torch.stack(areas).mean(dim=0)
    if not items.are_enough:
        return area, {}
    before = solver.terms(reduced[BEFORE], BEFORE)
    shares: dict[str, tuple[float, float]] = {}
    for name in answers.cut:
        both = side_by_side(reduced[BEFORE], reduced[name], inputs.device)
        needs = {
            CUT: solver.terms(reduced[name], name),
            BEFORE: before,
            BOTH: solver.terms(both, f"{name}, {BOTH}"),
        }
        parts = evidence_parts(needs)
        chosen = (
            parts
            if name == KNOCKOUT
            else {f"{NEEDS_QUESTION}, {name}": parts[NEEDS_QUESTION]}
        )
        shares |= {
            part: (float(share.value[0]), float(share.half_width(*items.levels)[0]))
            for part, share in chosen.items()
        }
    return area, shares


def run(inputs: ExperimentInputs) -> Found:
    """Builds the pairs, runs them, and measures both sets at the most frequent reference layer."""
    from anchorscope.evidence.draws import Draws
    from anchorscope.interventions.cuts import INTERVENTIONS

    most = min(inputs.setting.most_items or MOST_PAIRS, MOST_PAIRS)
    items, missing = pair_items(inputs, most)
    if len(items) < FEWEST_PAIRS * SIZE:
        few = f"only {len(items) // SIZE} pairs of questions can exchange their answers, {FEWEST_PAIRS} needed"
        return Found(missing=("; ".join([few, *missing]),))
    states = run_supplied(
        inputs,
        items,
        "matched strings",
        (INTERVENTIONS[KNOCKOUT], INTERVENTIONS["random"]),
    )
    layer = inputs.most_frequent_reference
    groups = np.array([item.label.group for item in items], dtype=np.int64)
    weights = group_weights(groups, len(inputs.weights), inputs.rng("matched"))
    matched = AnswerSet(
        MATCHED,
        items,
        np.array([bool(item.label.truthful) for item in items]),
        groups,
        groups % _FOLDS,  # dealt out in turn, so that every fold has every relation
        states.clean[layer],
        states.before[layer],
        {name: cut[layer] for name, cut in states.cut.items()},
        Draws.of(weights, inputs.device),
    )
    free = AnswerSet(
        FREE,
        inputs.used_items,
        inputs.measured.labels,
        inputs.measured.groups,
        inputs.splits.folds,
        inputs.states()[layer],
        inputs.states_before_answer()[layer],
        {name: inputs.cut_states()[name][layer] for name in matched.cut},
        inputs.draws,
    )
    counted = Estimate(len(items) // SIZE, np.nan, np.nan, len(items), "counted")
    shares, idle = _shares(inputs, matched, free)
    baselines = _baselines(inputs, matched, states.log_probs)
    return Found(
        (Statistic("pairs", counted, MATCHED), *baselines, *shares),
        missing=(*missing, *idle),
    )


def pair_items(inputs: ExperimentInputs, most: int) -> tuple[list[Item], list[str]]:
    """The items of at most that many pairs that the model can read, pair by pair, and what is left out."""
    asked, seed = (
        [item for item in inputs.items if item.tokens is not None],
        inputs.setting.seed,
    )
    some = drawn(
        priorities(seed, "matched questions", [item.item_id for item in asked]),
        most * _TRIED,
    )
    # Answers and labels of the run do not matter here: the accepted answers do.
    questions = [
        replace(asked[index].question, model_answer=None, truthful=None)
        for index in some
    ]
    spans = [
        asked[index].located.words or locate_question_words(asked[index].question)
        for index in some
    ]
    pairs, missing = match_questions(questions, seed)
    if len(pairs) > most:
        names = [
            f"{questions[first].item_id}\n{questions[second].item_id}"
            for first, second in pairs
        ]
        pairs = [
            pairs[member]
            for member in drawn(priorities(seed, "matched pairs", names), most)
        ]
    exact_words: list[QuestionSpans] = [
        spans[member] for pair in pairs for member in np.repeat(pair, 2)
    ]
    numbers = np.repeat(np.arange(len(pairs)), SIZE).tolist()
    items = supplied_items(
        inputs.setting.writer(),
        matched_questions(questions, pairs),
        exact_words,
        numbers,
    )
    whole = [items[first : first + SIZE] for first in range(0, len(items), SIZE)]
    fitting = [pair for pair in whole if all_fit(inputs, pair)]
    if len(fitting) < len(whole):
        too_long = len(whole) - len(fitting)
        missing.append(
            f"{too_long} pairs are left out: with the other's answer they do not fit the model's context"
        )
    renumbered = [
        replace(item, label=replace(item.label, group=group))
        for group, pair in enumerate(fitting)
        for item in pair
    ]
    return renumbered, missing


def _baselines(
    inputs: ExperimentInputs, matched: AnswerSet, log_probs: Sequence[Sequence[float]]
) -> list[Statistic]:
    """What is at 0.5 by design, out of fold with pairs whole; the model's own confidence; and the run's own probe."""
    from anchorscope.evidence.scores import words_only

    labels, folds = matched.labels, matched.folds
    questions = [item.question.question for item in matched.items]
    answers = [item.answer.text for item in matched.items]
    own, own_folds = _run_probe(inputs, matched)
    return [
        Statistic(
            name,
            estimate_of(samples, len(labels)),
            MATCHED,
            truth="all",
            probe_layer=layer,
        )
        for name, scores, strata, layer in (
            ("auc_words", words_only(questions, answers, labels, folds), folds, None),
            (
                "auc_confidence_mean",
                np.array([np.mean(tokens) for tokens in log_probs]),
                np.zeros_like(folds),
                None,
            ),
            ("auc_free_probe", own, own_folds, inputs.most_frequent_reference),
        )
        for samples in [
            auc_samples(scores.astype(np.float32), labels, strata, matched.draws)
        ]
    ]


def _run_probe(inputs: ExperimentInputs, matched: AnswerSet) -> tuple[Floats, Indices]:
    """Log-odds by the run's own probe, trained on the model's answers, of the fold that never saw the question."""
    layer = inputs.most_frequent_reference
    fold_of = {
        item.label.group: int(fold)
        for item, fold in zip(inputs.used_items, inputs.splits.folds, strict=True)
    }
    group_of = {item.item_id: item.label.group for item in inputs.items}
    asked = [group_of[item.item_id.rpartition(":")[0]] for item in matched.items]
    # no probe knows the others
    folds = np.array([fold_of.get(group, 0) for group in asked], dtype=np.int64)
    weight, bias = (
        part[:, layer].float() for part in (inputs.probes.weight, inputs.probes.bias)
    )
    return (matched.clean.float() @ weight.T + bias).numpy()[
        np.arange(len(folds)), folds
    ], folds


def _shares(
    inputs: ExperimentInputs, matched: AnswerSet, free: AnswerSet
) -> tuple[list[Statistic], list[str]]:
    """AUC and parts of the matched answers and of the model's own, with the same number of directions."""
    from anchorscope.evidence.draws import resampling
    from anchorscope.evidence_parts.half_splits import SPLITS
    from anchorscope.evidence_parts.parts import FEWEST_ANSWERS, FEWEST_GROUPS

    layer, sets = inputs.most_frequent_reference, (matched, free)
    directions = min(inputs.directions(len(answers.labels)) for answers in sets)
    rows, missing = [], []
    with resampling(matched.draws.device):
        for answers in sets:
            n = len(answers.labels)
            area, shares = measure_set(answers, directions, inputs)
            estimates = {
                "auc": estimate_of(
                    area, n, f"{SPLITS} half splits, bootstrap over groups"
                )
            }
            estimates |= {
                part: Estimate(
                    value,
                    value - width,
                    value + width,
                    n,
                    f"{SPLITS} half splits, influence over groups",
                )
                for part, (value, width) in shares.items()
            }
            rows += [
                Statistic(name, number, answers.name, truth="all", probe_layer=layer)
                for name, number in estimates.items()
            ]
            if not shares:
                needed = (
                    f"{FEWEST_ANSWERS} answers and {FEWEST_GROUPS} groups are needed"
                )
                missing.append(
                    f"parts of the evidence of {answers.name} answers: {n} answers; {needed}"
                )
    return rows, missing


EXPERIMENT = Experiment(
    "matched",
    "questions exchange their accepted answers: AUC and parts of the evidence where words cannot tell",
    run,
)

SETS = {MATCHED: "exchanged answers", FREE: "the model's own answers"}
"""Variant → its words."""
AREAS = {
    "auc": "AUC: probe trained on them",
    "auc_free_probe": "AUC: the run's own probe",
    "auc_confidence_mean": "AUC: mean log-probability",
    "auc_words": "AUC: words alone",
}
"""What tells true from false, and how well."""
SHARES = {
    "together": "only both together",
    "question": "question alone",
    "answer": "answer alone",
    "either": "either",
    "needs-question": "needs the key words",
    "needs-question, random": "needs random tokens",
}
"""Parts of the evidence, which sum to 1 without the last two."""


def _knows(rows: pl.DataFrame) -> section.Said | None:
    area, share = (
        find(rows, variant=MATCHED, quantity=quantity)
        for quantity in ("auc", "together")
    )
    answer = section.number(area, above(area, section.HALF), estimate, "AUC")
    if answer is None or share is None:
        return answer
    return section.Said(
        answer.verdict, f"{answer.numbers}; {estimate(share)} of it needs both together"
    )


SECTION = section.SectionSpec(
    slug="matched",
    title="Matched strings",
    asks="Does the probe know truth where words cannot tell? Questions have exchanged their answers, so that words "
    "alone reach 0.5.",
    careful="Less of it among the model's own answers means that there questions or answers speak for themselves.",
    answer=section.Answer(
        "A probe tells true from false where words cannot",
        "A probe tells nothing where words cannot tell",
        "Whether a probe tells true from false where words cannot is undecided",
        _knows,
    ),
    tables=(
        section.TableSpec(
            "What tells true from false, and the parts of the probe's evidence",
            (section.Key("quantity", "number", AREAS | SHARES),),
            tuple(
                column
                for name, words in SETS.items()
                for column in (
                    section.value(words, estimate, variant=name),
                    section.items(variant=name),
                )
            ),
            lambda rows: select(rows, quantity=(*AREAS, *SHARES)),
        ),
    ),
)
