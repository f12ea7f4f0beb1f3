"""Knowledge boundary: does the model know what it answers through the question better than what it answers otherwise?

True and false answers were drawn in equal numbers, so each item is weighted by its inverse probability of being drawn.
A relation in which every answer is wrong has no drawn item: `coverage` is the share of the answered questions that the
items represent.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import polars as pl

from anchorscope.answers.generate import TOO_LONG
from anchorscope.answers.template import (
    FEW_SHOT,
    INSTRUCTION,
    Example,
    Template,
    split_head,
)
from anchorscope.datasets.question import Question
from anchorscope.evidence.delta_p import A_ANCHORED, GROUPS, Q_ANCHORED
from anchorscope.experiments import section
from anchorscope.experiments.experiment import (
    Experiment,
    ExperimentInputs,
    Found,
    ItemValues,
    Statistic,
)
from anchorscope.experiments.statistics import (
    FEW,
    METHOD,
    Floats,
    estimate_of,
    p_value,
    too_few,
)
from anchorscope.report.findings import find, select
from anchorscope.report.verdicts import Verdict, above, below, between
from anchorscope.report.wording import Show, estimate, percent
from anchorscope.stats.estimate import Estimate

WEIGHTED = "weighted"
_METHOD = f"{METHOD}, weighted by inverse sampling probability"


def run(inputs: ExperimentInputs) -> Found:
    asked, supplied = _dont_know(inputs)
    known_values, unknown = _known_values(inputs)
    coverage, not_covered = _coverage(inputs)
    rows, missing = [coverage], [*supplied, *unknown, *not_covered]
    for quantity, values in {
        "accuracy": inputs.measured.labels.astype(float),
        **asked,
        **known_values,
    }.items():
        more, few = _by_pathway(inputs, quantity, values)
        rows += more
        missing += few
    item_values = [
        ItemValues("dont_know", np.flatnonzero(there := np.isfinite(x)), x[there])
        for x in asked.values()
    ]
    return Found(tuple(rows), tuple(item_values), tuple(dict.fromkeys(missing)))


def _by_pathway(
    inputs: ExperimentInputs, quantity: str, values: Floats
) -> tuple[list[Statistic], list[str]]:
    """The weighted mean of values [item] over all items and per pathway, and the difference Q − A, without NaN."""
    from anchorscope.evidence.draws import ratio, resampling

    there, weights = np.isfinite(values), _weights(inputs)
    rows, missing, means = [], [], {}
    with resampling(inputs.draws.device):
        for group, inside in (
            (None, there),
            *((group, there & inputs.calls.members(group)) for group in GROUPS),
        ):
            n = int(inside.sum())
            if n < FEW:
                missing.append(f"{quantity}: {too_few(n, group)}")
                continue
            parts = (
                np.stack([np.where(inside, values, 0.0), inside])[:, :, None]
                * weights[:, None]
            )
            samples = ratio(*(inputs.draws.sums(part)[0] for part in parts))
            mean = estimate_of(samples, n, _METHOD)
            rows.append(Statistic(quantity, mean, WEIGHTED, group=group, truth="all"))
            means[group] = (samples, inside)
        if all(group in means for group in GROUPS):
            (first, in_first), (second, in_second) = (means[group] for group in GROUPS)
            both = in_first | in_second
            # where all are the same there is nothing to test
            differ = np.ptp(values[both]) > 0
            estimate = estimate_of(first - second, int(both.sum()), _METHOD)
            p, against = (
                p_value(first - second) if differ else None,
                f"{Q_ANCHORED} − {A_ANCHORED}",
            )
            rows.append(
                Statistic(
                    f"{quantity}_difference",
                    estimate,
                    WEIGHTED,
                    against,
                    truth="all",
                    p_value=p,
                )
            )
    return rows, missing


def _weights(inputs: ExperimentInputs) -> Floats:
    """How many answered questions each used item represents."""
    return np.array([item.label.weight for item in inputs.used_items], dtype=float)


def _dont_know(inputs: ExperimentInputs) -> tuple[dict[str, Floats], list[str]]:
    """Whether the model says so when allowed, 1 or 0; NaN for items that weren't asked."""
    items = inputs.some_items()
    own = [
        index
        for index in items
        if inputs.used_items[index].question.model_answer is None
    ]
    missing = []
    if len(own) < len(items):
        missing.append(
            f"dont_know_rate: the answers to {len(items) - len(own)} of {len(items)} questions were supplied "
            f"(model_answer), so that asking the model again would not be about them"
        )
    if len(own) < FEW:
        return {}, missing
    answers = ask_again(inputs, [inputs.used_items[index].question for index in own])
    values = np.full(inputs.n, np.nan)
    values[own] = [np.nan if text is None else says_dont_know(text) for text in answers]
    return {"dont_know_rate": values}, missing


def ask_again(inputs: ExperimentInputs, questions: list[Question]) -> list[str | None]:
    """The model's answers to the questions, with the run's own prompt that now allows "I don't know"; None if it
    doesn't fit."""
    from anchorscope.execute.run_passes import run_answers
    from anchorscope.plan.passes import plan_answers

    writer = inputs.setting.writer()
    work = plan_answers(
        questions,
        writer.tokenizer,
        allow_dont_know(writer.template),
        inputs.max_new_tokens,
        inputs.planner.batch_tokens,
        inputs.planner.context,
    )
    answers = run_answers(inputs.executor, work, inputs.progress)
    return [None if answer.status == TOO_LONG else answer.text for answer in answers]


ALLOWED = "I don't know"
PERMISSION = f"If you do not know the answer, say: {ALLOWED}"
UNANSWERABLE = (
    Example(
        "In which year was the harbour of Quelvorn Brask opened?",
        ALLOWED,
        "Quelvorn Brask",
    ),
    Example(
        "Who painted The Nettle King of Ostrelle?",
        ALLOWED,
        "The Nettle King of Ostrelle",
    ),
)
"""Questions about places and works that do not exist."""


def allow_dont_know(template: Template) -> Template:
    """The template with the permission; if it has examples, with two unanswerable ones among them."""
    head, parts = template.head, split_head(template)
    if parts is not None:
        before, turns = parts
        like, shape = FEW_SHOT[1], turns[1]  # the first may hold what is said but once
        shown = [
            shape.replace(like.question, example.question, 1).replace(
                like.answer, example.answer, 1
            )
            for example in UNANSWERABLE
        ]
        head = "".join([before, turns[0], shown[0], *turns[1:-1], shown[1], turns[-1]])
    if INSTRUCTION in head:
        return replace(
            template, head=head.replace(INSTRUCTION, f"{INSTRUCTION} {PERMISSION}.", 1)
        )
    return replace(template, head=f"{PERMISSION}.\n\n{head}")


_I = r"(?:i |we |it |this |that )?(?:really |honestly |truly |simply |just )?"
_AM = r"(?:i am |i'm |im |we are |we're )?(?:really |honestly |truly )?"
_IT_IS = r"(?:(?:it|that|this|the answer|the exact answer)(?: is|'s) )?(?:currently |still |simply )?"
_TOLD = r"(?:information|data|evidence|record|records|answer|context)"
_APOLOGY = re.compile(
    r"(?:(?:i am |i'm )?(?:very |so )?sorry|i apologi[sz]e|unfortunately|honestly|well|as an? [a-z ]{2,40}?)"
    r"(?:[,.;:!]+ ?(?:but )?| but )",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    rf"{_I}(?:do not|don't|dont|did not|didn't) (?:really |actually |currently )?"
    rf"(?:know|recall|remember|have (?:an idea|an answer|a clue|any|enough|sufficient|access to))"
    rf"|{_AM}(?:not (?:entirely |quite |really |completely |too )?(?:sure|certain|aware of|able to)|unsure|uncertain"
    rf"|unable to|unaware of)"
    rf"|{_I}(?:cannot|can not|can't|cant|could not|couldn't)"
    rf" (?:answer|say|tell|determine|find|recall|remember|be (?:answered|known|determined))"
    rf"|(?:i |we )?(?:have )?(?:absolutely )?no (?:idea|clue)"
    rf"|(?:i have |there is |there's )?(?:no|not enough|insufficient) {_TOLD}",
    re.IGNORECASE,
)
_STATE = re.compile(
    rf"{_IT_IS}(?:unknown|unclear|uncertain|undetermined|not (?:exactly |precisely |yet )?(?:known|clear))|n/a",
    re.IGNORECASE,
)
_STATE_GOES_ON = re.compile(
    r" (?:to (?:me|us|anyone)|at (?:this|the) (?:time|moment)|from|because|as|since|who|what|where|when|which|whether"
    r"|how|if|for|but)\b"
)
_ENDS = re.compile(r"\s*(?:$|[.,;:!?…)\]\"]|[–—-]\s|\()")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "ʼ": "'", "`": "'", "“": '"', "”": '"'})
_OUTSIDE = " \t\"'*_([{<«»>}])"


def says_dont_know(text: str) -> bool:
    """Whether an answer is a phrase such as "unknown", or begins with one such as "I don't know who wrote it", and
    isn't a name such as "Unknown Pleasures"."""
    answer = " ".join(text.translate(_QUOTES).split()).strip(_OUTSIDE)
    if answer.isupper():
        answer = answer.lower()  # all capitals say nothing about names
    while apology := _APOLOGY.match(answer):
        answer = answer[apology.end() :].strip(_OUTSIDE)
    sentence, state = _SENTENCE.match(answer), _STATE.match(answer)
    if sentence is not None and _goes_on(answer[sentence.end() :]):
        return True
    return state is not None and (
        bool(_ENDS.match(answer[state.end() :]))
        or bool(_STATE_GOES_ON.match(answer[state.end() :]))
    )


def _goes_on(rest: str) -> bool:
    """Whether a sentence may continue, or end, like this: with a mark or a small letter; a title has a capital."""
    return bool(_ENDS.match(rest)) or (rest.startswith(" ") and rest[1:2].islower())


POPULARITY = (
    "s_pop",
    "subject_popularity",
    "popularity",
    "pageviews",
    "page_views",
    "views",
)
"""Columns with a subject's popularity; the first one present counts."""


def log_popularity(question: Question) -> float:
    """log10 of the subject's popularity; NaN without a number above 0."""
    named = {
        str(name).strip().lower().replace(" ", "_"): value
        for name, value in question.metadata.items()
    }
    for name in POPULARITY:
        value = named.get(name)
        if isinstance(value, bool) or value is None:
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        return math.log10(number) if 0 < number < math.inf else math.nan
    return math.nan


def _known_values(inputs: ExperimentInputs) -> tuple[dict[str, Floats], list[str]]:
    """What is known of the items without asking anything, and what isn't."""
    values, missing = {}, []
    popularity = np.array([log_popularity(item.question) for item in inputs.used_items])
    n = int(np.isfinite(popularity).sum())
    if n >= FEW:
        values["popularity"] = popularity
    else:
        missing.append(
            f"popularity: {n or 'none'} of {inputs.n} items of dataset {inputs.dataset!r} say how well known their "
            f"subject is; PopQA does (s_pop), an own file needs a column {' or '.join(map(repr, POPULARITY[:4]))} with "
            f"numbers above 0"
        )
    log_probs = [item.answer.log_probs for item in inputs.used_items]
    given = sum(bool(tokens) for tokens in log_probs)
    if given >= FEW:
        values["confidence_mean"] = np.array(
            [np.mean(tokens) if tokens else np.nan for tokens in log_probs]
        )
    if given < inputs.n:
        missing.append(
            f"confidence_mean: {inputs.n - given} of {inputs.n} answers were supplied (model_answer), without the "
            f"log-probabilities of their tokens"
        )
    return values, missing


def _coverage(inputs: ExperimentInputs) -> tuple[Statistic, list[str]]:
    """The share of all answered questions that the weighted items represent: a count, without an interval."""
    answered = sum(item.label.truthful is not None for item in inputs.items)
    share = min(1.0, float(_weights(inputs).sum()) / answered)
    exact = Estimate(
        share, np.nan, np.nan, answered, "exact share of the answered questions"
    )
    coverage = Statistic("coverage", exact, WEIGHTED)
    if share > 1 - 0.5 / answered:
        return coverage, []
    return coverage, [
        f"all numbers leave out {round((1 - share) * answered)} of {answered} answered questions: in their relation "
        f"all answers are wrong (or all right), or none of its pairs was drawn, so that no used item stands for them"
    ]


EXPERIMENT = Experiment(
    "boundary",
    "per pathway: accuracy, how often the model says it does not know, popularity, confidence",
    run,
)

QUANTITIES: dict[str, tuple[str, Show]] = {
    "accuracy": ("true answers", percent),
    "dont_know_rate": ("says “I don't know”", percent),
    "popularity": ("log10 popularity", estimate),
    "confidence_mean": ("mean log-probability", estimate),
}
"""Quantity → its words and how it is written."""
_SHOWS = {name: show for name, (_, show) in QUANTITIES.items()}


def _accuracy(rows: pl.DataFrame) -> section.Said | None:
    """Whether the share of true answers differs; equal only if the interval is narrow enough."""
    gap = find(rows, measure="accuracy", aspect="difference")
    apart = "yes" in (above(gap, 0.0), below(gap, 0.0))
    same = between(gap, -section.SMALL_GAP, section.SMALL_GAP) == "yes"
    verdict: Verdict = "no" if same else "yes" if apart else "inconclusive"
    return section.number(gap, verdict, section.whole_percent, "Q − A, weighted")


SECTION = section.SectionSpec(
    slug="boundary",
    title="Knowledge boundary",
    asks="Do the pathways differ in what the model knows, admits not to know, and is sure of?",
    careful="Half of the answers are true by design; weights undo that. A rule that sorts by label makes groups "
    "differ in whatever goes with truth.",
    answer=section.Answer(
        "The groups differ in how many answers are true",
        "The groups hardly differ in how many answers are true",
        "Whether the groups differ in how many answers are true is undecided",
        _accuracy,
    ),
    tables=(
        section.TableSpec(
            "Means of both groups, weighted to all answered questions",
            (
                section.Key(
                    "measure",
                    "quantity",
                    {name: words for name, (words, _) in QUANTITIES.items()},
                ),
            ),
            (
                *(
                    column
                    for group in GROUPS
                    for column in (
                        section.value(group, _SHOWS, aspect="", group=group),
                        section.items(aspect="", group=group),
                    )
                ),
                section.value("Q − A", _SHOWS, aspect="difference"),
                section.p_value(aspect="difference"),
            ),
            lambda rows: select(rows, measure=tuple(QUANTITIES), truth="all"),
        ),
    ),
)
