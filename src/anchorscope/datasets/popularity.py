"""How well known a question's subject is, where the dataset says so."""

import math

from anchorscope.datasets.question import Question

POPULARITY = ("s_pop", "subject_popularity", "popularity", "pageviews", "page_views", "views")
"""Columns that say how well known a subject is, the first that is there; PopQA's own is `s_pop`."""


def log_popularity(question: Question) -> float:
    """log10 of the subject's popularity; NaN where nothing, or no number above 0, is said."""
    named = {str(name).strip().lower().replace(" ", "_"): value for name, value in question.metadata.items()}
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
