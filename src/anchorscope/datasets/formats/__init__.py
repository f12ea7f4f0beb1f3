"""The formats in which question sets circulate, recognised by the columns of a row, never by a file's name.

Accepted answers are kept as the file writes them, each once: aliases of one character, emoji, titles with a parenthesis
and tokenised spacing are the grader's business.
"""

from collections.abc import Mapping

from anchorscope.datasets.formats import dpr, flashrag, hotpotqa, nq_open, plain, popqa, run_items, triviaqa
from anchorscope.datasets.formats.format import Format

FORMATS = (
    popqa.OFFICIAL,
    popqa.RAGVSFT,
    triviaqa.OFFICIAL,
    triviaqa.HUGGING_FACE,
    flashrag.FLASHRAG,
    run_items.RUN_ITEMS,
    hotpotqa.HOTPOTQA,
    nq_open.NQ_OPEN,
    dpr.DPR,
    plain.PLAIN,
)
"""Every format; the first that recognises a row names the file."""


def recognise(row: Mapping[str, object]) -> Format | None:
    """The format of a row, or None."""
    return next((form for form in FORMATS if form.recognises(row)), None)
