"""What a person sees: bars or lines, the step and the time left; the answer card whole in any width."""

from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from anchorscope import screen as screen_module
from anchorscope.cli.terminal import user_errors
from anchorscope.errors import UserError
from anchorscope.progress import PlannedStep
from anchorscope.report.answer_card import AnswerCard, Bar, NextStep, Trust
from anchorscope.screen import ScreenProgress, card_text


@pytest.fixture
def screen(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[StringIO]:
    file = StringIO()
    console = Console(
        file=file,
        force_terminal=True,
        width=getattr(request, "param", 100),
        color_system=None,
    )
    monkeypatch.setattr(screen_module, "console", console)
    yield file
    assert not screen_module._bars


def test_an_error_takes_the_bar_down_first(screen: StringIO) -> None:
    def fails_midway() -> None:
        ScreenProgress().start("states", 4)
        raise UserError("Bad.")

    with pytest.raises(SystemExit), user_errors():
        fails_midway()
    shown = screen.getvalue()
    assert shown.endswith("error: Bad.\n")
    assert shown.count("\x1b[?25h") == 1


PLAN = [
    PlannedStep("d/answers", "answers", 4),
    PlannedStep("d/clean", "items", 2),
    PlannedStep("d/cut", "items", 6),
    PlannedStep("report", "items", 1),
]


def test_the_time_left_is_that_of_steps_of_the_same_kind_at_the_speed_that_was_measured() -> (
    None
):
    now = 0.0
    job = ScreenProgress(lambda: now)
    assert (job.step(), job.left()) == ("", "")
    job.plan(PLAN)
    assert (job.step(), job.left()) == ("step 1 of 4", "")
    now += 50
    job.done("d/answers")
    assert (job.step(), job.left()) == (
        "step 2 of 4",
        "",
    )  # the speed of items is unknown
    now += 20
    job.done("d/clean")
    assert (job.step(), job.left()) == ("step 3 of 4", "about 70 s left")
    now += 20
    assert job.left() == "about 50 s left"
    now += 40
    job.done("d/cut")
    assert (job.step(), job.left()) == ("step 4 of 4", "about 10 s left")
    job.seconds_of_part = 20.0
    assert (
        job.left() == "about 20 s left"
    )  # never less than what the present part still takes
    job.done("report")
    assert (job.step(), job.left()) == (
        "",
        "",
    )  # what comes after belongs to another job


def test_a_step_says_whose_it_is_where_there_are_several_datasets() -> None:
    job = ScreenProgress(lambda: 0.0)
    names = ("a b/answers", "c/answers", "report")
    job.plan([PlannedStep(name, "items", 1) for name in names])
    job.begin("a b/answers")
    job.begin("model")
    assert job.step() == "step 1 of 3 (a b)"
    job.done("a b/answers")
    job.begin("c/answers")
    assert job.step() == "step 2 of 3 (c)"
    job.seconds_of_part = 20.0
    assert job._line().startswith("c: "), "the line that stays says it, too"
    job.done("c/answers")
    job.begin("report")
    assert job.step() == "step 3 of 3"
    job.plan(())
    assert (job.step(), job.left(), job._dataset) == ("", "", "")
    alone = ScreenProgress(lambda: 0.0)
    alone.plan(PLAN)
    alone.begin("d/answers")
    assert alone.step() == "step 1 of 4"


COMMAND = "anchorscope run runs/a-rather-long-name/recipe.toml --out runs/a-rather-long-name --random-cuts 20"
PARTS = {"together": 0.48, "question": 0.2, "answer": 0.34, "either": -0.02}
CARD = AnswerCard(
    model="m\x1b[2J[red]x",
    sentence="About 70\u00a0% of the probe's evidence needs the question's key words (random words: 15\u00a0%).",
    warnings=("All 400 answers were supplied.",),
    next_steps=(
        NextStep("Look at more random cuts:", COMMAND),
        NextStep("Ask more questions."),
    ),
    trust=Trust("partly", "2 of 6 controls passed"),
    bars=(
        Bar("Key words hidden", PARTS, 0.34, 0.64),
        Bar("Random words hidden", PARTS, None, None, control=True),
    ),
)


@pytest.mark.parametrize("width", [20, 80, 300])
def test_every_word_of_the_card_is_there_in_every_width(width: int) -> None:
    text = card_text(CARD, width).plain
    lines, words = text.splitlines(), text.replace(":", " ").split()
    longest = max(map(len, words))
    assert all(
        len(line) <= max(min(width, 100), longest + 6)
        for line in lines
        if COMMAND not in line
    )
    for part in (CARD.sentence, *CARD.warnings, *(one.label for one in CARD.bars)):
        assert set(part.replace(":", " ").split()) <= set(words)
    assert f"      {COMMAND}" in lines, "a command can be pasted"
    assert "\x1b" not in text
