"""`anchorscope score` at the terminal: verdicts for people, one JSON object, files, mistakes in one line."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from anchorscope.detecting.score import dataset_of
from anchorscope.detectors.bundle import write_bundle
from anchorscope.detectors.detector import Detector
from anchorscope.models.loading import load as load_model
from commands import invoke
from detector_cases import PAIRS, added, probe, trained_on
from whole_runs import files_of

COLUMNS = [
    "item_id",
    "question",
    "answer",
    "truth_probability",
    "log_odds",
    "verdict",
    "warnings",
]


@pytest.fixture(scope="module")
def bundle(
    save_tiny: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    place = tmp_path_factory.mktemp("bundles") / "sum"
    lm = load_model(str(save_tiny("llama")))
    write_bundle(
        place,
        trained_on(lm, fitted=added((probe(), probe(("question-only", "mlp", 2))))),
    )
    return place


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """A file of questions with answers, without any that are accepted: there is nothing to grade."""
    place = tmp_path / "mine.jsonl"
    place.write_text(
        "".join(json.dumps({"question": q, "model_answer": a}) + "\n" for q, a in PAIRS)
    )
    return place


score = partial(invoke, "score")


def test_a_question_and_its_answer(bundle: Path) -> None:
    result = score("--detector", bundle, *PAIRS[0][:1], "--answer", PAIRS[0][1])
    assert result.exit_code == 0, result.stderr
    wanted = Detector.load(bundle).score(*PAIRS[0])
    assert result.stdout.startswith(
        f"{wanted.verdict}  {wanted.truth_probability:.0%} true  Who wrote Dracula? → Bram Stoker"
    )
    own = score("--detector", bundle, "Who wrote Emma?", "--json", "--quiet")
    assert json.loads(own.stdout)["items"][0]["warnings"] == [
        "the answer is truncated after 6 tokens"
    ]
    assert own.stderr == ""


def test_a_passage_gives_the_share_of_the_answer_that_needs_it(
    bundle: Path, answers: Path, tmp_path: Path
) -> None:
    passage, out = tmp_path / "passage.txt", tmp_path / "scores.csv"
    passage.write_text("Bram Stoker wrote Dracula.\n")
    told = score(
        "--detector",
        bundle,
        answers,
        "--context",
        passage,
        "--json",
        "--quiet",
        "--out",
        out,
    )
    assert told.exit_code == 0, told.stderr
    items = json.loads(told.stdout)["items"]
    assert all(0 <= item["context_used"] <= 1 for item in items)
    assert all("not trained on answers" in item["warnings"][-1] for item in items)
    assert pl.read_csv(out)["context_used"].to_list() == [
        item["context_used"] for item in items
    ]
    same = score(
        "--detector",
        bundle,
        answers,
        "--context",
        "Bram Stoker wrote Dracula.",
        "--json",
        "--quiet",
    )
    assert json.loads(same.stdout)["items"] == items
    missing = ("none.txt", "passage.md", "docs/passage", "a b.txt", "x.pdf", "a b.md")
    refusals = [("", "--context is empty"), (tmp_path, "is a folder")]
    refusals += [(name, "is no file that is there") for name in missing]
    for given, reason in refusals:
        refused = score("--detector", bundle, answers, "--context", given)
        assert (refused.exit_code, reason in refused.stderr) == (2, True)


def test_counts_for_people_and_one_object_for_programs(
    bundle: Path, answers: Path
) -> None:
    people = score("--detector", bundle, answers, "--risk", 0.05)
    assert not any(line.startswith("true") for line in people.stdout.splitlines())
    assert 'none is "true"' in people.stderr
    assert people.stderr.endswith("5 unsure\n")
    assert people.stderr.count("warning: a risk of 0.05 could not be reached") == 1, (
        "once for all"
    )
    result = score(
        "--detector", bundle, answers, "--no-generate", "--json", "--risk", 0.2
    )
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["detector"], told["n"], told["bad_rows"]) == ("probe", len(PAIRS), 0)
    assert told["seconds"] > 0
    assert told["risk"] == 0.2
    assert [list(one) for one in told["items"]] == [COLUMNS] * len(PAIRS)
    wanted = Detector.load(bundle).score_many(PAIRS)
    for one, score_of in zip(told["items"], wanted, strict=True):
        assert {name: one[name] for name in COLUMNS[1:]} == score_of.record()


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_rows_are_written_and_written_again(
    bundle: Path, answers: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "new" / f"scores.{ending}"
    result = score("--detector", bundle, answers, "--out", out, "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    read: dict[str, Any] = {
        "csv": pl.read_csv,
        "parquet": pl.read_parquet,
        "jsonl": pl.read_ndjson,
    }
    frame = read[ending](out)
    assert frame.columns == COLUMNS
    assert frame["question"].to_list() == [question for question, _ in PAIRS]
    wanted = [one.log_odds for one in Detector.load(bundle).score_many(PAIRS)]
    assert frame["log_odds"].to_list() == pytest.approx(wanted)
    before = out.read_bytes()
    assert (
        score("--detector", bundle, answers, "--out", out, "--quiet").exit_code == 0
    ), "its own file is replaced"
    assert out.read_bytes() == before
    assert [one.name for one in out.parent.iterdir()] == [out.name]


HEADER = ",".join(COLUMNS) + "\n"
ROW = json.dumps(dict.fromkeys(COLUMNS[:6], "1") | {"warnings": []}) + "\n"
NOT_SCORES = {
    "diary.jsonl": "my diary mentions truth_probability once\n",
    "notes.csv": HEADER.replace("\n", ",my_notes\n") + "1,q,a,0.5,0,true,,mine\n",
    "fewer.csv": HEADER.replace(",warnings", "") + "1,q,a,0.5,0,true\n",
    "order.csv": HEADER.replace("item_id,question", "question,item_id"),
    "comment.csv": f"# mine\n{HEADER}1,q,a,0.5,0,true,\n",
    "line.csv": f"{HEADER}1,q,a,0.5,0,true,\nmy own line\n",
    "words.csv": f"{HEADER}1,q,a,likely,0,true,\n",
    "more.jsonl": ROW + '{"mine": 1}\n',
    "text.jsonl": f"{ROW}mine\n",
    "empty.csv": "",
    "csv.parquet": HEADER,
}
"""Files that have something of a table of scores, and are none."""


@pytest.mark.parametrize("name", [*NOT_SCORES, "link.csv", "folder.csv", "input.csv"])
def test_what_is_no_table_of_scores_is_never_replaced(
    bundle: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / name, "Who?"
    if name == "folder.csv":
        out.mkdir()
    else:
        out.write_text(NOT_SCORES.get(name, f"{HEADER}1,q,a,0.5,0,true,\n"))
    if name == "link.csv":
        out = tmp_path / "to.csv"
        out.symlink_to(name)
    if name == "input.csv":
        asked = str(out)
    before = files_of(tmp_path)
    monkeypatch.setattr(Detector, "load", None)  # it is said before the model is read
    result = score("--detector", bundle, asked, "--out", out)
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: --out {str(out)!r} is ")
    assert files_of(tmp_path) == before
    assert out.is_symlink() == (name == "link.csv")


def test_questions_without_answers_are_answered_or_refused(
    bundle: Path, tmp_path: Path
) -> None:
    place = tmp_path / "asked.csv"
    place.write_text(
        "question,model_answer\nWho wrote Emma?,\nWho wrote Dracula?,Stoker\n"
    )
    result = score("--detector", bundle, place, "--json")
    told = json.loads(result.stdout)
    assert told["items"][1]["answer"] == "Stoker"
    assert "truncated" in told["items"][0]["warnings"][0]
    refused = score("--detector", bundle, place, "--no-generate")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(
        "error: The question 'Who wrote Emma?' has no answer"
    )
    assert "(1 of 2 have none)" in refused.stderr


def test_a_column_answer_is_the_answer_and_scores_can_be_scored_again(
    bundle: Path, tmp_path: Path
) -> None:
    place, out = tmp_path / "mine.csv", tmp_path / "scores.csv"
    pl.DataFrame(PAIRS, schema=["question", "answer"], orient="row").write_csv(place)
    wanted = [score.log_odds for score in Detector.load(bundle).score_many(PAIRS)]
    replies = tmp_path / "replies.csv"
    pl.DataFrame(PAIRS, schema=["question", "reply"], orient="row").write_csv(replies)
    files = ((place, ("--out", out)), (out, ()))
    files = (*files, (replies, ("--columns", "answer=reply")))
    for file, arguments in files:
        result = score(
            "--detector", bundle, file, "--no-generate", "--json", *arguments
        )
        assert result.exit_code == 0, result.stderr
        items = json.loads(result.stdout)["items"]
        assert [(item["question"], item["answer"]) for item in items] == [*PAIRS]
        assert [item["log_odds"] for item in items] == pytest.approx(wanted)


def test_several_questions_and_lines_of_standard_input_are_scored_alike(
    bundle: Path,
) -> None:
    asked = ("Who wrote Emma?", "Who wrote Dracula?")
    several = json.loads(score("--detector", bundle, *asked, "--json").stdout)["items"]
    piped = json.loads(
        score("--detector", bundle, "-", "--json", typed="\n".join([*asked, ""])).stdout
    )["items"]
    assert [(item["item_id"], item["question"]) for item in piped] == [
        ("1", asked[0]),
        ("2", asked[1]),
    ]
    assert piped == several


def test_bad_rows_end_it_or_are_counted(bundle: Path, tmp_path: Path) -> None:
    place = tmp_path / "bad.jsonl"
    place.write_text(
        '{"question": "Who wrote Emma?", "model_answer": "Austen"}\n{"question": ""}\n'
    )
    failed = score("--detector", bundle, place)
    assert (failed.exit_code, failed.stdout) == (2, "")
    assert "line 2: the question is empty" in failed.stderr
    skipped = score("--detector", bundle, place, "--on-bad-row", "skip")
    assert skipped.exit_code == 0
    assert skipped.stderr.endswith("warning: 1 bad or empty rows were left out\n")


def test_mistakes_are_one_line_and_leave_nothing_behind(
    bundle: Path, answers: Path, tmp_path: Path, save_tiny: Callable[[str], Path]
) -> None:
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    for one in bundle.iterdir():
        (damaged / one.name).write_bytes(one.read_bytes()[:-1])
    (tmp_path / "empty.jsonl").write_text("")
    out = tmp_path / "scores.csv"
    for arguments, message in (
        (["--detector", damaged, "Who?"], "The bundle "),
        (["--detector", bundle, tmp_path / "empty.jsonl"], ""),
        (
            ["--detector", bundle, "Who?", "--no-generate"],
            "The question 'Who?' has no answer and none may be",
        ),
        (["--detector", bundle, "  "], "Question 1 is empty"),
        (
            ["--detector", bundle, answers, "--answer", "Paris"],
            "--answer goes with a single question",
        ),
        (
            ["--detector", bundle, "Who?", "--risk", 0.01],
            "Detector 'probe' has no threshold for the risk 0.01",
        ),
        (["--detector", bundle, answers, "--columns", "question=asked"], ""),
        (
            ["--detector", bundle, "Who?", "--model", save_tiny("qwen2")],
            "Detector 'probe' was trained on model ",
        ),
        (
            ["--detector", bundle, "Who?", "--answer", "\udcff"],
            "The answer of item 1 is not valid UTF-8 text",
        ),
        (
            ["--detector", bundle, "Who?", answers],
            f"{str(answers)!r} is given beside other questions",
        ),
        (["--detector", bundle, "-"], "Standard input holds no question"),
        (
            ["--detector", bundle, "--demo", "Who?"],
            "Name a detector with --detector BUNDLE, or take the one that",
        ),
        (
            ["Who?"],
            "Name a detector with --detector BUNDLE, or take the one that comes along with --demo",
        ),
        (
            ["--detector", bundle, "Who?", "--out", answers],
            f"--out {str(answers)!r} is there already and is not a table of scores",
        ),
    ):
        result = score(
            *arguments, *(["--out", out] if "--out" not in arguments else []), "--quiet"
        )
        assert (result.exit_code, result.stdout) == (2, ""), result.output
        assert result.stderr.startswith(f"error: {message}"), result.stderr
        assert result.stderr.count("\n") == 1, result.stderr
        assert not out.exists()


def test_what_is_a_file_and_what_a_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions").write_text("question\nWho?\n")
    for text in (
        "atlas",
        "popqa=x.tsv",
        "file:x",
        "mine.csv",
        "folder/mine.jsonl",
        "folder/mine",
        "notes.md",
        "questions",
    ):
        assert dataset_of(text) is not None, text
    asked = (
        "Who wrote Emma?",
        "What is 3.5 times 2",
        "Is it file: or not?",
        "Is it and/or?",
        "What does README.md say",
        "Who is J.R.R. Tolkien",
        "x" * 5000,
        "",
    )
    for text in asked:
        assert dataset_of(text) is None, text
