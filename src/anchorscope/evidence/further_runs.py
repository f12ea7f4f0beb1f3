"""Further runs of the items: numbers and states that detectors read, and controls of the parts.

Detectors read the answer's log-probabilities; P(True), the log-odds of "True" where the
model is asked whether its answer is true; how far sampled answers agree (self-consistency; semantic entropy over
clusters of answers that the grader accepts for each other); states under attention multiplied by 1 + α before the
softmax.

Controls read the answer alone, random weights, another item's key words put in (no hole is left), a paraphrase.
"""

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from anchorscope.answers.generate import Answer
from anchorscope.answers.grade import grade
from anchorscope.answers.template import FEW_SHOT, Example, Template, with_examples
from anchorscope.catalogue import BOOSTS, KNOCKOUT, SAMPLES, boost_name
from anchorscope.datasets.relations import reworded
from anchorscope.datasets.text import question_key
from anchorscope.engine.capture import PREVIOUS, AnswerStats
from anchorscope.engine.sequences import (
    CLEAN,
    NO_CUT,
    SITES,
    Cut,
    TokenSequence,
    Variant,
)
from anchorscope.errors import UserError
from anchorscope.evidence_parts.parts import FEWEST_ANSWERS
from anchorscope.execute.executor import Executor
from anchorscope.execute.run_passes import run_choices, run_states
from anchorscope.execute.worker import VariantPart
from anchorscope.interventions.cuts import INTERVENTIONS
from anchorscope.interventions.intervention import Setting
from anchorscope.items import Item
from anchorscope.plan.interventions import plan_cut, plan_rewrite
from anchorscope.plan.passes import (
    Place,
    Planner,
    StatesPass,
    before_answers,
    plan_choices,
    shared_tokens,
)
from anchorscope.progress import Progress

T = TypeVar("T")
Column = Float[ndarray, " item"]


@dataclass(frozen=True)
class ItemPasses:
    """Passes over the items of a dataset, whose states are read at one place."""

    executor: Executor
    planner: Planner
    items: Sequence[Item]
    setting: Setting
    place: Place
    progress: Progress
    compiled: bool = False

    @property
    def sequences(self) -> list[TokenSequence]:
        """The items as the engine runs them."""
        return [item.sequence(self.setting.positions) for item in self.items]

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that all items share."""
        return self.items[0].located.input_ids[: self.items[0].located.prefix_length]

    def run(self, work: StatesPass) -> tuple[VariantPart, ...]:
        """What every variant of a pass gave."""
        return run_states(self.executor, work, self.progress).variants


def confidence_columns(passes: ItemPasses) -> dict[str, Column]:
    """Statistics of the answers' tokens."""
    items, setting, planner = passes.items, passes.setting, passes.planner
    sequences = [item.sequence(setting.positions[:1]) for item in items]
    prefix = before_answers(passes.prefix, sequences)
    work = planner.states("confidence", sequences, prefix)
    clean = given(passes.run(replace(work, answer_stats=True))[0].answers)
    alone = replace(
        planner.states("attention to the token before", sequences, prefix),
        attention=PREVIOUS,
    )
    attention = run_states(passes.executor, alone, passes.progress).attention
    of_tokens = enumerate(clean.by_item())
    return {
        "rauq": np.array(
            [rauq(stats[0], attention[item].previous) for item, stats in of_tokens]
        ),
        "answer_tokens": np.array(
            [len(item.answer.ids) for item in items], dtype=np.float64
        ),
        "log_prob_mean": per_answer(clean.log_prob, clean, np.mean),
        "log_prob_min": per_answer(clean.log_prob, clean, np.min),
        "log_prob_first": per_answer(clean.log_prob, clean, operator.itemgetter(0)),
        "margin_first": per_answer(clean.margin, clean, operator.itemgetter(0)),
        "entropy_mean": per_answer(clean.entropy, clean, np.mean),
    }


RAUQ_SHARE = 0.2
"""α: how much of a token's confidence is its own probability."""


def rauq(
    log_probs: Float[ndarray, " answer_token"], previous: Sequence[Sequence[float]]
) -> float:
    """Recurrent attention-based uncertainty of an answer (RAUQ; Vazhentsev et al. 2025, arXiv:2505.20045).

    A token's confidence is α · its probability + (1 − α) · attention to the token before it · that token's confidence,
    by the layer's head with most of that attention; −mean log confidence, the largest of the middle third of layers.
    """
    own, n = np.exp(np.asarray(log_probs, dtype=np.float64)), len(previous)
    attention = np.array(previous[n // 3 : math.ceil(2 * n / 3) + 1], dtype=np.float64)
    confidence = [np.full(len(attention), own[0])]
    for probability, given_before in zip(own[1:], attention.T, strict=True):
        confidence.append(
            RAUQ_SHARE * probability + (1 - RAUQ_SHARE) * given_before * confidence[-1]
        )
    return float(
        -np.log(np.maximum(confidence, np.finfo(np.float64).tiny)).mean(axis=0).min()
    )


def _variant(name: str, items: Sequence[Item], setting: Setting) -> Variant:
    """The very cuts that the run's own effects are measured with."""
    return Variant(
        {
            run.item: run.cut
            for run in plan_cut(INTERVENTIONS[name], items, setting).runs
        }
    )


def per_answer(
    values: Float[ndarray, " answer_token"],
    answers: AnswerStats,
    how: Callable[[ndarray], float],
) -> Column:
    """One number per item, from its answer's tokens."""
    parts = np.split(
        np.asarray(values, dtype=np.float64), np.cumsum(answers.lengths)[:-1]
    )
    return np.array([how(part) for part in parts], dtype=np.float64)


TRUE, FALSE = "True", "False"
_JUDGED = (
    ("Tokyo", TRUE),
    ("Charles Dickens", FALSE),
    ("Au", TRUE),
)  # answers to the questions of the examples


def truth_question(question: str, answer: str) -> str:
    asked, proposed = " ".join(question.split()), " ".join(answer.split()).rstrip(".")
    return f"{asked} Proposed answer: {proposed}. Is the proposed answer true or false?"


def p_true_template(template: Template) -> Template:
    """The prompt with judged examples, if it has examples."""
    examples = [
        Example(truth_question(example.question, proposed), verdict, example.subject)
        for example, (proposed, verdict) in zip(FEW_SHOT, _JUDGED, strict=True)
    ]
    return with_examples(template, examples)


@dataclass(frozen=True)
class TruthPrompts:
    ids: tuple[tuple[int, ...], ...]
    true: tuple[int, ...]
    """Tokens that say "true" after these prompts."""
    false: tuple[int, ...]

    @property
    def choices(self) -> tuple[int, ...]:
        return self.true + self.false

    def log_odds(
        self, log_probs: Float[ndarray, "item choice"]
    ) -> Float[ndarray, " item"]:
        """log P(True) − log P(False) from the log-probabilities of `choices`."""
        wide = np.asarray(log_probs, dtype=np.float64)
        true, false = wide[:, : len(self.true)], wide[:, len(self.true) :]
        return np.logaddexp.reduce(true, axis=1) - np.logaddexp.reduce(false, axis=1)


def truth_prompts(
    tokenizer: Any, template: Template, questions: Sequence[str], answers: Sequence[str]
) -> TruthPrompts:
    """The prompts that ask whether each answer is true; `template` is the answers' own."""
    asking = p_true_template(template)
    asked = zip(questions, answers, strict=True)
    texts = [
        asking.text(truth_question(question, answer)) for question, answer in asked
    ]
    encoded = [ids for ids, _ in asking.encode(tokenizer, texts)]
    true, false = (
        _spell_word(tokenizer, asking, texts[0], encoded[0], word)
        for word in (TRUE, FALSE)
    )
    shared = _count_shared(true[0], false[0])
    first, second = (_tokens(spelled, shared) for spelled in (true, false))
    both = set(first) & set(second)
    lead = true[
        0
    ][
        :shared
    ]  # a tokenizer that begins both words alike: what they share is put to the model's mouth
    return TruthPrompts(
        tuple(ids + lead for ids in encoded),
        tuple(token for token in first if token not in both),
        tuple(token for token in second if token not in both),
    )


def _spell_word(
    tokenizer: Any, template: Template, text: str, ids: tuple[int, ...], word: str
) -> list[tuple[int, ...]]:
    """Tokens of the word's spellings after a prompt, the usual one first."""
    spellings = (word, word.lower(), word.upper())
    after = template.answer_ids(tokenizer, [(text, ids)] * len(spellings), spellings)
    bare = tokenizer(list(spellings), add_special_tokens=False)["input_ids"]
    return [*after, *(tuple(int(token) for token in tokens) for tokens in bare)]


def _count_shared(ids: Sequence[int], other_ids: Sequence[int]) -> int:
    for index, (first, second) in enumerate(zip(ids, other_ids, strict=False)):
        if first != second:
            return index
    raise UserError(
        f"The tokenizer of this model writes {TRUE!r} and {FALSE!r} with the same tokens, so that P(True) cannot be "
        f"asked for; leave detection out of --keep."
    )


def _tokens(spelled: Sequence[tuple[int, ...]], shared: int) -> list[int]:
    """The distinguishing token of each spelling that ends with it, and of the usual one."""
    usual = spelled[0]
    ending = [
        ids
        for ids in spelled
        if ids[:shared] == usual[:shared] and len(ids) == shared + 1
    ]
    return list(dict.fromkeys(ids[shared] for ids in (usual, *ending)))


def truth_column(passes: ItemPasses) -> dict[str, Column]:
    """P(True) as log-odds: the model asked of every answer whether it is true.

    An item that fits the model's context, but not with that question added, has the median of the others.
    """
    items, planner, writer = passes.items, passes.planner, passes.setting.writer()
    questions, answers = (
        [item.question.question for item in items],
        [item.answer.text for item in items],
    )
    prompts = truth_prompts(writer.tokenizer, writer.template, questions, answers)
    fits = np.array(
        [planner.context is None or len(ids) <= planner.context for ids in prompts.ids]
    )
    if not fits.any():
        raise UserError(
            f"No question fits the model's context of {planner.context:,} tokens once it is asked whether its answer "
            f"is true (P(True)); leave detection out of --keep."
        )
    some = [ids for ids, fit in zip(prompts.ids, fits, strict=True) if fit]
    work = plan_choices("P(True)", some, prompts.choices, planner.batch_tokens)
    log_odds = np.empty(len(items))
    log_odds[fits] = prompts.log_odds(
        run_choices(passes.executor, work, passes.progress)
    )
    log_odds[~fits] = np.median(log_odds[fits])
    return {"p_true": log_odds}


def same_answer(answer: str, other: str) -> bool:
    """Whether two answers are equal after folding, or the grader accepts one for the other."""
    return (
        question_key(answer) == question_key(other)
        or grade(answer, [other])
        or grade(other, [answer])
    )


def self_consistency(answer: str, samples: Sequence[str]) -> float:
    """The share of samples that are the answer."""
    wanted = question_key(answer)
    return sum(question_key(sample) == wanted for sample in samples) / len(samples)


def clusters(samples: Sequence[str]) -> list[int]:
    """The cluster of each sample, numbered as they first appear."""
    written = {
        question_key(sample): sample for sample in reversed(samples)
    }  # the first of each wording
    cluster = {key: key for key in written}
    for key, other in combinations(reversed(written), 2):
        if cluster[key] != cluster[other] and same_answer(written[other], written[key]):
            joined, into = cluster[other], cluster[key]
            cluster |= {
                member: into for member, own in cluster.items() if own == joined
            }
    numbers: dict[str, int] = {}
    return [
        numbers.setdefault(cluster[question_key(sample)], len(numbers))
        for sample in samples
    ]


def semantic_entropy(samples: Sequence[str]) -> float:
    """Entropy of the clusters' shares, in nats."""
    counts = Counter(clusters(samples)).values()
    return sum(
        count / len(samples) * math.log(len(samples) / count) for count in counts
    )


def agreement_columns(
    items: Sequence[Item], samples: Sequence[Sequence[str]]
) -> dict[str, Column]:
    """Self-consistency and semantic entropy of the first few sampled answers, and of all."""
    columns: dict[str, Column] = {}
    for n in SAMPLES:
        few = [list(texts[:n]) for texts in samples]
        shares = [
            self_consistency(item.answer.text, texts)
            for item, texts in zip(items, few, strict=True)
        ]
        columns[f"self_consistency_{n}"] = np.array(shares)
        columns[f"semantic_entropy_{n}"] = np.array(
            [semantic_entropy(texts) for texts in few]
        )
    return columns


EIGEN_RIDGE = 1e-3
"""α of EigenScore."""
_ITEMS_AT_ONCE = 500  # whose samples' states, at every layer up to the middle one, are in memory together


def eigen_scores(passes: ItemPasses, samples: Sequence[Sequence[Answer]]) -> Column:
    """How far the states of sampled answers spread (EigenScore of INSIDE; Chen et al. 2024, arXiv:2402.03744).

    1/K · log det(covariance of the K states + α I), at the last token of each sample in the middle layer.
    """
    starts = range(0, len(passes.items), _ITEMS_AT_ONCE)
    slices = [slice(start, start + _ITEMS_AT_ONCE) for start in starts]
    return np.concatenate(
        [
            _eigen_scores(replace(passes, items=passes.items[own]), samples[own])
            for own in slices
        ]
    )


def _eigen_scores(passes: ItemPasses, samples: Sequence[Sequence[Answer]]) -> Column:
    texts: dict[tuple[int, ...], int] = {}
    sequences: list[TokenSequence] = []
    rows = []
    for item, answers in zip(passes.items, samples, strict=True):
        prompt = item.located.input_ids[
            : item.located.answer_start - len(item.answer.before)
        ]
        own = []
        for answer in answers:
            ids = (*prompt, *answer.before, *answer.ids)
            if ids not in texts:
                texts[ids] = len(sequences)
                sequences.append(
                    TokenSequence(
                        ids, len(prompt) + len(answer.before), (len(ids) - 1,)
                    )
                )
            own.append(texts[ids])
        rows.append(own)
    middle = passes.planner.n_layers // 2
    work = passes.planner.states("sampled answers", sequences, shared_tokens(sequences))
    work = replace(work, keep=(((0, SITES.index("residual")),),), n_layers=middle + 1)
    states = given(passes.run(work)[0].states)[0, middle].double().cpu().numpy()
    spread = [np.cov(states[own]) + EIGEN_RIDGE * np.eye(len(own)) for own in rows]
    return np.array(
        [np.linalg.slogdet(matrix).logabsdet / len(matrix) for matrix in spread]
    )


def mean_answer_states(passes: ItemPasses) -> Tensor:
    """States averaged over the tokens of the answer, at one site, [layer, item, d_model]."""
    site, lengths = (
        passes.place[1],
        np.array([len(item.answer.ids) for item in passes.items]),
    )
    parts = {}
    # a pass reads as many tokens of every item
    for length in np.unique(lengths).tolist():
        own = [
            sequence
            for sequence, n in zip(passes.sequences, lengths, strict=True)
            if n == length
        ]
        read = [
            replace(
                text,
                read_at=tuple(range(text.answer_start, text.answer_start + length)),
            )
            for text in own
        ]
        work = passes.planner.states(
            f"answers of {length} tokens", read, shared_tokens(read)
        )
        work = replace(
            work, keep=(tuple((position, site) for position in range(length)),)
        )
        parts[length] = given(passes.run(work)[0].states).mean(dim=0)
    order = np.argsort(np.argsort(lengths, kind="stable"))
    return torch.cat(list(parts.values()), dim=1)[:, torch.from_numpy(order)]


def boosted_states(passes: ItemPasses) -> dict[str, Tensor]:
    """States under strengthened attention at one place, [layer, item, d_model] by the run's name."""
    items, planner, edges = passes.items, passes.planner, passes.setting.edges
    boosts = {
        boost_name("question", alpha): [
            question_boost(item, edges, alpha) for item in items
        ]
        for alpha in BOOSTS
    }
    boosts |= {
        boost_name("answer", alpha): [answer_boost(item, alpha) for item in items]
        for alpha in BOOSTS
    }
    variants = [Variant(dict(enumerate(cuts))) for cuts in boosts.values()]
    compiled = passes.compiled
    work = planner.states(
        "strengthened attention",
        passes.sequences,
        passes.prefix,
        variants,
        compiled=compiled,
    )
    parts = passes.run(replace(work, keep=((passes.place,),) * len(variants)))
    return {
        name: given(part.states)[0] for name, part in zip(boosts, parts, strict=True)
    }


def question_boost(item: Item, edges: str, alpha: float) -> Cut:
    """Later tokens look harder at the question's exact tokens: at the edges that the knockout cuts."""
    return Cut(item.located.question_tokens, edges, alpha=alpha)


def answer_boost(item: Item, alpha: float) -> Cut:
    """The answer's tokens look harder at its earlier ones; an answer of one token has none, and runs as it is."""
    earlier = tuple(range(item.located.answer_start, len(item.located.input_ids) - 1))
    return Cut(earlier, "all", alpha=alpha) if earlier else NO_CUT


def clean_states_at(
    passes: ItemPasses, title: str, random_weights: bool = False
) -> Tensor:
    """Clean states at one place, [layer, item, d_model], of the model or of random weights of its shape."""
    work = passes.planner.states(title, passes.sequences, passes.prefix)
    return given(
        passes.run(
            replace(work, keep=((passes.place,),), random_weights=random_weights)
        )[0].states
    )[0]


QUESTION_ONLY, ANSWER_ONLY = "question only", "answer only"
RANDOM_WEIGHTS, RESAMPLE, PARAPHRASE = "random-weights", "resample", "paraphrase"


def answer_only_states(passes: ItemPasses) -> Tensor:
    """States at the place of the answer without its question, [layer, item, d_model]."""
    rewrite = INTERVENTIONS["answer-template"].rewrite
    assert rewrite is not None, "the question is dropped by rewriting the text"
    runs = sorted(
        rewrite(passes.items, range(len(passes.items)), passes.setting),
        key=lambda run: run.item,
    )
    return rewritten_states(passes, [run.sequence for run in runs], ANSWER_ONLY)


def rewritten_states(
    passes: ItemPasses, sequences: Sequence[TokenSequence], title: str
) -> Tensor:
    """States of answers after another text, at one place, [layer, sequence, d_model]."""
    position, site = passes.place
    read = [
        replace(sequence, read_at=(sequence.read_at[position],))
        for sequence in sequences
    ]
    work = passes.planner.states(title, read, shared_tokens(read))
    return given(passes.run(replace(work, keep=(((0, site),),)))[0].states)[0]


def donors_of(relations: Sequence[str | None]) -> str:
    """Whose key words the resample cut puts in: those of the same relation, where enough answers have one."""
    return (
        "patch-same"
        if sum(name is not None for name in relations) >= FEWEST_ANSWERS
        else "patch-random"
    )


def resampled_texts(
    items: Sequence[Item], setting: Setting
) -> dict[int, TokenSequence]:
    """Answers after their question with another item's key words, by item; without those that have no donor."""
    name = donors_of([item.question.relation for item in items])
    texts: dict[int, TokenSequence] = {}
    for run in plan_rewrite(
        INTERVENTIONS[name], items, replace(setting, most_items=None)
    ).runs:
        texts.setdefault(run.item, run.sequence)  # the first donor's
    return texts


def paraphrased_texts(
    items: Sequence[Item], setting: Setting
) -> dict[int, TokenSequence]:
    """Answers after their question in another sentence, by item; without those of relations that have none."""
    others = {
        index: wordings[0]
        for index, item in enumerate(items)
        if (wordings := reworded(item.question))
    }
    owners, questions = (
        [items[index] for index in others],
        [question.question for question in others.values()],
    )
    sequences = setting.writer().sequences(owners, questions, setting.positions)
    texts = dict(zip(others, sequences, strict=True))
    return {
        index: text
        for index, text in texts.items()
        if setting.context is None or len(text.ids) <= setting.context
    }


def random_weight_states(passes: ItemPasses) -> tuple[Tensor, Tensor, Tensor]:
    """States of the same items through a model that knows nothing, [layer, item, d_model] each: clean and cut at the
    place, and clean before the answer begins."""
    setting, place = passes.setting, passes.place
    sequences = [
        replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1))
        for sequence in passes.sequences
    ]
    variants, before = (
        (CLEAN, _variant(KNOCKOUT, passes.items, setting)),
        (len(setting.positions), place[1]),
    )
    first = min(
        len(passes.prefix), *(sequence.answer_start - 1 for sequence in sequences)
    )
    work = passes.planner.states(
        "random weights", sequences, passes.prefix[:first], variants
    )
    work = replace(work, keep=((place, before), (place,)), random_weights=True)
    clean, cut = (given(part.states) for part in passes.run(work))
    return clean[0], cut[0], clean[1]


def given(part: T | None) -> T:
    assert part is not None, "a pass gives what it is asked for"
    return part
