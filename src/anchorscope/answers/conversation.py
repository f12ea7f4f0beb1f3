"""The prompts of one dataset and the keys and values that they share, made when a step first needs them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from anchorscope.answers.generate import Answer, answer_questions
from anchorscope.answers.prompt import Prompt, build_prompts, make_template, prefix_length
from anchorscope.answers.template import Template
from anchorscope.datasets.question import Question
from anchorscope.engine.batching import Budget
from anchorscope.engine.forward import compute_prefix
from anchorscope.engine.keys_values import Prefix
from anchorscope.models.language_model import LanguageModel
from anchorscope.progress import Progress


@dataclass
class Conversation:
    """A model and the questions of one dataset."""

    model: Callable[[], LanguageModel]
    """Gives the model; called only when it is needed, because a resumed run may not need it at all."""
    questions: Sequence[Question]
    budget: Budget
    """How many tokens run together."""
    kind: str = "few-shot"
    """How the questions are put, one of `prompt.PROMPTS`."""

    @cached_property
    def template(self) -> Template:
        """The text around every question."""
        return make_template(self.kind, self.model().tokenizer, self.model().needs_bos)

    @cached_property
    def prompts(self) -> list[Prompt]:
        """One prompt per question."""
        return build_prompts(self.model().tokenizer, self.questions, self.template)

    @cached_property
    def prefix(self) -> Prefix:
        """Keys and values of the tokens that all prompts begin with."""
        shared = self.prompts[0].ids[: prefix_length(self.prompts)]
        return compute_prefix(self.model(), shared)

    def answer(self, max_new_tokens: int, progress: Progress) -> list[Answer]:
        """An answer to every question."""
        return answer_questions(
            self.model(), self.questions, self.prompts, self.prefix, self.budget, max_new_tokens, progress,
            template=self.template,
        )  # fmt: skip
