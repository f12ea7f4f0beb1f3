"""Are Q-Anchored answers those to longer questions?"""

import numpy as np

from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues
from anchorscope.experiments.statistics import Column, compare_pathways
from anchorscope.report.result_rows import find, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate


def run(inputs: ExperimentInputs) -> Found:
    """Words of the question, per pathway, with intervals."""
    words = np.array([len(item.question.question.split()) for item in inputs.used_items], dtype=float)
    compared = compare_pathways(inputs, [Column("question_words", words)])
    values = ItemValues("question_words", np.arange(inputs.n), words)
    return Found(tuple(compared.statistics), (values,), tuple(compared.lines()))


def decide(rows: section.Rows) -> section.Said | None:
    """Whether the difference is above zero."""
    gap = find(rows, measure="question_words", aspect="difference", truth="all")
    return section.number(gap, above(gap, 0.0), estimate, "Q − A, in words")


SECTION = section.SectionSpec(
    slug="question-length",
    title="Length of the question",
    rows=lambda findings: statistics(findings, "question-length"),
    asks="Are Q-Anchored answers those to longer questions?",
    careful="Length goes with the relation that is asked for.",
    answer=section.Answer(
        "Q-Anchored answers are those to longer questions",
        "Q-Anchored answers are not those to longer questions",
        "Whether Q-Anchored answers are those to longer questions is undecided",
        decide,
    ),
    tables=(section.TableSpec("Words of the question", (section.RULE, section.TRUTH), section.both_groups(estimate)),),
)
QUESTION_LENGTH = Experiment("question-length", "words of the question, per pathway", run, SECTION)
