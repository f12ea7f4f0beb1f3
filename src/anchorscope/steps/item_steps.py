"""The first steps of a dataset: questions, answers, truth labels and exact tokens, and the items that they make.

A step says which steps and options it is made from; its key is their hash. Raise a step's epoch when its code comes to
give other numbers: every run then makes it, and what depends on it, anew.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anchorscope.answers.choose import QuestionSample
from anchorscope.answers.generate import Answer
from anchorscope.answers.label import Label, label_answers
from anchorscope.artefacts.step import Source, Step
from anchorscope.datasets import atlas
from anchorscope.datasets.catalog import BUILT_IN, DatasetSpec
from anchorscope.datasets.files import hash_of
from anchorscope.datasets.question import Question
from anchorscope.errors import UserError
from anchorscope.execute.run_passes import key_word_writer, run_answers
from anchorscope.files import canonical_hash
from anchorscope.items import Item
from anchorscope.models.sources import is_shape
from anchorscope.plan.passes import plan_answers
from anchorscope.prepare import ask
from anchorscope.probes.crossfit import Splits, make_splits
from anchorscope.probes.folds import grouped_folds, truth_strata
from anchorscope.spans.locate import ItemTokens, locate_fitting
from anchorscope.spans.question_spans import Asker, QuestionSpans, question_words
from anchorscope.stats.streams import priorities
from anchorscope.steps.formats import records
from anchorscope.steps.job import MODEL_LIBRARIES, Job


class ItemSteps:
    """One dataset of a run, up to its items."""

    def __init__(self, job: Job, spec: DatasetSpec) -> None:
        self.job, self.spec, self.name = job, spec, spec.name
        self.source = question_source(job, spec)

    def _step(
        self,
        name: str,
        parents: Sequence[Step[Any] | Source],
        made_from: Any,
        form: Any,
        make: Any,
        large: bool = False,
    ) -> Step[Any]:
        return Step(self.job.folder, f"{self.name}/{name}", parents, made_from, form, make, large)

    # Questions, answers, labels, tokens.

    @property
    def asked(self) -> QuestionSample:
        """The questions that are asked, not written down yet where they are new: what is refused must leave nothing."""
        return self.questions.value if self.questions.is_kept else self._read

    @cached_property
    def _read(self) -> QuestionSample:
        expected = None if self.spec.path is None else self.source.key
        return ask(self.job.recipe, self.spec, self.job.progress, expected)

    @cached_property
    def questions(self) -> Step[QuestionSample]:
        """The questions that are asked."""
        made_from = self.job.made_from(
            1, (), "columns", "limit", "yes_no", "on_bad_row", "seed", random_weights=is_shape(self.job.recipe.model)
        )
        return self._step("questions", (self.source,), made_from, records(QuestionSample), lambda: self._read)

    @cached_property
    def answers(self) -> Step[list[Answer]]:
        """The model's own answers, or those that the questions bring."""
        made_from = self.job.made_from(2, MODEL_LIBRARIES, "prompt", "max_new_tokens")
        return self._step("answers", (self.questions, self.job.model), made_from, records(list[Answer]), self._answer)

    def _answer(self) -> list[Answer]:
        writer, tokens = self.job.writer(), self.job.planner.batch_tokens
        work = plan_answers(
            self.questions.value.questions,
            writer.tokenizer,
            writer.template,
            self.job.recipe.max_new_tokens,
            tokens,
            self.job.planner.context,
        )
        return run_answers(self.job.executor, work, self.job.progress)

    @cached_property
    def labels(self) -> Step[list[Label]]:
        """Which answers are true, which are used, and which belong together."""
        made_from = self.job.made_from(1, (), "balance", "group_by", "max_per_class", "seed")
        return self._step("labels", (self.answers,), made_from, records(list[Label]), self._label)

    def _label(self) -> list[Label]:
        recipe = self.job.recipe
        return label_answers(
            self.questions.value.questions,
            self.answers.value,
            recipe.balance,
            recipe.group_by,
            recipe.max_per_class,
            recipe.seed,
        )

    @cached_property
    def tokens(self) -> Step[list[ItemTokens | None]]:
        """The exact tokens of every answered question."""
        made_from = self.job.made_from(1, (), "exact_tokens")
        return self._step("tokens", (self.answers,), made_from, records(list[ItemTokens | None]), self._locate)

    def _locate(self) -> list[ItemTokens | None]:
        job, writer = self.job, self.job.writer()

        def asker() -> Asker:
            write = key_word_writer(job.executor, job.planner.batch_tokens, job.progress)
            return Asker(writer.tokenizer, job.text_side.needs_bos, job.planner.context, write)

        def words(questions: Sequence[Question]) -> list[QuestionSpans]:
            return question_words(job.recipe.exact_tokens, questions, asker)

        questions, answers = self.questions.value.questions, self.answers.value
        return locate_fitting(writer.tokenizer, writer.template, questions, words, answers)

    @cached_property
    def items(self) -> list[Item]:
        """All questions that were asked, with what is known of them."""
        steps = (self.answers, self.labels, self.tokens)
        rows = zip(self.questions.value.questions, *(step.value for step in steps), strict=True)
        return [Item(*row) for row in rows]

    @cached_property
    def used(self) -> NDArray[np.int64]:
        """Which of them are used; all arrays below run over these."""
        return np.flatnonzero([item.is_used for item in self.items])

    @cached_property
    def used_items(self) -> list[Item]:
        """The used items."""
        return [self.items[index] for index in self.used]

    @cached_property
    def groups(self) -> NDArray[np.int64]:
        """The group of every used item."""
        return np.array([item.label.group for item in self.used_items], dtype=np.int64)

    @cached_property
    def splits(self) -> Splits:
        """Folds, halves and inner folds of the used items."""
        recipe = self.job.recipe
        truth = np.array([item.label.truthful for item in self.used_items], dtype=bool)
        ids = [item.item_id for item in self.used_items]
        relations = [item.question.relation for item in self.used_items]
        order = priorities(recipe.seed, "folds", ids)
        folds = grouped_folds(self.groups, truth_strata(truth, relations), recipe.folds, order)
        return make_splits(truth, self.groups, folds, recipe.seed, item_ids=ids, relations=relations)


def question_source(job: Job, spec: DatasetSpec) -> Source:
    """What a dataset's questions depend on: the content of its file, as it is now."""
    name = f"question file of {spec.name}"
    if spec.path is None:
        return Source(name, canonical_hash(repr(atlas.load())) if spec.name in BUILT_IN else spec.name)
    try:
        return Source(name, hash_of(spec.path, job.progress))
    except UserError:
        known = job.folder.steps.get(f"{spec.name}/questions")
        if known is None:
            return Source(name, "missing")  # reading it tells what is wrong
        job.folder.tell(f"{spec.path} cannot be read any more; the questions that were read from it are used")
        return Source(name, known.made_from["parents"][name])
