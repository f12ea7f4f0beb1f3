"""Items that an experiment makes: a question with an answer that the model didn't give, or in other words.

Tokens are located, and the knockout and its random control drawn, as in a run. One pass gives clean and cut states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jaxtyping import Float

from anchorscope.answers.generate import given_answers
from anchorscope.answers.label import Label
from anchorscope.answers.template import build_prompts
from anchorscope.datasets.question import Question
from anchorscope.engine.sequences import CLEAN, Variant
from anchorscope.errors import InterventionNotApplied
from anchorscope.experiments.experiment import ExperimentInputs
from anchorscope.items import Item
from anchorscope.spans.locate import locate_all
from anchorscope.spans.question_spans import QuestionSpans

if TYPE_CHECKING:
    from torch import Tensor

    from anchorscope.interventions.intervention import Intervention, Writer
    from anchorscope.plan.interventions import PlannedRuns


@dataclass(frozen=True)
class SuppliedStates:
    """States of supplied items at the headline site and position, in host memory."""

    clean: Float[Tensor, "layer item d_model"]
    before: Float[Tensor, "layer item d_model"]
    """Clean, at the same site, before the answer begins."""
    cut: Mapping[str, Float[Tensor, "layer item d_model"]]
    log_probs: tuple[tuple[float, ...], ...]
    """Of every token of each answer."""


def supplied_items(
    writer: Writer,
    questions: Sequence[Question],
    spans: Sequence[QuestionSpans],
    groups: Sequence[int],
) -> list[Item]:
    """Items of questions that bring their answers and labels; `spans` are the questions' exact words."""
    prompts = build_prompts(writer.tokenizer, questions, writer.template)
    answers = given_answers(
        writer.tokenizer,
        writer.template,
        prompts,
        [str(question.model_answer) for question in questions],
    )
    located = locate_all(writer.tokenizer, questions, spans, prompts, answers)
    return [
        Item(question, answer, Label(question.truthful, group, "used", 1.0), tokens)
        for question, answer, group, tokens in zip(
            questions, answers, groups, located, strict=True
        )
    ]


def asked_again(
    writer: Writer,
    items: Sequence[Item],
    questions: Sequence[Question],
    spans: Sequence[QuestionSpans],
) -> list[Item]:
    """The items with the same answer tokens, after other questions or another template."""
    prompts = build_prompts(writer.tokenizer, questions, writer.template)
    located = locate_all(
        writer.tokenizer, questions, spans, prompts, [item.answer for item in items]
    )
    return [
        replace(item, question=question, tokens=tokens)
        for item, question, tokens in zip(items, questions, located, strict=True)
    ]


def all_fit(inputs: ExperimentInputs, items: Sequence[Item]) -> bool:
    """Whether every one of these items fits the model's context."""
    context = inputs.planner.context
    return context is None or all(
        len(item.located.input_ids) <= context for item in items
    )


def run_supplied(
    inputs: ExperimentInputs,
    items: Sequence[Item],
    title: str,
    cuts: Sequence[Intervention],
) -> SuppliedStates:
    """Runs items clean and under the cuts; every item has its states under each."""
    from anchorscope.execute.run_passes import run_states
    from anchorscope.plan.interventions import plan_cut

    # Nobody measured the attention in these texts: random tokens are matched in number.
    setting = replace(inputs.setting, most_items=None, masses=dict)
    planned = [plan_cut(cut, items, setting) for cut in cuts]
    variants = [
        CLEAN,
        *(Variant({run.item: run.cut for run in runs.runs}) for runs in planned),
    ]
    first = items[0].located
    # The token before an answer predicts its first one, so that it has to be run here.
    shared = min(
        first.prefix_length, min(item.located.answer_start for item in items) - 1
    )
    sequences = [
        replace(sequence, read_at=(*sequence.read_at, sequence.answer_start - 1))
        for sequence in (item.sequence(setting.positions) for item in items)
    ]
    work = inputs.planner.states(title, sequences, first.input_ids[:shared], variants)
    before = len(setting.positions), inputs.headline[1]
    keep = ((inputs.headline, before), *((inputs.headline,) for _ in planned))
    ran = run_states(
        inputs.executor, replace(work, keep=keep, log_probs=True), inputs.progress
    )
    both, *others = [part.states for part in ran.variants if part.states is not None]
    clean, others = both[0], [states[0] for states in others]
    for runs, states in zip(planned, others, strict=True):
        refuse_unmoved(runs, clean, states)
    return SuppliedStates(
        clean=clean,
        before=both[1],
        cut={cut.name: states for cut, states in zip(cuts, others, strict=True)},
        log_probs=tuple(ran.log_probs[index] for index in range(len(items))),
    )


def refuse_unmoved(
    planned: PlannedRuns,
    clean: Float[Tensor, "layer item d_model"],
    after: Float[Tensor, "layer item d_model"],
) -> None:
    """Raises where an item lost attention edges and yet all of its states are unchanged to the last bit."""
    same = (clean == after).all(dim=2).all(dim=0)
    silent = sum(bool(same[run.item]) and run.n_changed > 0 for run in planned.runs)
    if silent:
        raise InterventionNotApplied(
            f"{planned.intervention.name}: {silent} items lost attention edges and not one of their states changed"
        )
