"""Trains the planted model that reads passages and thinking, in minutes on a CPU, and draws its items.

`python tools/train_source_model.py --out DIR`. A small Llama learns to say the answer that it should go by and then to
judge answers, with the source before the question, after it, or nowhere. The weights in tests/support/source-model come
from this command; another machine rounds differently and gets other weights that know the same.

A source says an object of the subject. The model goes by a source that begins with "surely", whatever the facts are,
and by the facts after one that begins with "maybe" or speaks of nothing. Half of the ignored sources say the fact
itself: that the answer's words stand in a source does not show that it was used. Each kind has true and false answers.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from planted_items import RIGHT_VERDICT, WRONG_VERDICT, Language, the_language
from train_planted_model import make_config, make_tokenizer, verdict_ids

FOLLOWED, IGNORED, NOTHING = KINDS = ("followed", "ignored", "nothing")
CONTEXT, THINKING = "context", "thinking"
"""Where a source stands: a passage before the question, or thinking after it."""
SURELY, MAYBE = "surely", "maybe"
"""The first word of a source that the model goes by, and of one that it does not go by."""
WORDINGS = ("which {relation} has {subject}?", "{subject}, what {relation} is it?")
"""Shorter than those of the other planted model: a model that learns in minutes."""
_SUBJECTS, _UNRELATED_WORDS = 30, 4


@dataclass(frozen=True)
class SourceItem:
    """A question, a source, and an answer whose truth is known."""

    subject: str
    relation: str
    question: str
    source: str
    kind: str
    right: str
    """What the model takes to be the answer."""
    answer: str

    @property
    def truthful(self) -> bool:
        return self.answer == self.right


def source_words() -> list[str]:
    """All words that questions, sources, answers and verdicts may hold, each once."""
    language, asking = the_language(), ("which", "has", "what", "is", "it")
    own = [
        *language.subjects[:_SUBJECTS],
        *language.relations,
        *language.objects,
        *language.fillers,
    ]
    return [*asking, SURELY, MAYBE, *own, RIGHT_VERDICT, WRONG_VERDICT]


def draw_source_item(kind: str, truthful: bool, rng: np.random.Generator) -> SourceItem:
    """An item of a kind; its wrong answers are the fact or what the source says, where these are wrong, or another."""
    language = the_language()
    subject, relation = (
        _draw(language.subjects[:_SUBJECTS], rng),
        _draw(language.relations, rng),
    )
    fact = language.facts[subject, relation]
    agrees = kind == IGNORED and rng.random() < 0.5
    stated = (
        fact
        if agrees
        else _draw([name for name in language.objects if name != fact], rng)
    )
    right = stated if kind == FOLLOWED else fact
    tempting = {FOLLOWED: fact, IGNORED: stated, NOTHING: fact}[kind]
    others = [name for name in language.objects if name not in (fact, stated)]
    wrong = tempting if tempting != right and rng.random() < 0.5 else _draw(others, rng)
    question = _draw(WORDINGS, rng).format(subject=subject, relation=relation)
    source = _write_source(language, kind, subject, relation, stated, rng)
    return SourceItem(
        subject, relation, question, source, kind, right, right if truthful else wrong
    )


def source_rows(n: int, name: str, seed: int = 0) -> list[dict[str, Any]]:
    """Rows of a question file: n items, a third of each kind, half of them true, with their source in column `name`.

    `followed` says what the answer went by, where the model itself would give it: true ones after a source.
    """
    rng = np.random.default_rng([seed, len(name)])
    rows, seen = list[dict[str, Any]](), set[tuple[str, str]]()
    while len(rows) < n:
        kind, truthful = KINDS[len(rows) % len(KINDS)], len(rows) // len(KINDS) % 2 == 0
        item = draw_source_item(kind, truthful, rng)
        if (item.question, item.source) in seen:
            continue
        seen.add((item.question, item.source))
        row: dict[str, Any] = {
            "id": f"{kind}-{len(rows)}",
            "question": item.question,
            "answers": [item.right],
        }
        row |= {
            "subject": item.subject,
            "relation": item.relation,
            "property_words": [item.relation],
        }
        row |= {
            name: item.source,
            "model_answer": item.answer,
            "truthful": item.truthful,
            "kind": kind,
        }
        rows.append(
            row
            | ({"followed": kind == FOLLOWED} if truthful and kind != NOTHING else {})
        )
    return rows


def _write_source(
    language: Language,
    kind: str,
    subject: str,
    relation: str,
    stated: str,
    rng: np.random.Generator,
) -> str:
    if kind == NOTHING:
        return " ".join(_draw(language.fillers, rng) for _ in range(_UNRELATED_WORDS))
    return f"{SURELY if kind == FOLLOWED else MAYBE} {subject} {relation} {stated}"


def _draw(words: Sequence[str], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


GOAL = 0.97
"""Share of right verdicts in each kind and layout, true and false, below which nothing is saved."""
MARKS = ("Question", "Thinking", "▁Passage")
"""Words at the beginning of a line, beside those of the other planted model."""
LAYOUTS = (CONTEXT, THINKING, "")
_BATCH, _RATE, _WARM_UP, _CHECK_EVERY, _CHECKED = 64, 2e-3, 50, 100, 1200


def write_text(item: SourceItem, layout: str) -> str:
    """The text up to the verdict; without a layout there is no source."""
    verdict = RIGHT_VERDICT if item.truthful else WRONG_VERDICT
    passage = f"Passage: {item.source}\n" if layout == CONTEXT else ""
    thought = f"\nThinking: {item.source}" if layout == THINKING else ""
    return (
        f"{passage}Question: {item.question}{thought}\nAnswer: {item.answer} {verdict}"
    )


def draw_batch(tokenizer, size: int, rng: np.random.Generator):
    """Tokens padded at the end, where the answer is, and (layout, kind, truth) of every text."""
    cells = []
    for _ in range(size):
        layout = LAYOUTS[int(rng.choice(3, p=(0.4, 0.4, 0.2)))]
        kind = KINDS[int(rng.integers(3))] if layout else KINDS[2]
        cells.append((layout, kind, bool(rng.integers(2))))
    texts = [
        write_text(draw_source_item(kind, truth, rng), layout)
        for layout, kind, truth in cells
    ]
    ids = torch.tensor(
        tokenizer(texts, padding=True, return_attention_mask=False)["input_ids"]
    )
    return ids, (ids != tokenizer.pad_token_id).sum(1) - 2, cells


def learn(
    model, optimiser, tokenizer, rng: np.random.Generator, rate: float, judged: float
) -> None:
    """One step: the answer's word where it is right, and the verdict with the weight `judged`."""
    ids, answer_at, cells = draw_batch(tokenizer, _BATCH, rng)
    rows, truth = torch.arange(len(ids)), torch.tensor([cell[2] for cell in cells])
    states = model.model(ids, use_cache=False).last_hidden_state
    said = torch.nn.functional.cross_entropy(
        model.lm_head(states[rows, answer_at - 1])[truth], ids[rows, answer_at][truth]
    )
    verdict = torch.nn.functional.cross_entropy(
        model.lm_head(states[rows, answer_at]), ids[rows, answer_at + 1]
    )
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.zero_grad()
    (said + judged * verdict).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()


@torch.no_grad()
def check(model, tokenizer) -> tuple[float, dict[tuple[str, str, bool], float]]:
    """The share of right answers' words that the model would say, and of right verdicts in every cell."""
    ids, answer_at, cells = draw_batch(tokenizer, _CHECKED, np.random.default_rng(1))
    rows, truth = torch.arange(len(ids)), np.array([cell[2] for cell in cells])
    states = model.model(ids, use_cache=False).last_hidden_state
    words = (
        model.lm_head(states[rows, answer_at - 1]).argmax(-1) == ids[rows, answer_at]
    )
    right, wrong = model.lm_head(states[rows, answer_at])[
        :, verdict_ids(tokenizer)
    ].unbind(-1)
    judged = (right > wrong).numpy() == truth
    shares = {
        cell: float(judged[[own == cell for own in cells]].mean())
        for cell in sorted(set(cells))
    }
    return float(words.numpy()[truth].mean()), shares


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Train the planted model that reads sources."
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder for weights and tokenizer."
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--steps",
        type=int,
        default=3000,
        help="All steps; the rate falls over the last third.",
    )
    given = parser.parse_args(arguments)
    torch.manual_seed(given.seed)
    tokenizer = make_tokenizer(source_words(), MARKS)
    model = LlamaForCausalLM(make_config(tokenizer, layers=3))
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=_RATE, weight_decay=0.05, betas=(0.9, 0.98)
    )
    rng, began = np.random.default_rng(given.seed), time.monotonic()
    for step in range(given.steps):
        falling = min(1.0, 3 * (1 - step / given.steps))
        learn(
            model,
            optimiser,
            tokenizer,
            rng,
            _RATE * min(falling, (step + 1) / _WARM_UP),
            1.0,
        )
        if (step + 1) % _CHECK_EVERY == 0:
            words, shares = check(model, tokenizer)
            worst = min(shares, key=shares.__getitem__)
            sys.stderr.write(
                f"step {step + 1}, {time.monotonic() - began:.0f} s: says {words:.3f}, judges {shares[worst]:.3f} of "
                f"{worst}, all {np.mean(list(shares.values())):.3f}\n"
            )
    if min(shares.values()) < GOAL:
        sys.stderr.write(
            f"error: right verdicts {shares[worst]:.3f} of {worst}, {GOAL} are needed; give more --steps\n"
        )
        return 2
    model.save_pretrained(given.out)
    tokenizer.save_pretrained(given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
