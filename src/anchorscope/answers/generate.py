"""The model's own answers: greedy, batched, up to the end of the line; or the user's, where the dataset brings them."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.answers.prompt import Prompt
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import plan_batches
from anchorscope.engine.decode import decode
from anchorscope.engine.keys_values import Prefix
from anchorscope.models.language_model import LanguageModel, decode_exactly
from anchorscope.progress import Progress


@dataclass(frozen=True)
class Answer:
    """An answer to one question, as tokens."""

    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...] | None
    """Log-probability of each token; None for an answer that was given elsewhere."""
    status: str
    """`answered`, `empty` or `truncated`; only the first is used."""


def answer_questions(
    lm: LanguageModel,
    questions: Sequence[Question],
    prompts: Sequence[Prompt],
    prefix: Prefix,
    batch_tokens: int,
    max_new_tokens: int,
    progress: Progress | None = None,
) -> list[Answer]:
    """An answer to every question, in order."""
    asked = [index for index, question in enumerate(questions) if question.model_answer is None]
    ids = [prompts[index].ids for index in asked]
    batches = plan_batches([len(prompt) - prefix.length + max_new_tokens // 2 for prompt in ids], batch_tokens)
    ends = _Ends(lm)
    decoded = decode(lm, ids, prefix, batches, max_new_tokens, ends.is_end, progress) if asked else []
    answers = {
        index: _as_answer(lm, one.ids, one.log_probs, one.finished) for index, one in zip(asked, decoded, strict=True)
    }
    for index, question in enumerate(questions):
        if question.model_answer is not None:
            given = lm.tokenizer(f" {question.model_answer.strip()}", add_special_tokens=False)["input_ids"]
            answers[index] = _as_answer(lm, tuple(given), None, finished=True)
    return [answers[index] for index in range(len(questions))]


def _as_answer(lm: LanguageModel, ids: tuple[int, ...], log_probs: tuple[float, ...] | None, finished: bool) -> Answer:
    text = decode_exactly(lm.tokenizer, ids).strip()
    status = "truncated" if not finished else "answered" if text else "empty"
    return Answer(text=text, ids=ids, log_probs=log_probs, status=status)


class _Ends:
    """Which tokens end an answer: those that hold a line break, and the model's end tokens."""

    def __init__(self, lm: LanguageModel) -> None:
        self.tokenizer = lm.tokenizer
        known = lm.model.generation_config.eos_token_id if lm.model.generation_config is not None else None
        ends = known if isinstance(known, list) else [known]
        self.seen: dict[int, bool] = {int(end): True for end in [*ends, lm.tokenizer.eos_token_id] if end is not None}

    def is_end(self, token: int) -> bool:
        if token not in self.seen:
            self.seen[token] = "\n" in decode_exactly(self.tokenizer, [token])
        return self.seen[token]
