"""The exact words of all questions of a dataset, by whoever is asked to choose them."""

from collections.abc import Callable, Sequence

from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress
from anchorscope.spans.ask_model import ask_for_key_words
from anchorscope.spans.question_spans import QuestionSpans, locate_question_words


def question_words(
    exact_tokens: str,
    questions: Sequence[Question],
    model: Callable[[], LanguageModel],
    budget: Budget,
    progress: Progress | None = None,
) -> list[QuestionSpans]:
    """One per question; the model is only loaded where it is asked. A user's own spans are never overruled by it."""
    if exact_tokens != "model":
        return [locate_question_words(question, use_metadata=exact_tokens == "auto") for question in questions]
    found = [locate_question_words(question) for question in questions]
    asked = [index for index, words in enumerate(found) if words.rule != "own" and words.spans]
    if asked:
        said = ask_for_key_words(model(), [questions[index] for index in asked], budget, progress)
        for index, words in zip(asked, said, strict=True):
            found[index] = words
    return found
