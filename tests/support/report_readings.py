"""The readings of a run as records with the verdicts that pages show."""

from typing import Any

from anchorscope.report.findings import Findings
from anchorscope.report.reading import Reading
from anchorscope.report.statements import all_statements


def as_record(reading: Reading) -> dict[str, Any]:
    """Its record; "yes" instead of the file's "holds"."""
    return reading.record() | {"verdict": reading.verdict}


def read(findings: Findings) -> list[dict[str, Any]]:
    """Every reading of a run."""
    return [as_record(reading) for reading in all_statements.read(findings)]
