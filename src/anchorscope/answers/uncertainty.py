"""What the model itself shows of its certainty: P(True), and how far sampled answers agree.

**P(True)**: the model is shown the question with its own answer, in the prompt that the answers came from, and asked
whether that is true. The score is log P(True) − log P(False), each summed over the spellings that are one token here.

**Self-consistency** is the share of samples that are the answer, word for word after the grader's folding. **Semantic
entropy** puts samples that say the same into one cluster (equal after folding, or one accepted by the grader for the
other) and takes the entropy of the clusters' shares, in nats. Clusters are the connected components of "says the same",
so that the order of the samples does not matter.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from anchorscope.answers.grade import grade
from anchorscope.answers.prompt_variants import with_examples
from anchorscope.answers.template import FEW_SHOT, Example, Template
from anchorscope.datasets.text import question_key
from anchorscope.errors import UserError

TRUE, FALSE = "True", "False"
_JUDGED = (("Tokyo", TRUE), ("Charles Dickens", FALSE), ("Au", TRUE))  # answers to the questions of the examples


def truth_question(question: str, answer: str) -> str:
    """The question about an answer, on one line."""
    asked, said = " ".join(question.split()), " ".join(answer.split()).rstrip(".")
    return f"{asked} Proposed answer: {said}. Is the proposed answer true or false?"


def p_true_template(template: Template) -> Template:
    """The same prompt with examples that are judged, where it has examples at all."""
    examples = [
        Example(truth_question(one.question, proposed), verdict, one.subject)
        for one, (proposed, verdict) in zip(FEW_SHOT, _JUDGED, strict=True)
    ]
    return with_examples(template, examples)


@dataclass(frozen=True)
class TruthPrompts:
    """What the model is shown, and the tokens by which it can say what it thinks."""

    ids: tuple[tuple[int, ...], ...]
    true: tuple[int, ...]
    """Tokens that say "true" after these prompts."""
    false: tuple[int, ...]

    @property
    def choices(self) -> tuple[int, ...]:
        """All of them, true ones first."""
        return self.true + self.false

    def log_odds(self, log_probs: Float[ndarray, "item choice"]) -> Float[ndarray, " item"]:
        """log P(True) − log P(False) from the log-probabilities of `choices`."""
        wide = np.asarray(log_probs, dtype=np.float64)
        true, false = wide[:, : len(self.true)], wide[:, len(self.true) :]
        return np.logaddexp.reduce(true, axis=1) - np.logaddexp.reduce(false, axis=1)


def truth_prompts(tokenizer: Any, template: Template, questions: Sequence[str], answers: Sequence[str]) -> TruthPrompts:
    """The prompts that ask of every answer whether it is true; `template` is the one that the answers came from."""
    asking = p_true_template(template)
    asked = zip(questions, answers, strict=True)
    texts = [asking.text(truth_question(question, answer)) for question, answer in asked]
    encoded = [ids for ids, _ in asking.encode(tokenizer, texts)]
    true, false = (_spelled(tokenizer, asking, texts[0], encoded[0], word) for word in (TRUE, FALSE))
    shared = _shared(true[0], false[0])
    first, second = (_tokens(spelled, shared) for spelled in (true, false))
    both = set(first) & set(second)
    lead = true[0][:shared]  # a tokenizer that begins both words alike: what they share is put to the model's mouth
    return TruthPrompts(
        tuple(ids + lead for ids in encoded),
        tuple(token for token in first if token not in both),
        tuple(token for token in second if token not in both),
    )


def _spelled(tokenizer: Any, template: Template, text: str, ids: tuple[int, ...], word: str) -> list[tuple[int, ...]]:
    """Tokens of the word's spellings as they follow a prompt; the usual one first."""
    spellings = (word, word.lower(), word.upper())
    after = [template.answer_ids(tokenizer, text, ids, one) for one in spellings]
    bare = [tuple(int(token) for token in tokenizer(one, add_special_tokens=False)["input_ids"]) for one in spellings]
    return [*after, *bare]


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return place
    raise UserError(
        f"The tokenizer of this model writes {TRUE!r} and {FALSE!r} with the same tokens, so that P(True) cannot be "
        f"asked for; leave detection out of --keep."
    )


def _tokens(spelled: Sequence[tuple[int, ...]], shared: int) -> list[int]:
    """The token that tells, of each spelling that ends with it; of the usual one in any case."""
    usual = spelled[0]
    found = [usual[shared]]
    found += [one[shared] for one in spelled if one[:shared] == usual[:shared] and len(one) == shared + 1]
    return list(dict.fromkeys(found))


def same_answer(one: str, other: str) -> bool:
    """Whether two answers are equal once folded, or either is right by the grader where the other is accepted."""
    return question_key(one) == question_key(other) or grade(one, [other]) or grade(other, [one])


def self_consistency(answer: str, samples: Sequence[str]) -> float:
    """The share of samples that are the answer."""
    if not samples:
        raise ValueError("no sampled answers: their share and entropy are not defined")
    wanted = question_key(answer)
    return sum(question_key(sample) == wanted for sample in samples) / len(samples)


def clusters(samples: Sequence[str], same: Callable[[str, str], bool] = same_answer) -> list[int]:
    """The cluster of each sample, numbered as they first appear; `same` may be a model of entailment."""
    texts = [question_key(sample) for sample in samples]
    written: dict[str, str] = {}  # each wording once
    for text, sample in zip(texts, samples, strict=True):
        written.setdefault(text, sample)
    names = list(written)
    cluster = {name: name for name in names}
    for place, name in enumerate(names):
        for other in names[:place]:
            if cluster[name] != cluster[other] and same(written[name], written[other]):
                joined, into = cluster[name], cluster[other]
                cluster |= {one: into for one, own in cluster.items() if own == joined}
    numbers: dict[str, int] = {}
    return [numbers.setdefault(cluster[text], len(numbers)) for text in texts]


def semantic_entropy(samples: Sequence[str], same: Callable[[str, str], bool] = same_answer) -> float:
    """Entropy of the clusters' shares, in nats."""
    if not samples:
        raise ValueError("no sampled answers: their share and entropy are not defined")
    counts = Counter(clusters(samples, same)).values()
    return sum(count / len(samples) * math.log(len(samples) / count) for count in counts)
