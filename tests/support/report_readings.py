"""The readings of a run as records."""

from typing import Any

from anchorscope.report import checks
from anchorscope.report.findings import Findings


def read(findings: Findings) -> list[dict[str, Any]]:
    return [reading.record() for reading in checks.read(findings)]
