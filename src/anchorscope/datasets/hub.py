"""The four known datasets from the Hugging Face hub, for a user who gives a name and no file.

The `datasets` library does the work: its cache comes first, its offline switches are honoured, and the rows stay on
disk and are read one by one. Where the library or the hub is missing, the error says which file to download instead.
The library fetches a configuration whole, the training split too; `megabytes` is what that costs once.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from anchorscope.errors import UserError, unknown


@dataclass(frozen=True)
class HubSource:
    """Where a dataset lives on the hub, and which single file would do as well."""

    title: str
    repository: str
    split: str
    """The split with public answers that papers report on."""
    rows: int
    megabytes: int
    """What the library downloads, once."""
    file: str
    """The file that holds the same questions."""
    where: str
    """The page to download that file from."""
    configuration: str | None = None
    """None where the repository has only one."""
    heavy: tuple[str, ...] = ()
    """Columns that no question needs; they are dropped before a row is built."""


SOURCES = {
    "popqa": HubSource(
        title="PopQA",
        repository="akariasai/PopQA",
        split="test",
        rows=14_267,
        megabytes=5,
        file="popQA.tsv",
        where="https://github.com/AlexTMallen/adaptive-retrieval/tree/main/data",
    ),
    # "unfiltered" is the whole development set; "rc" would be some 18,000 pairs of a question and its evidence.
    "triviaqa": HubSource(
        title="TriviaQA",
        repository="mandarjoshi/trivia_qa",
        configuration="unfiltered.nocontext",
        split="validation",
        rows=11_313,
        megabytes=38,
        heavy=("entity_pages", "search_results"),
        file="unfiltered.nocontext/validation-00000-of-00001.parquet",
        where="https://huggingface.co/datasets/mandarjoshi/trivia_qa/tree/main",
    ),
    # The authors' own server does not answer any more; the hub's copy is theirs. Both settings ask the same questions.
    "hotpotqa": HubSource(
        title="HotpotQA",
        repository="hotpotqa/hotpot_qa",
        configuration="distractor",
        split="validation",
        rows=7_405,
        megabytes=360,
        heavy=("context", "supporting_facts"),
        file="distractor/validation-00000-of-00001.parquet",
        where="https://huggingface.co/datasets/hotpotqa/hotpot_qa/tree/main",
    ),
    "nq": HubSource(
        title="Natural Questions, open",
        repository="google-research-datasets/nq_open",
        split="validation",
        rows=3_610,
        megabytes=5,
        file="NQ-open.dev.jsonl",
        where="https://github.com/google-research-datasets/natural-questions/tree/master/nq_open",
    ),
}


def open_rows(name: str) -> Iterator[tuple[int, dict[str, object]]]:
    """The rows of a known dataset under the hub's column names, numbered from 1."""
    if name not in SOURCES:
        raise unknown("dataset", name, SOURCES, "Only these come from the hub; a file of your own is its path.")
    source = SOURCES[name]
    try:
        import datasets as library
    except ImportError as error:
        raise UserError(
            f"Dataset {name!r} without a file needs the datasets library, which cannot be imported here "
            f"({_first_line(error)}); pip install 'anchorscope[hub]', or {by_hand(name)}."
        ) from error
    try:
        with _silent(library):
            table = library.load_dataset(source.repository, source.configuration, split=source.split)
            table = table.remove_columns([column for column in source.heavy if column in table.column_names])
    except Exception as error:  # the library, its readers and the HTTP client raise dozens of unrelated types
        raise _failed(name, library, error) from error
    return _numbered(name, library, table)


def by_hand(name: str) -> str:
    """What to do where the hub cannot be asked: which file, from where, and the option that takes it."""
    source = SOURCES[name]
    return f"download {source.file} from {source.where} and write {name}=FILE"


def _numbered(name: str, library: Any, table: Any) -> Iterator[tuple[int, dict[str, object]]]:
    try:
        for number, row in enumerate(table, start=1):
            yield number, dict(row)
    except Exception as error:  # a damaged cache is found out only when its rows are read
        raise _failed(name, library, error) from error


def _failed(name: str, library: Any, error: Exception) -> UserError:
    offline = "Switch offline mode off (HF_HUB_OFFLINE)" if library.config.HF_HUB_OFFLINE else "Try again later"
    return UserError(
        f"Dataset {name!r} could not be loaded from the hub ({SOURCES[name].repository}): "
        f"{_first_line(error).rstrip('.')}. {offline}, or {by_hand(name)}."
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


@contextmanager
def _silent(library: Any) -> Iterator[None]:
    """No bars and no notices of the library and the hub's client meanwhile; afterwards they log as before."""
    from huggingface_hub import utils as client

    disabled = logging.root.manager.disable
    with_bars = [package for package in (library, client) if not package.are_progress_bars_disabled()]
    for package in with_bars:
        package.disable_progress_bars()
    logging.disable()  # each failed attempt is logged as an error; one line is enough
    try:
        yield
    finally:
        logging.disable(disabled)
        for package in with_bars:
            package.enable_progress_bars()
