"""The work `generation`: greedy answers, against transformers' own `generate` at its best batch size."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from anchorscope.bench.implementations.batches import attention_kernel, best_size, kernel_of
from anchorscope.bench.implementations.own import Own
from anchorscope.bench.setting import Setting
from anchorscope.bench.table import Row
from anchorscope.bench.workload import Workload
from anchorscope.models.language_model import LanguageModel

_WARM = 8  # prompts of the untimed run of ours


def rows(setting: Setting, workload: Workload) -> list[Row]:
    """One row for the engine, one for `generate`."""
    names = setting.options.implementations_of("generation")
    own, theirs = Own(setting.lm), Generate(setting.lm)
    runs: dict[str, Callable[[], list[tuple[int, ...]]]] = {}
    settings: dict[str, str] = {}
    if "anchorscope" in names:
        own.generate(workload.first(_WARM))
        settings["anchorscope"] = f"batches of {own.budget.tokens} tokens"
        runs["anchorscope"] = lambda: own.generate(workload)
    if "plain-batched" in names:
        settings["plain-batched"] = theirs.tune(workload)
        setting.say(f"plain-batched (generate): {settings['plain-batched']}")
        runs["plain-batched"] = lambda: theirs.generate(workload)
    answers: dict[str, list[tuple[int, ...]]] = {}
    keeping = {name: _keeping(answers, name, run) for name, run in runs.items()}
    taken = setting.race(keeping, "generation")
    n = len(workload.prompts)
    found = [
        Row("generation", name, "questions", setting=settings[name]).timed(n, taken[name], setting.held)
        for name in names
    ]
    if len(answers) < 2:
        return found
    differ = sum(a != b for a, b in zip(*answers.values(), strict=True)) / n
    told = "share of the answers that differ between the two"
    return [replace(row, max_difference=differ, relative_difference=differ, difference_is=told) for row in found]


def _keeping(
    answers: dict[str, list[tuple[int, ...]]], name: str, run: Callable[[], list[tuple[int, ...]]]
) -> Callable[[], None]:
    def kept() -> None:
        answers[name] = run()

    return kept


class Generate:
    """transformers' own `generate`, prompts sorted by length and padded on the left."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.size = 1

    def tune(self, workload: Workload) -> str:
        """The best batch size."""

        def run(size: int) -> int:
            self.size = size
            return len(self.generate(workload.first(size)))

        self.size, told = best_size(self.lm.device, len(workload.prompts), run)
        return told

    def generate(self, workload: Workload) -> list[tuple[int, ...]]:
        """A greedy answer to every prompt, without the token that ends it."""
        order = sorted(range(len(workload.prompts)), key=lambda index: len(workload.prompts[index]))
        answers: dict[int, tuple[int, ...]] = {}
        with attention_kernel(self.lm.model, kernel_of(self.lm)):
            for start in range(0, len(order), self.size):
                batch = order[start : start + self.size]
                answers.update(zip(batch, self._batch(workload, batch), strict=True))
        return [answers[index] for index in range(len(order))]

    @torch.inference_mode()
    def _batch(self, workload: Workload, batch: list[int]) -> list[tuple[int, ...]]:
        device = self.lm.device
        prompts = [workload.prompts[index] for index in batch]
        longest = max(len(ids) for ids in prompts)
        ids = torch.tensor([[*[0] * (longest - len(one)), *one] for one in prompts], device=device)
        seen = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts], device=device)
        ends = list(workload.end_tokens)
        # Tokens that end an answer are given as end-of-text tokens: checked on the device, without any text.
        given: dict[str, Any] = {"eos_token_id": ends or None, "pad_token_id": ends[0] if ends else 0}
        made = self.lm.model.generate(
            input_ids=ids, attention_mask=seen, max_new_tokens=workload.new_tokens, do_sample=False, **given
        )
        stop = set(ends)
        return [_until(row, stop) for row in made[:, longest:].tolist()]


def _until(tokens: list[int], stop: set[int]) -> tuple[int, ...]:
    """The tokens before the first that ends an answer."""
    end = next((place for place, token in enumerate(tokens) if token in stop), len(tokens))
    return tuple(tokens[:end])
