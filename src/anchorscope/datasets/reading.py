"""A dataset as a stream: questions come one at a time, and what could not be used is remembered with its reason.

Nothing here holds the file: a million rows are read in the memory of a few, plus a number for every id.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice

from anchorscope.catalogue import ON_BAD_ROW
from anchorscope.datasets.formats import PLAIN, UNGRADED, Format, recognise
from anchorscope.datasets.harness_samples import columns_of as harness_columns
from anchorscope.datasets.harness_samples import is_sample, metrics_of
from anchorscope.datasets.limits import ALLOW_LARGE, BAD_ROWS_TOGETHER, KEPT_BAD_ROWS, RECOGNISED_BY, USUAL, FileLimits
from anchorscope.datasets.logged_answers import deciding, label_by, scores_of
from anchorscope.datasets.question import Question
from anchorscope.datasets.question_file import LOGS
from anchorscope.datasets.question_rows import question_from_row
from anchorscope.datasets.raw_rows import BadRow, Row, Unusable, check_present, mapped, shown, with_few_columns
from anchorscope.datasets.text import small_hash
from anchorscope.errors import UserError, unknown

_USABLE_ROWS, _ROWS = 10, 1000  # how many are looked at to recognise the format
_LOGGED_ROWS = 100  # and which score of a log labels it
_LOG = "inspect log"


class Reading:
    """The questions of a dataset, to be gone through once."""

    def __init__(self, kind: str, found: Iterator[Question | BadRow], limits: FileLimits = USUAL) -> None:
        self.format = kind
        """What the file is, in words: "PopQA, TSV"."""
        self.rows = 0
        """Rows met so far, the bad ones included; blank lines and the header not."""
        self.bad = 0
        """How many of them could not be used."""
        self.bad_rows: list[BadRow] = []
        """The first of these, with their reasons."""
        self.limits = limits
        self._found: Iterator[Question | BadRow] | None = found

    def __iter__(self) -> Iterator[Question]:
        if self._found is None:
            raise RuntimeError("A reading can be gone through once; open the dataset again.")
        found, self._found = self._found, None
        for one in found:
            self.rows += 1
            if isinstance(one, BadRow):
                self.bad += 1
                if self.bad <= KEPT_BAD_ROWS:
                    self.bad_rows.append(one)
            else:
                yield one


@dataclass(frozen=True)
class Source:
    """Rows, and how to speak of them."""

    name: str
    """The file, or where else the rows come from."""
    container: str
    """How the rows are written: "JSON lines"."""
    place: str
    """What a row's number counts: "line", "entry" or "row"."""
    rows: Iterator[tuple[int, Row]]
    """Number and content of every row."""
    limits: FileLimits = USUAL
    good_row: Callable[[], None] = lambda: None
    """Is told when a row could be used."""
    bytes_so_far: Callable[[], int] = lambda: 0
    """How much was read for the rows so far."""
    close: Callable[[], None] = lambda: None
    """Lets go of where they come from."""


def read_source(
    source: Source, dataset: str, on_bad_row: str, columns: Mapping[str, str], graded: bool = True
) -> Reading:
    """The questions of a source; its format is recognised from its first rows.

    Where nothing will be graded, rows need no accepted answers.
    """
    if on_bad_row not in ON_BAD_ROW:
        raise unknown("value of --on-bad-row", on_bad_row, ON_BAD_ROW)
    skip = on_bad_row == "skip"
    first = _first_rows(source)
    form = _labelled(_format(source, first, skip, columns, graded), source, first, columns)
    found = _questions(source, chain(first, source.rows), form, dataset, skip, columns, graded)
    return Reading(f"{form.name}, {source.container}", _closing(source, found), source.limits)


def _first_rows(source: Source) -> list[tuple[int, Row]]:
    """Rows enough to recognise the format."""
    first: list[tuple[int, Row]] = []
    usable = 0
    for line, found in islice(source.rows, _ROWS):
        row = with_few_columns(found)
        first.append((line, row))
        usable += not isinstance(row, Unusable)
        is_log = source.container == _LOG or (not isinstance(row, Unusable) and is_sample(row))
        if usable >= (_LOGGED_ROWS if is_log else _USABLE_ROWS) or source.bytes_so_far() > RECOGNISED_BY:
            break
    return first


def _format(
    source: Source, first: list[tuple[int, Row]], skip: bool, columns: Mapping[str, str], graded: bool
) -> Format:
    """What the columns mean, or the refusal."""
    if not first:
        raise UserError(f"{source.name} holds no rows. Write at least one question into it.")
    rows = [row for _, row in first if not isinstance(row, Unusable)]
    if columns and rows:
        found = list(dict.fromkeys(name for row in rows for name in row))
        check_present(columns, found, source.name)
        form = recognise(rows[0])
        if form is not None and form.translate is harness_columns and [*columns] == ["truthful"]:
            return form
        there = {name.strip().lower() for name in found}
        for wanted in (("question",), ("answers", "answer"))[: 1 + graded]:
            if not any(name in columns or name in there for name in wanted):
                raise UserError(
                    f"{source.name} has no column {wanted[0]!r}; columns found: {shown(found)}. "
                    f"Say which one it is, like --columns {wanted[0]}={found[0]}."
                )
        return PLAIN
    if rows and source.container == _LOG:
        return PLAIN  # its columns have their names already; metadata may be called anything
    form = next(filter(None, map(recognise, rows)), None)
    if form is None and not graded and any(map(UNGRADED.recognises, rows)):
        form = UNGRADED
    if form is not None:
        return form
    line, row = first[0]
    if isinstance(row, Unusable) and not (skip and rows):
        raise _failure(source, line, row, skip)
    raise UserError(
        f"{source.name} has no known format ({source.container}); columns found: {shown([*rows[0]])}. A file of your "
        + (
            "own needs 'question' and 'answers'; name yours like --columns question=prompt,answers=gold."
            if graded
            else "own needs 'question'; name yours like --columns question=prompt."
        )
        + f" Read as it is: {LOGS}."
    )


def _labelled(form: Format, source: Source, first: list[tuple[int, Row]], columns: Mapping[str, str]) -> Format:
    """The format; that of a log with the one score that labels all of its answers."""
    rows = [row for _, row in first if not isinstance(row, Unusable)]
    if "truthful" in columns:
        return form
    if source.container == _LOG:
        score = deciding([scores_of(row) for row in rows])
        return replace(form, translate=lambda row: form.translate(row) | {"truthful": label_by(score, scores_of(row))})
    if form.translate is harness_columns:
        metric = deciding([metrics_of(row) for row in rows])
        return replace(form, translate=lambda row: harness_columns(row, metric))
    return form


def _failure(source: Source, line: int, bad: Unusable, skip: bool) -> UserError:
    """The error that a bad row ends the reading with."""
    then = "No row near it can be read either." if skip else "Mend the row, or leave such rows out: --on-bad-row skip."
    return UserError(f"{source.name}, {source.place} {line}: {bad}. {then}")


def _closing(source: Source, found: Iterator[Question | BadRow]) -> Iterator[Question | BadRow]:
    """What is found; the source is let go of at once, also after an error."""
    try:
        yield from found
    finally:
        source.close()


def _questions(
    source: Source,
    rows: Iterator[tuple[int, Row]],
    form: Format,
    dataset: str,
    skip: bool,
    columns: Mapping[str, str],
    graded: bool,
) -> Iterator[Question | BadRow]:
    """Every row as a question, or, if they are skipped, as a bad row."""
    ids: set[int] = set()
    bad_together, most, good_row = 0, source.limits.rows, source.good_row
    for number, (line, found) in enumerate(rows, start=1):
        if number > most:
            raise UserError(f"{source.name} has more than {most:,} rows. {ALLOW_LARGE}.")
        try:
            row = with_few_columns(found)
            if isinstance(row, Unusable):
                raise row
            translated = form.translate(mapped(row, columns) if columns else row)
            question = _with_own_id(question_from_row(translated, dataset, number, graded), number, ids, form)
        except Unusable as bad:
            if not skip:
                raise _failure(source, line, bad, skip) from None
            bad_together += 1
            if bad_together > BAD_ROWS_TOGETHER:
                raise UserError(
                    f"{source.name} has {BAD_ROWS_TOGETHER:,} bad rows together, the last at {source.place} {line}: "
                    f"{bad}. Name the right file, or mend it."
                ) from None
            yield BadRow(line, str(bad))
            continue
        bad_together = 0
        good_row()
        yield question


def _with_own_id(question: Question, number: int, ids: set[int], form: Format) -> Question:
    """The question, if its id is its own; where the format's ids repeat, with its row's number added."""
    key = small_hash(question.item_id)
    if key in ids:
        if form.unique_ids:
            raise Unusable(f"id {shown(question.item_id)} is already that of an earlier row")
        question = replace(question, item_id=f"{question.item_id}#{number}")
        key = small_hash(question.item_id)
    ids.add(key)
    return question
