"""How large a question file may be, so that none, however it was made, takes a gigabyte of memory or never ends.

What no question file ever has (a question of 100,000 letters, a thousand columns) is fixed. What a real one may have
(millions of rows) can be allowed with `--large-files`; memory then grows with the file.
"""

import sys
from dataclasses import dataclass

from anchorscope.datasets.question import Question
from anchorscope.errors import UserError

ROW_BYTES = 10_000_000
"""Bytes that one row may have: a question with all its context is far smaller, a file without line ends far larger."""
ROW_VALUES = 1_000_000
"""Values in one row, counted by the marks between them: as Python objects they take a hundred bytes each."""
CELL_LETTERS = 1_000_000
"""Letters in one cell of a CSV or TSV file: a quote that is never closed loses no more rows than that."""
TEXT_LETTERS = 100_000
"""Letters in a question or an answer; more than the longest context that a model reads as one question."""
NAME_LETTERS = 1_000
"""Letters in an id, a subject, a relation, a column's name."""
ANSWERS = 10_000
"""Accepted answers of a question: the longest lists of aliases have some hundreds."""
MARKS = 1_000
"""Pieces or places in `exact_question`, and words in `property_words`."""
COLUMNS = 1_000
"""Columns of a row."""
KEPT_BAD_ROWS = 1_000
"""Bad rows that are kept with their reasons; later ones are counted."""
BAD_ROWS_TOGETHER = 100_000
"""Bad rows without a good one between them, after which it is the wrong file."""
BLANK_LINES_TOGETHER = 1_000_000
"""Lines without a good row between them, after which it is the wrong file; blank lines are no rows."""
BYTES_TOGETHER = 100_000_000
"""Bytes, unpacked, without a good row between them."""
RECOGNISED_BY = 20_000_000
"""Bytes that are held at most to recognise the format by the first rows."""
RELATIONS = 20_000
"""Different relations that are counted apart."""
PARQUET_SECONDS = 120
"""Seconds of computing after which a Parquet file has to have given its next rows."""
GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class FileLimits:
    """What a real file may be too large for."""

    rows: int
    """Rows: a few numbers are kept of each, to know its id and its question again."""
    unpacked: int
    """Bytes after unpacking."""
    kept: int
    """Bytes of the questions that are held together, to be asked or scored."""
    memory: int
    """Bytes for reading a Parquet file, whose parts must be unpacked whole."""


USUAL = FileLimits(rows=2_000_000, unpacked=20 * GIGABYTE, kept=400_000_000, memory=700_000_000)
"""What fits in a gigabyte."""
LARGE = FileLimits(rows=10**12, unpacked=10**15, kept=10**15, memory=10**12)
"""No limits, for those who ask for that (`--large-files`)."""
ALLOW_LARGE = "If the file is what you mean, allow it with --large-files"


def file_limits(large: bool) -> FileLimits:
    """The limits that hold with and without `--large-files`."""
    return LARGE if large else USUAL


class KeptQuestions:
    """Counts the memory of the questions that are held together."""

    def __init__(self, limits: FileLimits, then: str) -> None:
        self._room, self._then, self._count = limits.kept, then, 0

    def add(self, question: Question) -> None:
        """One more is held."""
        self._count += 1
        self._room -= _size(question)
        if self._room < 0:
            raise UserError(
                f"{self._count:,} questions of {question.dataset!r} take more than {USUAL.kept // 10**6} MB, and there "
                f"are more. {self._then}"
            )

    def drop(self, question: Question) -> None:
        """This one is not held any more."""
        self._count -= 1
        self._room += _size(question)


def _size(question: Question) -> int:
    """Bytes that a question takes, about."""
    texts = (
        question.question,
        question.item_id,
        question.model_answer or "",
        *question.answers,
        *question.metadata,
        *question.metadata.values(),
    )
    return 400 + sum(sys.getsizeof(text) + 16 for text in texts)
