"""Every statement, in the order in which it is told, and how all of them are put to a run.

The parts of the evidence come first: two tested questions answer what was asked, controls say whether to trust it. The
curves of the paper's rule and of its corrected one are described.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from anchorscope.report.assignment_rules import RULES
from anchorscope.report.findings import Findings
from anchorscope.report.shares import has_shares
from anchorscope.report.statements.control_statements import CURVE_CONTROLS, SHARE_CONTROLS
from anchorscope.report.statements.curve_statements import APART, CURVES, DATASETS
from anchorscope.report.statements.number_statements import NUMBERS
from anchorscope.report.statements.run_curves import RunCurves
from anchorscope.report.statements.share_statements import DESCRIBED, TESTED
from anchorscope.report.statements.statement import About, Found, Reading, Statement
from anchorscope.report.wording import p_value_cell
from anchorscope.stats.estimate import holm

OF_SHARES = (*TESTED, *SHARE_CONTROLS, *DESCRIBED)
"""Asked where the run measured the parts of the evidence."""
OF_CURVES = (*NUMBERS, *CURVE_CONTROLS, *APART, *CURVES)
"""Asked of every run."""
STATEMENTS = (*OF_SHARES, *OF_CURVES, *DATASETS)
"""Every statement of a run's report."""


def read(findings: Findings) -> list[Reading]:
    """All readings of a run, dataset by dataset, then those over all datasets."""
    rules = (None, *RULES)
    curves = {rule: RunCurves(findings, rule) if rule else None for rule in rules}
    asked = (*(OF_SHARES if has_shares(findings) else ()), *OF_CURVES)
    places = [About(findings, dataset, rule, curves[rule]) for dataset in findings.datasets for rule in rules]
    found = [one for about in places for one in _measured(about, asked)]
    if len(findings.datasets) > 1:
        found += [one for rule in rules for one in _measured(About(findings, None, rule, curves[rule]), DATASETS)]
    return [statement.reading(about, one) for statement, about, one in _corrected(found)]


Put = tuple[Statement, About, Found]


def _measured(about: About, statements: tuple[Statement, ...]) -> Iterator[Put]:
    for statement in statements:
        if about.assignment in statement.rules:
            found = statement.measure(about)
            if found is not None:
                yield statement, about, found


def _corrected(put: list[Put]) -> list[Put]:
    """The p-values of all tested statements corrected together, and told."""
    tested = [place for place, (statement, _, _) in enumerate(put) if statement.standing == "tested"]
    values = [put[place][2].p_value for place in tested]
    corrected = holm([math.nan if value is None else value for value in values])
    done = list(put)
    for place, p in zip(tested, corrected, strict=True):
        statement, about, found = put[place]
        if found.estimate is None:
            continue
        told = f"{found.numbers}; p {_shown(found.p_value)}, corrected {_shown(p)}; n = {found.estimate.n}"
        done[place] = statement, about, replace(found, p_corrected=p, numbers=told)
    return done


def _shown(p: float | None) -> str:
    text = p_value_cell(p)
    return text if text.startswith("<") else f"= {text}"
