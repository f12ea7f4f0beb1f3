"""What every implementation is given: token sequences with a common beginning, the keys to cut, and where to read.

Two kinds. Real items are questions with answers in the two-shot template, their exact tokens found as in a run; half of
the answers are another question's, so that probes have two labels. Synthetic items are random tokens: `shared` ones
that all begin with and `own` ones that follow, of which 4 … 9 are cut; the last is one of 16 tokens, every other of
which stands for "true". Both are read at the last token, and every cut is from all later queries, in every layer.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from anchorscope.engine.sequences import Cut, TokenSequence, shared_prefix_length
from anchorscope.errors import UserError

CUT_FIRST, CUT_LAST = 4, 9
"""Which of a synthetic item's own tokens are cut."""
LEAST_OWN = CUT_LAST + 3
"""Own tokens that a synthetic item needs: tokens follow the last one that is cut."""
FOLDS = 5
"""Training sets of the probes, per layer."""
_LAST_TOKENS = 16  # few, so that the label can be learned from the states


@dataclass(frozen=True)
class Item:
    """One sequence and its cut."""

    ids: tuple[int, ...]
    keys: tuple[int, ...]
    """Positions that later ones may not attend to, in every layer or in one."""
    label: bool
    """What a probe is to tell."""

    @property
    def length(self) -> int:
        """Number of tokens."""
        return len(self.ids)


@dataclass(frozen=True)
class Workload:
    """The items of one measurement."""

    items: tuple[Item, ...]
    about: str
    """What the items are, in words."""
    prompts: tuple[tuple[int, ...], ...] = ()
    """What `generation` continues, whole prompts."""
    end_tokens: tuple[int, ...] = ()
    """Tokens that end an answer; empty where every answer has the same length."""
    new_tokens: int = 16
    """The longest answer."""

    def first(self, n: int) -> "Workload":
        """The same work on fewer items."""
        return replace(self, items=self.items[:n], prompts=self.prompts[:n])

    @property
    def tokens(self) -> int:
        """Tokens of all items, without padding."""
        return sum(item.length for item in self.items)

    @cached_property
    def shared(self) -> int:
        """Leading tokens that all items have in common, none of which is cut."""
        limits = [min(item.keys) for item in self.items]
        return shared_prefix_length([item.ids for item in self.items], limits)

    @cached_property
    def shared_by_prompts(self) -> int:
        """Leading tokens that all prompts have in common."""
        return shared_prefix_length(self.prompts, [len(ids) - 1 for ids in self.prompts])

    @property
    def sequences(self) -> list[TokenSequence]:
        """As the engine takes them."""
        return [TokenSequence(item.ids, item.length - 1, (item.length - 1,)) for item in self.items]

    @property
    def cuts(self) -> list[Cut]:
        """As the engine takes them."""
        return [Cut(item.keys, "all") for item in self.items]


def synthetic(n: int, shared: int, own: int, vocabulary: int, seed: int, new_tokens: int = 16) -> Workload:
    """Random tokens of one length."""
    if own < LEAST_OWN:
        raise UserError(
            f"--own {own} is too short: own tokens {CUT_FIRST} to {CUT_LAST} are cut and others must follow; "
            f"allowed: {LEAST_OWN} or more."
        )
    rng = np.random.default_rng(seed)
    head = tuple(rng.integers(0, vocabulary, shared).tolist())
    ending = rng.choice(vocabulary, size=_LAST_TOKENS, replace=False)
    items = []
    for _ in range(n):
        last = int(rng.integers(len(ending)))
        ids = (*head, *rng.integers(0, vocabulary, own - 1).tolist(), int(ending[last]))
        items.append(Item(ids, tuple(range(shared + CUT_FIRST, shared + CUT_LAST + 1)), last % 2 == 0))
    about = f"{n} items of {shared} shared and {own} own random tokens"
    return Workload(tuple(items), about, tuple(item.ids for item in items), (), new_tokens)


def real(n: int, dataset: str, tokenizer: Any, needs_bos: int | None, seed: int, new_tokens: int = 16) -> Workload:
    """Questions of a dataset with true answers and with answers of other questions."""
    # Only here: on a machine with nothing but torch and transformers, synthetic items are all that is needed.
    from anchorscope.answers.choose import choose_questions
    from anchorscope.answers.generate import given_answers
    from anchorscope.answers.template import build_prompts, make_template
    from anchorscope.datasets.catalog import open_dataset, parse_spec
    from anchorscope.spans.locate import locate_all
    from anchorscope.spans.question_spans import locate_question_words

    questions = choose_questions(open_dataset(parse_spec(dataset)), n, seed).questions
    order = np.random.default_rng(seed).permutation(len(questions)).tolist()  # any first items are then a fair sample
    questions = [questions[index] for index in order]
    template = make_template("few-shot", tokenizer, needs_bos)
    prompts = build_prompts(tokenizer, questions, template)
    labels = [index % 2 == 0 for index in range(len(questions))]
    true = [question.answers[0] for question in questions]
    texts = _answer_texts(true, [question.relation for question in questions], labels)
    answers = given_answers(tokenizer, template, prompts, texts)
    words = [locate_question_words(question) for question in questions]
    located = locate_all(tokenizer, questions, words, prompts, answers)
    items = tuple(
        Item(spans.input_ids, spans.question_tokens, label)
        for spans, label in zip(located, labels, strict=True)
        if spans is not None and spans.question_tokens
    )
    ends = _line_ends(tokenizer)
    asked = tuple(prompt.ids for prompt in prompts)
    return Workload(items, f"{len(items)} questions of {dataset}", asked, ends, new_tokens)


def _answer_texts(true: Sequence[str], relations: Sequence[str | None], labels: Sequence[bool]) -> list[str]:
    """The true answer where the label says so, and elsewhere another one, of the same relation where there is one."""
    known: defaultdict[str | None, list[str]] = defaultdict(list)
    for text, relation in zip(true, relations, strict=True):
        known[relation].append(text)
    texts = []
    for index, label in enumerate(labels):
        others = known[relations[index]]
        turned = (others[(index + step) % len(others)] for step in range(len(others)))
        wrong = next((text for text in turned if text != true[index]), f"not {true[index]}")
        texts.append(true[index] if label else wrong)
    return texts


def _line_ends(tokenizer: Any) -> tuple[int, ...]:
    """Tokens that end an answer: those with a line break, and the special ones."""
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
    broken = {token for token, text in enumerate(texts) if "\n" in text}
    return tuple(sorted(broken | set(tokenizer.all_special_ids)))
