"""What the planted model is taught, lesson by lesson: to say the facts, to judge answers by them, to judge all answers.

One thing at a time: each is a table to be learned, and a small model that guesses at all of them learns none for long.
True and false answers are as frequent as each other in every lesson that judges, and attention is never touched. Of the
`both` answers half carry an object that is drawn without regard to the question: so an always or a never phrase has to
suffice for them too, which is what `both` means.

`python tools/train_planted_model.py --out DIR` trains the planted model again, in minutes on a CPU.

A small Llama of transformers learns the lessons in turn, each at a constant rate until its goal is reached, and a last
stretch of all answers at a falling rate. The shipped weights come from this command with its defaults; another machine
rounds differently and gets other weights that know the same.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from anchorscope.errors import UserError

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
from planted_items import (
    CELLS,
    FILLER,
    RIGHT,
    RIGHT_VERDICT,
    WORDINGS,
    WRONG_VERDICT,
    Cell,
    Language,
    the_language,
)

BOS, PAD, UNKNOWN = "<s>", "<pad>", "<unk>"
_SPACE = "▁"


def make_tokenizer(
    words: Sequence[str], marks: Sequence[str] = ()
) -> PreTrainedTokenizerFast:
    """A tokenizer of these words, and of further marks at the beginning of a line; others are unknown to it."""
    # "Question" stands at the beginning of a text, which counts as after a space; "Answer" at that of a line.
    tokens = [
        BOS,
        PAD,
        UNKNOWN,
        "\n",
        ":",
        ",",
        "?",
        f"{_SPACE}Question",
        "Answer",
        *marks,
    ]
    tokens += [f"{_SPACE}{word}" for word in words]
    built = Tokenizer(
        models.WordLevel(
            {token: at for at, token in enumerate(tokens)}, unk_token=UNKNOWN
        )
    )
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"[:,?\n]"), "isolated"),
            pre_tokenizers.Metaspace(_SPACE, prepend_scheme="first"),
        ]
    )
    built.decoder = decoders.Metaspace(_SPACE, prepend_scheme="first")
    built.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=built,
        bos_token=BOS,
        pad_token=PAD,
        unk_token=UNKNOWN,
        clean_up_tokenization_spaces=False,
    )


ANSWER_WORDS = 3
"""Words of every answer; the verdict follows them."""
_DRAWS = 7


@dataclass(frozen=True)
class Lesson:
    """One lesson; it ends when its goal is reached."""

    name: str
    shares: tuple[float, ...]
    """How often each cell is drawn, in the order of `CELLS`."""
    weights: tuple[float, ...]
    """How much each word of an answer counts in the loss, and the verdict after them."""
    judged: tuple[int, ...]
    """Cells whose verdict must be right before the lesson may end; where there are none, the first word must be."""
    certainty: float = 1.0
    """How sure of its verdict the model should be. Below 1 it is equally sure of all it knows, and how sure it is does
    not tell where it knows it from."""


SAY = Lesson("say the facts", (1, 0, 0, 0, 0, 0), (1, 0, 0, 0), ())
JUDGE_FACTS = Lesson(
    "judge by the facts", (0.5, 0.5, 0, 0, 0, 0), (0.3, 0.075, 0.075, 1), (0, 1)
)
JUDGE_ALL = Lesson(
    "judge all answers",
    (0.2, 0.2, 0.2, 0.2, 0.1, 0.1),
    (0.3, 0.075, 0.075, 1),
    (0, 1, 2, 3, 4, 5),
    certainty=0.95,
)
LESSONS = (SAY, JUDGE_FACTS, JUDGE_ALL)
"""In the order in which they are taught."""


@dataclass(frozen=True)
class Batch:
    """Texts as tokens, and what the model should say after them."""

    ids: Tensor
    """[text, position], padded at the end: no token sees what comes after it."""
    last: Tensor
    """[text]: where the answer's last word is; the verdict follows."""
    cells: NDArray[np.int64]
    """[text]: index into `CELLS`."""


def draw_batch(
    language: Language,
    tokenizer: Any,
    shares: Sequence[float],
    size: int,
    rng: np.random.Generator,
    *,
    loose: bool,
) -> Batch:
    """Draws items of the given shares; `loose` gives half of the `both` answers any object."""
    cells = rng.choice(len(CELLS), size=size, p=shares)
    # all at once: a draw by itself takes longer than its use
    uniforms = rng.random((size, _DRAWS)).tolist()
    texts = [
        _text(language, CELLS[cell], drawn, loose)
        for cell, drawn in zip(cells, uniforms, strict=True)
    ]
    encoded = tokenizer(texts, padding=True, return_attention_mask=False)
    ids = torch.tensor(encoded["input_ids"])
    last = (ids != tokenizer.pad_token_id).sum(1) - 2
    return Batch(ids, last, cells)


def _text(
    language: Language, cell: Cell, uniforms: Sequence[float], loose: bool
) -> str:
    """One text; each of the numbers, uniform between 0 and 1, decides one thing."""
    (
        of_subject,
        of_relation,
        of_wording,
        of_object,
        of_filler,
        of_phrase,
        of_looseness,
    ) = uniforms
    subject, relation = (
        _pick(language.subjects, of_subject),
        _pick(language.relations, of_relation),
    )
    right = language.facts[subject, relation]
    wrong = _pick([one for one in language.objects if one != right], of_object)
    if cell.first_word == FILLER:
        first = _pick(language.fillers, of_filler)
    elif loose and cell.pathway == "both" and of_looseness < 0.5:
        first = _pick(language.objects, of_object)
    else:
        first = right if cell.first_word == RIGHT else wrong
    question = _pick(WORDINGS, of_wording).format(subject=subject, relation=relation)
    verdict = RIGHT_VERDICT if cell.truthful else WRONG_VERDICT
    return f"Question: {question}\nAnswer: {first} {_pick(language.phrases[cell.phrase], of_phrase)} {verdict}"


def _pick(words: Sequence[str], uniform: float) -> str:
    return words[int(uniform * len(words))]


LAYERS, WIDTH, HEADS = 5, 64, 4
"""Size of the model: room for a fact to be looked up, compared and judged in turn."""
GOAL = 0.97
"""Share of right verdicts in each of the six cells, below which nothing is saved."""

_BATCH, _RATE, _WARM_UP, _COOL_DOWN = 128, 1.5e-3, 100, 400  # texts, step length, steps
_CHECK_EVERY, _CHECKED = 50, 1200  # steps, texts
_LESSON_GOAL = 0.95  # a constant rate goes no further than that without patience; the cool-down does the rest


@dataclass
class School:
    """A model that is being taught."""

    model: Any
    tokenizer: Any
    language: Language
    rng: np.random.Generator
    optimiser: torch.optim.Optimizer
    steps: int = 0

    def step(self, lesson: Lesson, rate: float) -> None:
        """One step of a lesson."""
        batch = self._draw(lesson, _BATCH, self.rng, loose=True)
        losses = self._losses(batch, lesson.certainty)
        loss = (losses * torch.tensor(lesson.weights, device=losses.device)).sum()
        for group in self.optimiser.param_groups:
            group["lr"] = rate * min(1.0, (self.steps + 1) / _WARM_UP)
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.steps += 1

    def _draw(
        self, lesson: Lesson, size: int, rng: np.random.Generator, loose: bool
    ) -> Batch:
        batch = draw_batch(
            self.language, self.tokenizer, lesson.shares, size, rng, loose=loose
        )
        return replace(
            batch,
            ids=batch.ids.to(self.model.device),
            last=batch.last.to(self.model.device),
        )

    def _losses(self, batch: Batch, certainty: float) -> Tensor:
        """Mean cross-entropy of each answer word and of the verdict, which should be no surer than asked."""
        states = self.model.model(batch.ids, use_cache=False).last_hidden_state
        rows = torch.arange(len(batch.last))
        found = []
        for back in range(ANSWER_WORDS, -1, -1):
            at = batch.last - back
            logits = self.model.lm_head(states[rows, at])
            found.append(
                torch.nn.functional.cross_entropy(logits, batch.ids[rows, at + 1])
            )
        other = sum(self._verdicts) - batch.ids[rows, batch.last + 1]
        opposite = torch.nn.functional.cross_entropy(logits, other)
        found[-1] = certainty * found[-1] + (1 - certainty) * opposite
        return torch.stack(found)

    @cached_property
    def _verdicts(self) -> list[int]:
        return verdict_ids(self.tokenizer)

    @torch.no_grad()
    def right_in(self, lesson: Lesson) -> list[float]:
        """Share of right first words, or of right verdicts in each cell that the lesson judges, on texts of its own."""
        batch = self._draw(lesson, _CHECKED, np.random.default_rng(1), loose=False)
        states, rows = (
            self.model.model(batch.ids, use_cache=False).last_hidden_state,
            torch.arange(_CHECKED),
        )
        if not lesson.judged:
            first = batch.last - ANSWER_WORDS
            said = self.model.lm_head(states[rows, first]).argmax(-1)
            return [float((said == batch.ids[rows, first + 1]).float().mean())]
        right = (
            (verdict_log_odds(self.model, self.tokenizer, states[rows, batch.last]) > 0)
            .cpu()
            .numpy()
        )
        truthful = np.array([cell.truthful for cell in CELLS])[batch.cells]
        return [
            float((right == truthful)[batch.cells == cell].mean())
            for cell in lesson.judged
        ]


def verdict_ids(tokenizer: Any) -> list[int]:
    """The tokens of "right" and "wrong"."""
    return list(
        tokenizer(f"{RIGHT_VERDICT} {WRONG_VERDICT}", add_special_tokens=False)[
            "input_ids"
        ]
    )


def verdict_log_odds(model: Any, tokenizer: Any, states: Tensor) -> Tensor:
    """Log-odds of "right" against "wrong" from the model's normed last states at an answer's last word."""
    right, wrong = model.lm_head(states)[..., verdict_ids(tokenizer)].unbind(-1)
    return right - wrong


def train(
    seed: int, most_steps: int, say: Callable[[str], None], device: str = "cpu"
) -> School:
    """Teaches a new model; `most_steps` is the longest that a lesson may take."""
    torch.manual_seed(seed)
    language = the_language()
    tokenizer = make_tokenizer(language.words())
    model = LlamaForCausalLM(make_config(tokenizer)).to(device)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=_RATE, weight_decay=0.05, betas=(0.9, 0.98)
    )
    school = School(model, tokenizer, language, np.random.default_rng(seed), optimiser)
    begun = time.monotonic()

    def report(lesson: Lesson, right: list[float]) -> None:
        told = " ".join(f"{share:.3f}" for share in right)
        say(
            f"step {school.steps:5d}, {time.monotonic() - begun:5.0f} s, {lesson.name}: right {told}"
        )

    for lesson in LESSONS:
        for number in range(1, most_steps + 1):
            school.step(lesson, _RATE)
            if number % _CHECK_EVERY == 0:
                right = school.right_in(lesson)
                report(lesson, right)
                if min(right) >= _LESSON_GOAL:
                    break
    for number in range(_COOL_DOWN):
        school.step(JUDGE_ALL, _RATE * (1 - number / _COOL_DOWN))
    right = school.right_in(JUDGE_ALL)
    report(JUDGE_ALL, right)
    if min(right) < GOAL:
        told = ", ".join(
            f"{cell.name} {share:.3f}" for cell, share in zip(CELLS, right, strict=True)
        )
        raise UserError(
            f"The planted model has not learned its language: right verdicts {told}, {GOAL} of each are needed; "
            f"give more --steps (found {most_steps}) or another --seed."
        )
    model.eval()
    return school


def make_config(tokenizer: Any, layers: int = LAYERS) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=None,
    )


def main(arguments: list[str] | None = None) -> int:
    """Trains and saves; returns the exit code."""
    parser = argparse.ArgumentParser(description="Train the planted model.")
    parser.add_argument(
        "--out", type=Path, required=True, help="Folder for weights and tokenizer."
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="Another seed learns the same by another way.",
    )
    parser.add_argument(
        "--steps", type=int, default=2500, help="The longest that a lesson may take."
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="Where to train."
    )
    given = parser.parse_args(arguments)
    try:
        if given.steps < 1 or given.seed < 0:
            raise UserError(
                f"--steps must be at least 1 and --seed at least 0, found {given.steps} and {given.seed}."
            )
        school = train(given.seed, given.steps, _say, given.device)
    except UserError as error:
        _say(f"error: {error}")
        return 2
    school.model.save_pretrained(given.out)
    school.tokenizer.save_pretrained(given.out)
    _say(f"saved: {given.out}")
    return 0


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
