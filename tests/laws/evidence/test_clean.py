"""The clean pass: how likely the model itself finds the answers."""

from dataclasses import replace

import pytest
import torch

from anchorscope.answers.generate import Answer
from anchorscope.evidence.effects import run_clean, with_log_probs
from anchorscope.execute.executor import LocalExecutor
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Silent
from made_items import planner_of, random_items

POSITIONS = ("final", "answer_before")


def test_log_probs_are_the_models_own_of_every_token_of_the_answer(tiny_llama: LanguageModel) -> None:
    items, executor, planner = random_items(12), LocalExecutor(lambda: tiny_llama), planner_of(tiny_llama, 60)
    clean = run_clean(executor, planner, items, POSITIONS, Silent(), compiled=False, edges="all", site=0).clean
    for item, found in zip(items, clean.log_probs, strict=True):
        ids, start = item.located.input_ids, item.located.answer_start
        with torch.inference_mode():
            logits = tiny_llama.model(torch.tensor([ids])).logits[0]
        known = torch.log_softmax(logits.float(), dim=-1)
        wanted = [float(known[place - 1, ids[place]]) for place in range(start, len(ids))]
        assert found == pytest.approx(wanted, abs=1e-3)


def test_answers_keep_their_own_log_probs_and_others_take_those_of_the_pass() -> None:
    own = Answer("a", (1,), (-0.5,), "answered")
    given, empty = replace(own, log_probs=None), replace(own, log_probs=None, status="empty")
    found = with_log_probs([own, given, empty], [(-9.0,), (-1.5,), ()])
    assert [one.log_probs for one in found] == [(-0.5,), (-1.5,), None]
