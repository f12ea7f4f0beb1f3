"""The former names of `report/reading.py`, for files that still use them."""

from anchorscope.report.reading import Check as Statement
from anchorscope.report.reading import Measured as Found
from anchorscope.report.reading import Standing, at_layers, finite, over, under, within
from anchorscope.report.reading import Subject as About

__all__ = ["About", "Found", "Standing", "Statement", "at_layers", "finite", "over", "under", "within"]
