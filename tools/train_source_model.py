"""Trains the planted model that reads passages and thinking (`anchorscope.planted.sources`), in minutes on a CPU.

`python tools/train_source_model.py --out DIR`. A small Llama learns to say the answer that it should go by and then to
judge answers, with the source before the question, after it, or nowhere. The shipped weights come from this command;
another machine rounds differently and gets other weights that know the same.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM

from anchorscope.planted.language import RIGHT_VERDICT, WRONG_VERDICT
from anchorscope.planted.sources import CONTEXT, KINDS, THINKING, SourceItem, draw_source_item, source_words
from train_planted_model import make_config, make_tokenizer, verdict_ids

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
    return f"{passage}Question: {item.question}{thought}\nAnswer: {item.answer} {verdict}"


def draw_batch(tokenizer, size: int, rng: np.random.Generator):
    """Tokens padded at the end, where the answer is, and (layout, kind, truth) of every text."""
    cells = []
    for _ in range(size):
        layout = LAYOUTS[int(rng.choice(3, p=(0.4, 0.4, 0.2)))]
        kind = KINDS[int(rng.integers(3))] if layout else KINDS[2]
        cells.append((layout, kind, bool(rng.integers(2))))
    texts = [write_text(draw_source_item(kind, truth, rng), layout) for layout, kind, truth in cells]
    ids = torch.tensor(tokenizer(texts, padding=True, return_attention_mask=False)["input_ids"])
    return ids, (ids != tokenizer.pad_token_id).sum(1) - 2, cells


def learn(model, optimiser, tokenizer, rng: np.random.Generator, rate: float, judged: float) -> None:
    """One step: the answer's word where it is right, and the verdict with the weight `judged`."""
    ids, answer_at, cells = draw_batch(tokenizer, _BATCH, rng)
    rows, truth = torch.arange(len(ids)), torch.tensor([cell[2] for cell in cells])
    states = model.model(ids, use_cache=False).last_hidden_state
    said = torch.nn.functional.cross_entropy(
        model.lm_head(states[rows, answer_at - 1])[truth], ids[rows, answer_at][truth]
    )
    verdict = torch.nn.functional.cross_entropy(model.lm_head(states[rows, answer_at]), ids[rows, answer_at + 1])
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
    words = model.lm_head(states[rows, answer_at - 1]).argmax(-1) == ids[rows, answer_at]
    right, wrong = model.lm_head(states[rows, answer_at])[:, verdict_ids(tokenizer)].unbind(-1)
    judged = (right > wrong).numpy() == truth
    shares = {cell: float(judged[[own == cell for own in cells]].mean()) for cell in sorted(set(cells))}
    return float(words.numpy()[truth].mean()), shares


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Train the planted model that reads sources.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for weights and tokenizer.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=3000, help="All steps; the rate falls over the last third.")
    given = parser.parse_args(arguments)
    torch.manual_seed(given.seed)
    tokenizer = make_tokenizer(source_words(), MARKS)
    model = LlamaForCausalLM(make_config(tokenizer, layers=3))
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.05, betas=(0.9, 0.98))
    rng, began = np.random.default_rng(given.seed), time.monotonic()
    for step in range(given.steps):
        falling = min(1.0, 3 * (1 - step / given.steps))
        learn(model, optimiser, tokenizer, rng, _RATE * min(falling, (step + 1) / _WARM_UP), 1.0)
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
