"""The runs behind the golden files: three runs of the planted model, a comparison, a detection, a scored file.

Everything is run through the command, on a CPU with one thread. The planted model answers decisively (on every question
here the first word leads the second by more than 0.7 in log-odds), so that no answer depends on the machine.
"""

import csv
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from anchorscope.cli.main import app
from anchorscope.models.process_settings import threads
from anchorscope.report import comparison, detection, run_page
from golden import (
    OUT,
    STDOUT,
    compare_texts,
    file_hashes,
    golden_texts,
    numerics,
    recorded_hashes,
    report_changes,
    stored_texts,
)
from planted_items import (
    MODEL_FOLDER,
    RIGHT_VERDICT,
    WORDINGS,
    WRONG_VERDICT,
    planted_items,
    the_language,
)
from run_cache import cached_run

_SMALL = {
    "prompt": "zero-shot",
    "device": "cpu",
    "dtype": "float32",
    "threads": 1,
    "bootstrap": 100,
    "folds": 2,
    "random-cuts": 1,
    "directions": 2,
    "max-new-tokens": 4,
}
"""Options of all three runs."""
_ASKED = 80
"""Questions of a dataset; 60 have to be left after balancing."""
# Without saplma, whose network no two kinds of processor train alike.
_DETECTORS = "confidence,probe,probe+confidence,text,p-true,semantic-entropy-5,mop,mop-random-gate,pr-attention,auto"


def golden_folder(piece: str) -> Path:
    return cached_run(f"golden-{piece}", PIECES[piece])


@contextmanager
def without_figures() -> Iterator[None]:
    """Commands inside draw no figures, which take longer than all the rest; everything else is written."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (run_page, comparison, detection):
            patch.setattr(module, "save_all", lambda *_: None)
        yield


def _command(folder: Path, *arguments: object, **options: object) -> None:
    """Runs a command into `folder/out`, and keeps what it prints."""
    flags = [
        part
        for name, value in options.items()
        for part in (f"--{name.replace('_', '-')}", str(value))
    ]
    with without_figures(), threads(1):
        result = CliRunner().invoke(
            app, [*map(str, arguments), *flags, "--json"], prog_name="anchorscope"
        )
    if result.exit_code:
        raise RuntimeError(f"{arguments}: {result.output}") from result.exception
    (folder / STDOUT).write_text(result.stdout, encoding="utf-8")


def _run(folder: Path, *datasets: str, **options: Any) -> None:
    named = [part for dataset in datasets for part in ("--dataset", dataset)]
    _command(
        folder,
        "run",
        "--model",
        _model(folder),
        *named,
        "--out",
        folder / OUT,
        **_SMALL,
        **options,
    )


def _model(folder: Path) -> Path:
    """The planted model, made to answer by itself.

    It never ends an answer, so the first words of its phrases become end tokens: its answer is then the object that it
    names before them. Its verdicts, right and wrong, become True and False, which P(True) asks for.
    """
    model = Path(shutil.copytree(MODEL_FOLDER, folder / "planted"))
    texts = (model / "tokenizer.json").read_text(encoding="utf-8")
    texts = texts.replace(f'"▁{RIGHT_VERDICT}"', '"▁True"').replace(
        f'"▁{WRONG_VERDICT}"', '"▁False"'
    )
    (model / "tokenizer.json").write_text(texts, encoding="utf-8")
    vocabulary = json.loads(texts)["model"]["vocab"]
    firsts = {
        phrase.split()[0]
        for phrases in the_language().phrases.values()
        for phrase in phrases
    }
    settings = json.loads(
        (model / "generation_config.json").read_text(encoding="utf-8")
    )
    settings["eos_token_id"] = sorted(vocabulary[f"▁{word}"] for word in firsts)
    (model / "generation_config.json").write_text(
        json.dumps(settings), encoding="utf-8"
    )
    return model


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _all_evidence(folder: Path) -> None:
    """Answers and labels as they were planted, every experiment."""
    rows = [
        row
        | {
            "answers": row["answers"][:1],
            "truthful": item.truthful,
            "popularity": 2 + 7 * number % 300,
        }
        for number, (row, item) in enumerate(
            zip(_planted_rows(80, 0), planted_items(80), strict=True)
        )
    ]  # the other accepted answers are right to every question, so that no two questions could exchange theirs
    _write_rows(folder / "planted.jsonl", rows)
    _run(
        folder,
        f"file:{folder / 'planted.jsonl'}",
        balance="none",
        evidence="all",
        evidence_items=60,
    )


def _supplied(folder: Path) -> None:
    """Answers are supplied and graded here; some rows cannot be used, and all that detectors read is kept."""
    rows = _planted_rows(90, seed=1)
    rows[5] |= {"model_answer": " "}
    rows[9] |= {"question": rows[8]["question"]}
    rows[11] |= {"answers": ["yes"], "model_answer": "no"}
    _write_rows(folder / "popqa.jsonl", rows)
    _run(folder, f"file:{folder / 'popqa.jsonl'}", keep="states,states-cut,detection")


def _four_datasets(folder: Path) -> None:
    """Files in four forms, two with answers and two that the model answers by itself."""
    write = {
        "popqa": _write_popqa,
        "triviaqa": _write_triviaqa,
        "hotpotqa": _write_hotpotqa,
        "nq": _write_nq,
    }
    for name, write_file in write.items():
        write_file(folder / name)
    _run(folder, *(f"{name}={folder / name}" for name in write))


def _planted_rows(count: int, seed: int) -> list[dict[str, Any]]:
    return [
        {
            "id": one.item_id,
            "question": one.question,
            "answers": one.answers,
            "subject": one.subject,
            "relation": one.relation,
            "property_words": [one.relation],
            "model_answer": one.model_answer,
        }
        for one in planted_items(count, seed=seed)
    ]


def _own_rows(objects: slice) -> list[dict[str, str]]:
    """Questions about a few objects, which the model answers right; the file accepts every other of these answers."""
    language = the_language()
    chosen = language.objects[objects]
    facts = [
        (*about, right) for about, right in language.facts.items() if right in chosen
    ]
    return [
        {
            "id": f"{subject}-{relation}",
            "answer": right if chosen.index(right) % 2 else "Never",
            "question": WORDINGS[number % len(WORDINGS)].format(
                subject=subject, relation=relation
            ),
        }
        for number, (subject, relation, right) in enumerate(facts)
    ]


def _write_popqa(path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            [
                "id",
                "subj",
                "prop",
                "s_pop",
                "question",
                "possible_answers",
                "model_answer",
            ]
        )
        for number, one in enumerate(_planted_rows(_ASKED, seed=2)):
            told = (
                one["subject"],
                one["relation"],
                5 * number + 3,
                one["question"],
                json.dumps(one["answers"]),
            )
            table.writerow([number, *told, one["model_answer"]])


def _write_triviaqa(path: Path) -> None:
    rows = [
        {
            "question_id": one["id"],
            "question": one["question"],
            "question_source": "made",
            "answer": {"value": one["answer"], "aliases": [one["answer"].title()]},
        }
        for one in _own_rows(slice(0, 4))
    ]
    _write_rows(path, rows)


def _write_hotpotqa(path: Path) -> None:
    rows = [
        {
            "_id": one["id"],
            "question": one["question"],
            "answer": one["answer"],
            "type": "bridge",
            "level": "easy",
            "supporting_facts": [],
        }
        for one in _own_rows(slice(4, 8))
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")


def _write_nq(path: Path) -> None:
    _write_rows(path, _planted_rows(_ASKED, seed=5))


def _comparison(folder: Path) -> None:
    """Two of the runs, which share the name of a dataset and not its questions."""
    runs = [golden_folder(piece) / OUT for piece in ("supplied", "four-datasets")]
    _command(
        folder, "compare", *runs, "--claims", out=folder / OUT, names="supplied,own"
    )


def _detection(folder: Path) -> None:
    options = {
        "folds": 2,
        "seeds": 1,
        "tosses": 1,
        "resamples": 100,
        "device": "cpu",
        "bundles": "probe,auto",
        "detectors": _DETECTORS,
    }
    _command(
        folder, "detect", golden_folder("supplied") / OUT, out=folder / OUT, **options
    )


def _scores(folder: Path) -> None:
    """Rows with an answer, and rows that the model answers."""
    rows = [
        {
            "question": one.question,
            "model_answer": one.model_answer if number % 2 else None,
        }
        for number, one in enumerate(planted_items(16, seed=2))
    ]
    _write_rows(folder / "asked.jsonl", rows)
    bundle = golden_folder("detection") / OUT / "bundles" / "auto"
    (folder / OUT).mkdir()
    _command(
        folder,
        "score",
        folder / "asked.jsonl",
        detector=bundle,
        out=folder / OUT / "scored.csv",
        device="cpu",
    )


PIECES: dict[str, Callable[[Path], None]] = {
    "all-evidence": _all_evidence,
    "supplied": _supplied,
    "four-datasets": _four_datasets,
    "comparison": _comparison,
    "detection": _detection,
    "scores": _scores,
}
"""How each piece is made, by the name of its folder in tests/golden."""

QUICK = ("supplied", "detection", "scores")
"""Pieces that `make test` compares; the others are nightly, as they take longer."""


def check_piece(piece: str) -> None:
    """Fails where a piece is not what was written down, and says what moved."""
    changes = compare_texts(stored_texts(piece), golden_texts(golden_folder(piece)))
    again = "If this is meant: python tests/golden/write.py, and explain the change in the commit."
    assert not changes, f"\n{report_changes(changes, piece)}\n{again}"
    recorded = recorded_hashes(numerics(golden_folder("supplied")))
    if recorded is not None:
        own = file_hashes(piece, golden_folder(piece))
        bits = sorted(name for name in own if recorded.get(name) != own[name])
        assert not bits, (
            f"\nThe last digits differ, on a machine of the recorded numerics class: {bits}\n{again}"
        )
