"""Datasets as a stream of questions, by name (`atlas`, `popqa`), hub id (`hub:OWNER/NAME:SPLIT`) or path.

Rows are streamed, except JSON lists and Parquet; those of the hub come through the `datasets` library.
"""

import logging
import os
import re
import tomllib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path
from typing import Any

from anchorscope.catalogue import ON_BAD_ROW
from anchorscope.datasets.files import LOGS, QuestionFile, RowSource, open_rows
from anchorscope.datasets.formats import (
    PLAIN,
    UNGRADED,
    Format,
    deciding,
    harness_columns,
    harness_metrics,
    is_harness_sample,
    label_by,
    recognise_format,
    scores_of,
)
from anchorscope.datasets.question import (
    EmptyRow,
    Question,
    Row,
    Unusable,
    check_known,
    mapped,
    of_supplied,
    question_from_row,
)
from anchorscope.datasets.relations import load_atlas, load_passages
from anchorscope.datasets.text import small_hash
from anchorscope.errors import UserError, shortened, unknown


@dataclass(frozen=True)
class HubSource:
    """A dataset of the hub; for known ones (hub.toml) also its size and the single file that would do as well."""

    repository: str
    configuration: str | None = None
    split: str | None = None
    rows: int = 0
    megabytes: int = 0
    file: str = ""
    where: str = ""
    heavy: Sequence[str] = ()


_TABLE = tomllib.loads(
    (files("anchorscope.datasets") / "hub.toml").read_text(encoding="utf-8")
)
SOURCES = {name: HubSource(**source) for name, source in _TABLE.items()}
BUILT_IN = {"atlas": load_atlas, "passages": load_passages}
WITH_FILE = tuple(SOURCES)
HUB = "hub:"
_KNOWN_WITH_FILE = tuple(f"{name}=" for name in WITH_FILE)
_HUB_ID = re.compile(r"([\w.-]+)/([\w.-]+)(?::(?:([^:/]+)/)?([^:/]+))?")
# bytes: it becomes part of names of folders and files, which have 255 at most
_LONGEST_NAME = 100
_KEPT_BAD_ROWS = 1_000  # with their reasons; later ones are counted


@dataclass(frozen=True)
class DatasetSpec:
    name: str
    path: Path | None
    hub: HubSource | None = None


def parse_spec(text: str) -> DatasetSpec:
    """`atlas`, `popqa`, `popqa=FILE`, `hub:OWNER/NAME`, or the path of a file, with or without `file:`."""
    if text in ("file:", *_KNOWN_WITH_FILE):
        raise UserError(
            f"Dataset {text!r} names no file; write its path behind {text[-1]!r}."
        )
    if text in (*BUILT_IN, *WITH_FILE):
        return DatasetSpec(text, None)
    if text.startswith(HUB):
        return _hub_spec(text)
    if text.startswith(_KNOWN_WITH_FILE):
        name, _, path_text = text.partition("=")
        return DatasetSpec(name, _path(path_text))
    if text.startswith("file:") or _looks_like_path(text):
        path = _path(text.removeprefix("file:"))
        return DatasetSpec(_clean_name(path.name.split(".")[0]), path)
    name, has_file, _ = text.partition("=")
    if has_file:
        raise unknown(
            "dataset",
            name,
            WITH_FILE,
            f"A file of your own is its path, like ./{text}.",
        )
    hint = "A file of your own is its path, a known one popqa=FILE, one of the hub hub:OWNER/NAME."
    raise unknown("dataset", text, (*BUILT_IN, *WITH_FILE), hint)


def _hub_spec(text: str) -> DatasetSpec:
    match = _HUB_ID.fullmatch(text.removeprefix(HUB))
    if match is None:
        raise UserError(
            f"Dataset {text!r} is no id of the hub; write hub:OWNER/NAME, and if it has several splits "
            f"hub:OWNER/NAME:SPLIT or hub:OWNER/NAME:CONFIGURATION/SPLIT."
        )
    owner, name, configuration, split = match.groups()
    # No id of the hub holds "--", so that different datasets never share a name.
    parts = (part for part in (owner, name, configuration, split) if part)
    return DatasetSpec(
        _clean_name("--".join(parts)),
        None,
        HubSource(f"{owner}/{name}", configuration, split),
    )


def _clean_name(name: str) -> str:
    plain = "".join(letter if letter.isprintable() else "_" for letter in name)
    return plain.encode()[:_LONGEST_NAME].decode(errors="ignore") or "file"


def _looks_like_path(text: str) -> bool:
    """Whether an unknown name is a path: of a file that exists, or with a folder or an ending."""
    is_path = text.startswith(("/", ".", "~")) or _exists(text)
    return bool(text) and (
        is_path or ("=" not in text and (os.sep in text or "." in text))
    )


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(os.path.expanduser(path))
    except ValueError:  # NUL, or half a character
        return False


def _path(text: str) -> Path:
    if "\0" in text or any(
        "\ud800" <= letter <= "\udfff" for letter in text
    ):  # no recipe could carry it
        raise UserError(
            f"The file name {os.fsencode(text)!r} is not UTF-8 text. Rename the file."
        )
    return Path(os.path.expanduser(text))


def split_specs(texts: Sequence[str]) -> tuple[str, ...]:
    """Datasets separated by commas; a text that names an existing file is one, commas included."""
    specs: list[str] = []
    for text in texts:
        path = (
            text.partition("=")[2]
            if text.startswith(_KNOWN_WITH_FILE)
            else text.removeprefix("file:")
        )
        specs += [text] if _exists(path) else text.split(",")
    return tuple(filter(None, specs))


def absolute(text: str) -> str:
    """The same dataset with an absolute path, so that a recipe works from every folder."""
    spec = parse_spec(text)
    if spec.path is None:
        return text
    path = os.path.realpath(spec.path)
    if text.startswith(_KNOWN_WITH_FILE):
        return f"{spec.name}={path}"
    return f"file:{path}" if text.startswith("file:") else path


@dataclass(frozen=True)
class BadRow:
    line: int
    """From 1: a line of a text file, an entry of a JSON list, a row of a Parquet file."""
    reason: str


class Reading:
    """The questions of a dataset, iterated once; bad rows are kept with their reasons, empty ones counted."""

    def __init__(self, kind: str, results: Iterator[Question | BadRow | None]) -> None:
        self.format = kind
        self.rows = 0
        """Rows so far, including bad ones, without blank lines and header."""
        self.empty = 0
        """Rows with nothing in them; blank lines aren't counted."""
        self.bad = 0
        self.bad_rows: list[BadRow] = []
        self._results = results

    def __iter__(self) -> Iterator[Question]:
        for result in self._results:
            self.rows += 1
            if result is None:
                self.empty += 1
            elif isinstance(result, BadRow):
                self.bad += 1
                if self.bad <= _KEPT_BAD_ROWS:
                    self.bad_rows.append(result)
            else:
                yield result


def open_dataset(
    spec: DatasetSpec,
    on_bad_row: str = "fail",
    columns: Mapping[str, str] | None = None,
    graded: bool = True,
    *,
    large: bool = False,
    sha256: str | None = None,
) -> Reading:
    """The questions of a dataset as a stream; `columns` maps the known names to the dataset's.

    Accepted answers are needed only if `graded`. `large` lifts the size limit; `sha256` is the file's expected hash.
    """
    for name in columns or {}:
        check_known(name)
    columns = of_supplied(columns or {}, graded)
    if on_bad_row not in ON_BAD_ROW:
        raise unknown("value of --on-bad-row", on_bad_row, ON_BAD_ROW)
    skip = on_bad_row == "skip"
    if spec.path is None and spec.name in BUILT_IN:
        return Reading("built in", iter(BUILT_IN[spec.name]()))
    if spec.path is None:
        title = f"The hub's {(spec.hub or SOURCES[spec.name]).repository}"
        return _read(
            RowSource(title, "from the hub", "row", hub_rows(spec)),
            spec.name,
            skip,
            columns,
            graded,
        )
    file = QuestionFile(spec.path, large)
    try:
        if sha256 is not None and file.sha256() != sha256:
            raise UserError(
                f"{file.name} was changed since the run began. Wait until it is whole, then try again."
            )
        return _read(
            open_rows(file, columns.get("question", "question")),
            spec.name,
            skip,
            columns,
            graded,
        )
    except BaseException:
        file.close()
        raise


def hub_rows(spec: DatasetSpec) -> Generator[tuple[int, Row]]:
    """The rows of a hub dataset under its column names, numbered from 1."""
    hub = spec.hub or SOURCES[spec.name]
    try:
        import datasets as library  # only here: it is large and not always installed
    except ImportError as error:
        raise UserError(
            f"Dataset {spec.name!r} without a file needs the datasets library, which cannot be imported here "
            f"({_first_line(error)}); pip install 'anchorscope[hub]', or {by_hand(spec)}."
        ) from error
    try:
        with _silence(library):
            table = library.load_dataset(
                hub.repository, hub.configuration, split=hub.split
            )
        if isinstance(table, Mapping):
            if len(table) > 1:
                raise UserError(
                    f"Dataset {HUB}{hub.repository} has the splits {', '.join(table)}; name one, like "
                    f"{HUB}{hub.repository}:{hub.configuration + '/' if hub.configuration else ''}{[*table][-1]}."
                )
            (table,) = table.values()
        table = table.remove_columns(
            [name for name in hub.heavy if name in table.column_names]
        )
        for number, row in enumerate(table, start=1):
            yield number, dict(row)
    except UserError:
        raise
    except Exception as error:  # the library, its readers and the HTTP client raise dozens of unrelated types
        offline = (
            "Switch offline mode off (HF_HUB_OFFLINE)"
            if library.config.HF_HUB_OFFLINE
            else "Try again later"
        )
        raise UserError(
            f"Dataset {spec.name!r} could not be loaded from the hub ({hub.repository}): "
            f"{_first_line(error).rstrip('.')}. {offline}, or {by_hand(spec)}."
        ) from error


def by_hand(spec: DatasetSpec) -> str:
    """What to do without the hub: which file, from where, and the option that takes it."""
    if spec.hub is not None:
        return f"download a file from https://huggingface.co/datasets/{spec.hub.repository} and write its path"
    source = SOURCES[spec.name]
    return f"download {source.file} from {source.where} and write {spec.name}=FILE"


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


@contextmanager
def _silence(library: Any) -> Iterator[None]:
    """Without progress bars and notices of the library and the hub's client."""
    from huggingface_hub import utils as client

    disabled = logging.root.manager.disable
    with_bars = [
        package
        for package in (library, client)
        if not package.are_progress_bars_disabled()
    ]
    for package in with_bars:
        package.disable_progress_bars()
    logging.disable()  # each failed attempt is logged as an error; one line is enough
    try:
        yield
    finally:
        logging.disable(disabled)
        for package in with_bars:
            package.enable_progress_bars()


_USABLE_ROWS, _LOGGED_ROWS, _MOST_ROWS = (
    10,
    100,
    1000,
)  # usable rows that show the format, those of a log, all rows


def _read(
    source: RowSource,
    dataset: str,
    skip: bool,
    columns: Mapping[str, str],
    graded: bool,
) -> Reading:
    first: list[tuple[int, Row]] = []
    usable: list[dict[str, object]] = []
    for line, row in islice(source.rows, _MOST_ROWS):
        first.append((line, row))
        if not isinstance(row, Unusable):
            usable.append(row)
            if len(usable) >= (
                _LOGGED_ROWS
                if source.is_log or is_harness_sample(row)
                else _USABLE_ROWS
            ):
                break
    if not first:
        raise UserError(
            f"{source.name} holds no rows. Write at least one question into it."
        )
    first_bad = next((row for row in first if type(row[1]) is Unusable), first[0])
    if not usable:
        raise _row_error(source, *first_bad, skip)
    form = _detect_format(source, usable, columns, graded)
    if form is None and type(first[0][1]) is Unusable and not skip:
        raise _row_error(source, *first[0], skip)
    if form is None:
        needs = (
            "'question' and 'answers' (or 'model_answer' and 'truthful')"
            if graded
            else "'question'"
        )
        example = "question=prompt,answers=gold" if graded else "question=prompt"
        raise UserError(
            f"{source.name} has no known format ({source.container}); columns found: {shortened([*usable[0]])}. A file "
            f"of your own needs {needs}; name yours like --columns {example}. Read as it is: {LOGS}."
        )
    form = _add_labels(form, source, usable, columns)
    results = _make_questions(
        source, chain(first, source.rows), form, dataset, skip, columns, graded
    )
    return Reading(f"{form.name}, {source.container}", results)


def _detect_format(
    source: RowSource,
    rows: list[dict[str, object]],
    columns: Mapping[str, str],
    graded: bool,
) -> Format | None:
    if columns:
        present = list(dict.fromkeys(name for row in rows for name in row))
        for name, column in columns.items():
            if column not in present:
                raise UserError(
                    f"{source.name} has no column {column!r}, which --columns gives as {name}; found: "
                    f"{shortened(present)}. Name one of these."
                )
        if is_harness_sample(rows[0]) and [*columns] == ["truthful"]:
            return recognise_format(rows[0])
        lowered = {name.strip().lower() for name in present}
        labelled = ("answers", "answer", "truthful")
        for wanted in (("question",), labelled)[: 1 + graded]:
            if not any(name in columns or name in lowered for name in wanted):
                raise UserError(
                    f"{source.name} has no column {wanted[0]!r}; columns found: {shortened(present)}. "
                    f"Say which one it is, like --columns {wanted[0]}={present[0]}."
                )
        return PLAIN
    if source.is_log:
        return PLAIN  # its columns have their names already; metadata may be called anything
    form = next(filter(None, map(recognise_format, rows)), None)
    return (
        UNGRADED
        if form is None and not graded and any(map(UNGRADED.recognises, rows))
        else form
    )


def _add_labels(
    form: Format,
    source: RowSource,
    rows: list[dict[str, object]],
    columns: Mapping[str, str],
) -> Format:
    if "truthful" in columns:
        return form
    if source.is_log:
        score = deciding([scores_of(row) for row in rows])
        return replace(
            form,
            translate=lambda row: (
                form.translate(row) | {"truthful": label_by(score, scores_of(row))}
            ),
        )
    if form.translate is harness_columns:
        metric = deciding([harness_metrics(row) for row in rows])
        return replace(form, translate=lambda row: harness_columns(row, metric))
    return form


def _row_error(source: RowSource, line: int, bad: Row, skip: bool) -> UserError:
    then = (
        "No row near it can be read either."
        if skip
        else "Fix the row, or leave such rows out: --on-bad-row skip."
    )
    return UserError(f"{source.name}, {source.unit} {line}: {bad}. {then}")


def _make_questions(
    source: RowSource,
    rows: Iterator[tuple[int, Row]],
    form: Format,
    dataset: str,
    skip: bool,
    columns: Mapping[str, str],
    graded: bool,
) -> Iterator[Question | BadRow | None]:
    """Every row as a question, as None if it is empty or, if skipped, as a bad row; the source is closed at the end."""
    ids: set[int] = set()
    with closing(source.rows):
        for number, (line, row) in enumerate(rows, start=1):
            try:
                if isinstance(row, Unusable):
                    raise row
                translated = form.translate(mapped(row, columns) if columns else row)
                yield _make_id_unique(
                    question_from_row(translated, dataset, number, graded),
                    number,
                    ids,
                    form,
                )
            except EmptyRow:
                yield None
            except Unusable as bad:
                if not skip:
                    raise _row_error(source, line, bad, skip) from None
                yield BadRow(line, str(bad))


def _make_id_unique(
    question: Question, number: int, ids: set[int], form: Format
) -> Question:
    """The question, with its row's number added to an id that repeats where the format allows that."""
    key = small_hash(question.item_id)
    if key in ids:
        if form.unique_ids:
            raise Unusable(
                f"id {shortened(question.item_id)} is already that of an earlier row"
            )
        question = replace(question, item_id=f"{question.item_id}#{number}")
        key = small_hash(question.item_id)
    ids.add(key)
    return question
