"""Are true answers those to longer questions?"""

import numpy as np

from anchorscope.experiments import section
from anchorscope.experiments.experiment import Experiment, ExperimentInputs, Found, ItemValues, Statistic
from anchorscope.experiments.statistics import auc_samples, estimate_of
from anchorscope.report.findings import find, statistics
from anchorscope.report.verdicts import above
from anchorscope.report.wording import estimate


def run(inputs: ExperimentInputs) -> Found:
    """How well the number of words in the question tells true answers from false ones, as an AUC."""
    words = np.array([len(item.question.question.split()) for item in inputs.used_items], dtype=float)
    samples = auc_samples(words, inputs.measured.labels, inputs.measured.folds, inputs.draws)
    auc = Statistic("auc_words", estimate_of(samples, inputs.n), "question", truth="all")
    return Found((auc,), (ItemValues("question_words", np.arange(inputs.n), words),))


def decide(rows: section.Rows) -> section.Said | None:
    """Whether the AUC is above one half."""
    auc = find(rows, quantity="auc_words")
    return section.number(auc, above(auc, 0.5), estimate, "AUC of the question's length")


SECTION = section.SectionSpec(
    slug="question-length",
    title="Length of the question",
    rows=lambda findings: statistics(findings, "question-length"),
    asks="Are true answers those to longer questions?",
    careful="Length goes with the relation that is asked for.",
    answer=section.Answer(
        "True answers are those to longer questions",
        "True answers are not those to longer questions",
        "Whether true answers are those to longer questions is undecided",
        decide,
    ),
    tables=(section.TableSpec("AUC of the question's length", (), (section.value("AUC", estimate),)),),
)
QUESTION_LENGTH = Experiment(
    "question-length", "how well the length of the question tells true from false", run, SECTION
)
