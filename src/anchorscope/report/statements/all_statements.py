"""Every check of a run, in the order in which the page shows them, and `read`, which applies them.

The parts of the evidence come first: two tested questions answer what was asked, controls say whether to trust it. The
curves of the paper's rule and of its corrected one are described.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.reading import Check, Measured, Reading, Subject
from anchorscope.report.run_curves import RunCurves
from anchorscope.report.shares import has_shares
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.curve_statements import APART, CURVES, DATASETS
from anchorscope.report.statements.number_statements import NUMBERS
from anchorscope.report.statements.share_statements import DESCRIBED, TESTED
from anchorscope.report.wording import p_value_cell
from anchorscope.stats.estimate import holm

OF_SHARES = (*TESTED, *SHARE_CONTROLS, *DESCRIBED)
"""Checked where the run measured the parts of the evidence."""
OF_CURVES = (*NUMBERS, *CURVE_CONTROLS, *APART, *CURVES)
"""Checked in every run."""
STATEMENTS = (*OF_SHARES, *OF_CURVES, *DATASETS)
"""Every check of a run's report."""

Result = tuple[Check, Subject, Measured]


def read(findings: Findings) -> list[Reading]:
    """All readings of a run, dataset by dataset, then those over all datasets."""
    rules = (None, *RULES)
    curves = {rule: RunCurves(findings, rule) if rule else None for rule in rules}
    checks = (*(OF_SHARES if has_shares(findings) else ()), *OF_CURVES)
    subjects = [Subject(findings, dataset, rule, curves[rule]) for dataset in findings.datasets for rule in rules]
    results = [result for subject in subjects for result in _measure(subject, checks)]
    if len(findings.datasets) > 1:
        for rule in rules:
            results += _measure(Subject(findings, None, rule, curves[rule]), DATASETS)
    return [check.reading(subject, measured) for check, subject, measured in _correct_p_values(results)]


def _measure(subject: Subject, checks: tuple[Check, ...]) -> Iterator[Result]:
    for check in checks:
        if subject.assignment in check.rules:
            measured = check.measure(subject)
            if measured is not None:
                yield check, subject, measured


def _correct_p_values(results: list[Result]) -> list[Result]:
    """The p-values of all tested checks, corrected together (Holm) and added to their numbers."""
    tested = [index for index, (check, _, _) in enumerate(results) if check.standing == "tested"]
    p_values = [results[index][2].p_value for index in tested]
    corrected = holm([math.nan if value is None else value for value in p_values])
    done = list(results)
    for index, p in zip(tested, corrected, strict=True):
        check, subject, measured = results[index]
        if measured.estimate is None:
            continue
        p_words = f"p {_p_words(measured.p_value)}, corrected {_p_words(p)}"
        numbers = f"{measured.numbers}; {p_words}; n = {measured.estimate.n}"
        done[index] = check, subject, replace(measured, p_corrected=p, numbers=numbers)
    return done


def _p_words(p: float | None) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"
