"""The readings of a run as records."""

from typing import Any

from anchorscope.report.findings import Findings
from anchorscope.report.statements import all_statements


def read(findings: Findings) -> list[dict[str, Any]]:
    """Every reading of a run."""
    return [reading.record() for reading in all_statements.read(findings)]
