"""Figures, readings in words, and the page. Nothing here needs a model: a finished run's tables are enough."""

from anchorscope.report.findings import Findings as Findings
from anchorscope.report.render import write_all as write_all

__all__ = ["Findings", "write_all"]
