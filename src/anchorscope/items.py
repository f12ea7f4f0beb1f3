"""An item: a question with its answer, label and tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label
from anchorscope.catalogue import POSITIONS
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import TokenSequence
from anchorscope.spans.locate import ItemTokens
from anchorscope.spans.question_spans import QuestionSpans


@dataclass(frozen=True)
class Item:
    question: Question
    answer: Answer
    label: Label
    tokens: ItemTokens | None
    """None where there is no answer to use."""

    @property
    def item_id(self) -> str:
        return self.question.item_id

    @property
    def accepted(self) -> tuple[str, ...]:
        """Answers known to be right; without a list of them, its own one if that is labelled true."""
        own = (self.answer.text,) if self.label.truthful else ()
        return self.question.answers or own

    @property
    def is_used(self) -> bool:
        """Whether probes are trained on it."""
        return self.label.status == "used"

    @property
    def located(self) -> ItemTokens:
        assert self.tokens is not None, f"item {self.item_id} has no answer to use"
        return self.tokens

    @property
    def words(self) -> QuestionSpans:
        assert self.located.words is not None, (
            f"tokens of item {self.item_id} were located without words"
        )
        return self.located.words

    def sequence(self, positions: Sequence[str]) -> TokenSequence:
        """Prompt and answer as the engine runs them, read at the named positions."""
        read_at = tuple(
            self.located.positions[POSITIONS.index(position)] for position in positions
        )
        return TokenSequence(self.located.input_ids, self.located.answer_start, read_at)
