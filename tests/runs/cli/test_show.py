"""`anchorscope show` prints one item of a finished run: whole, harmless, in any width; mistakes are one line."""

import json
from functools import partial
from pathlib import Path

import pytest

from anchorscope.finished import open_finished
from anchorscope.report.items import record
from commands import invoke
from compared_runs import write_run
from report_items_synthetic import make_items, with_texts

EVIL = "Who \x1b[31mis\x1b]0;title\x07 [bold]the [/bold]\u202e king\n of Bern? :smile:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    findings, _ = make_items()
    words = [[EVIL.index("king"), EVIL.index("king") + 4]]
    findings = with_texts(
        findings,
        1,
        question=EVIL,
        question_words=words,
        model_answer="\x1b[2J[red]Bern",
        subject=None,
    )
    # The same id in two datasets.
    findings = with_texts(findings, 41, item_id="twice")
    findings = with_texts(findings, findings.items.height - 1, item_id="twice")
    # An id that looks like another item's dataset and id, and one that would steer the terminal, twice.
    findings = with_texts(findings, 14, item_id="triviaqa/triviaqa-5")
    findings = with_texts(findings, 16, item_id="\x1b[2Jclear me")
    findings = with_texts(
        findings, findings.items.height - 3, item_id="\x1b[2Jclear me"
    )
    return write_run(tmp_path_factory.mktemp("runs") / "one", findings)


ask = partial(invoke, "show")


def mistake(*arguments: object) -> str:
    for quiet in ([], ["--quiet"]):
        result = ask(*arguments, *quiet)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
    return line.removeprefix("error: ")


def test_json_is_one_object_with_every_number(folder):
    result = ask(folder, "popqa/popqa-3", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout)
    findings, _ = make_items()
    item = record(findings, "popqa", "popqa-3")
    assert {name: found[name] for name in item} == item
    assert (found["n_layers"], found["site"], found["run"]) == (12, "mlp", str(folder))


def test_what_would_steer_the_terminal_is_a_sign(folder):
    result = ask(folder, "popqa-1")
    assert result.exit_code == 0
    assert (
        "Who ␛[31mis␛]0;title␇ [bold]the [/bold]� ⟦king⟧  of Bern? :smile:"
        in result.stdout
    )
    assert "␛[2J[red]Bern" in result.stdout
    assert not any(letter in result.stdout for letter in "\x1b\x07\u202e")


def test_a_run_shows_its_card_and_a_few_items(folder):
    result = ask(folder)
    card, _, listed = result.stdout.partition("\nA few items\n")
    assert listed.startswith(
        "popqa/popqa-0  What is the capital of the land of Bern, number 0? → Bern ("
    )
    assert len(listed.splitlines()) == 10
    said = open_finished(folder).card
    assert said.sentence.split()[0] in card
    assert said.trust is not None
    assert f"Trust it? {said.trust.verdict.capitalize()}" in card
    assert json.loads(ask(folder, "--json").stdout)["answer"] == json.loads(
        json.dumps(said.record())
    )
    assert f"open one with: anchorscope show {folder} popqa/popqa-0" in result.stderr
    assert ask(folder, "--quiet").stderr == ""


def test_mistakes(folder, tmp_path):
    near = mistake(folder, "popqa-0x")
    assert near.startswith("No item 'popqa-0x' among the 84 of ")
    assert "The nearest: 'popqa-0'," in near
    assert "triviaqa/triviaqa-7" in mistake(folder, "triviaqa/trivaqa-7")
    assert (
        mistake(folder, "twice")
        == "The item 'twice' is in several datasets; name one: popqa/twice, triviaqa/twice."
    )
    assert ask(folder, "popqa/twice").exit_code == 0
    assert "is not a finished run" in mistake(tmp_path, "x")
    assert len(mistake(folder, "y" * 5_000)) < 600
    assert "\x1b" not in mistake(folder, "\x1b[31m")


def test_dataset_and_id_mean_just_that_and_odd_ids_are_harmless(folder):
    def opened(name):
        found = json.loads(ask(folder, name, "--json").stdout)
        return found["dataset"], found["item_id"]

    assert opened("triviaqa/triviaqa-5") == ("triviaqa", "triviaqa-5")
    assert opened("popqa/triviaqa/triviaqa-5") == ("popqa", "triviaqa/triviaqa-5")
    assert opened("popqa/\x1b[2Jclear me") == ("popqa", "\x1b[2Jclear me")
    told = mistake(folder, "\x1b[2Jclear me")
    assert told.endswith("name one: popqa/␛[2Jclear me, triviaqa/␛[2Jclear me.")
    assert "\x1b" not in told
    assert "\x1b" not in ask(folder).stdout
