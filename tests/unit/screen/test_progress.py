"""What a person sees of a long job: bars or lines, the step and the time left."""

from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from anchorscope.cli.terminal import user_errors
from anchorscope.errors import UserError
from anchorscope.progress import PlannedStep
from anchorscope.screen import messages
from anchorscope.screen import progress as screen_progress
from anchorscope.screen.messages import duration
from anchorscope.screen.progress import TerminalProgress, TimeLeft


@pytest.mark.parametrize(("seconds", "text"), [(0.1, "1 s"), (25.4, "25 s"), (150, "2 min"), (7800, "2 h 10 min")])
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_plain_progress_has_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = TerminalProgress(clock=lambda: now)
    progress.start("answers", 600)
    for _ in range(5):
        now += 4
        progress.advance(120)
    progress.finish()
    assert capsys.readouterr().err.splitlines() == [
        "answers  0/600",
        "answers  240/600  40 %  about 12 s left",
        "answers  480/600  80 %  about 4 s left",
        "answers  600/600  100 %  in 20 s",
    ]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[StringIO]:
    """A terminal of a hundred columns, as text."""
    file = StringIO()
    monkeypatch.setattr(messages, "console", Console(file=file, force_terminal=True, width=100, color_system=None))
    yield file
    assert not screen_progress._on_screen


def test_bar_on_a_terminal(screen: StringIO) -> None:
    progress = TerminalProgress()
    progress.start("states", 4)
    progress.advance(4)
    progress.finish()
    shown = screen.getvalue()
    for part in ("states", "━", "4/4", "states  4/4  100 %  in 1 s"):
        assert part in shown


def test_an_error_takes_the_bar_down_first(screen: StringIO) -> None:
    def fails_midway() -> None:
        TerminalProgress().start("states", 4)
        raise UserError("Bad.")

    with pytest.raises(SystemExit), user_errors():
        fails_midway()
    shown = screen.getvalue()
    assert shown.endswith("error: Bad.\n")
    assert shown.count("\x1b[?25h") == 1  # the cursor is back


PLAN = [
    PlannedStep("d/answers", "answers", 4),
    PlannedStep("d/clean", "items", 2),
    PlannedStep("d/cut", "items", 6),
    PlannedStep("report", "items", 1),
]


def test_the_time_left_is_that_of_steps_of_the_same_kind_at_the_speed_that_was_measured() -> None:
    now = 0.0
    job = TimeLeft(lambda: now)
    assert (job.step(), job.left()) == ("", "")
    job.plan(PLAN)
    assert (job.step(), job.left()) == ("step 1 of 4", "time left unknown")
    job.begin("d/cut")  # asks for the others first
    job.begin("d/answers")
    now += 50
    job.done("d/answers")
    assert (job.step(), job.left()) == ("step 2 of 4", "time left unknown")  # nothing is known of items yet
    job.begin("d/clean")
    now += 10
    assert job.left() == "time left unknown"
    job.within(0.5)
    assert job.left() == "about 80 s left"  # half of 2 took 10: 10 s for a unit, 1 of 2 done, 7 to come
    now += 10
    job.done("d/clean")
    assert (job.step(), job.left()) == ("step 3 of 4", "about 70 s left")
    now += 20
    assert job.left() == "about 50 s left"  # the outer step's own time counts from here
    now += 40
    job.done("d/cut")
    assert (job.step(), job.left()) == ("step 4 of 4", "about 10 s left")
    job.begin("report")
    now += 10
    job.done("report")
    assert job.is_over
    assert (job.step(), job.left()) == ("", "")  # what comes after belongs to another job
    assert job.seconds == 140


def test_what_is_there_already_is_not_counted_and_tells_the_speed() -> None:
    job = TimeLeft(lambda: 0.0)
    job.plan([PlannedStep("d/clean", "items", 2, seconds=30.0), PlannedStep("d/cut", "items", 6)])
    assert (job.step(), job.left()) == ("step 1 of 1", "about 90 s left")


def test_a_later_plan_goes_on_counting() -> None:
    now = 0.0
    job = TimeLeft(lambda: now)
    job.plan(PLAN)
    job.begin("d/answers")
    now += 8
    job.done("d/answers")
    job.plan([PlannedStep("d/answers", "answers", 4, seconds=8.0), *PLAN[1:]])
    assert job.step() == "step 2 of 4"


def test_an_unknown_cost_makes_it_a_lower_bound() -> None:
    job = TimeLeft(lambda: 0.0)
    job.plan(
        [
            PlannedStep("d/clean", "items", 2, seconds=30.0),
            PlannedStep("d/cut", "items", 6),
            PlannedStep("d/new", "items", None),
        ]
    )
    assert job.left() == "at least 90 s left"
    job.plan([PlannedStep("d/clean", "items", 2, seconds=30.0), PlannedStep("d/new", "items", None)])
    assert job.left() == "time left unknown"


def test_it_is_never_less_than_what_the_present_part_still_takes() -> None:
    job = TimeLeft(lambda: 0.0)
    job.plan([PlannedStep("d/clean", "items", 2, seconds=2.0), PlannedStep("report", "items", 1)])
    job.begin("report")
    job.within(0.5, rest=20.0)
    assert job.left() == "about 20 s left"


def test_a_step_that_came_along_with_another_counts() -> None:
    job = TimeLeft(lambda: 0.0)
    job.plan(PLAN)
    job.begin("d/cut")
    job.done("d/clean")
    assert job.step() == "step 2 of 4"


def test_a_damaged_step_that_is_made_again_is_one_more() -> None:
    job = TimeLeft(lambda: 0.0)
    job.plan([PlannedStep("d/clean", "items", 2, seconds=30.0), PlannedStep("d/cut", "items", 6)])
    job.begin("d/clean")
    assert job.step() == "step 1 of 2"


def test_lines_name_the_step_and_the_whole_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    progress = TerminalProgress(clock=lambda: now)
    progress.plan([PlannedStep("d/clean", "items", 2, seconds=30.0), PlannedStep("d/cut", "items", 6)])
    progress.begin("d/cut")
    progress.start("knockout", 10)
    now += 9
    progress.advance(1)
    progress.finish()
    progress.done("d/cut")
    assert capsys.readouterr().err.splitlines() == [
        "step 1 of 1: knockout  0/10",
        "knockout  1/10  10 %  about 81 s left; whole run: about 81 s left",
        "knockout  1/10  10 %  in 9 s",
    ]


@pytest.mark.parametrize("width", [40, 100])
def test_the_bar_of_the_whole_stays_until_its_last_step(
    screen: StringIO, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(messages.console, "width", width)
    progress = TerminalProgress()
    progress.plan(
        [
            PlannedStep("d/clean", "items", 2, seconds=30.0),
            PlannedStep("d/cut", "items", 6),
            PlannedStep("d/new", "items", None),
        ]
    )
    for name in ("d/cut", "d/new"):
        progress.begin(name)
        progress.start(name, 2)
        progress.advance(2)
        progress.finish()
        assert screen_progress._on_screen
        progress.done(name)
    assert not screen_progress._on_screen
    shown = screen.getvalue()
    assert "step 1 of 2" in shown
    assert "step 2 of 2" in shown
    assert "at least 90 s left" in shown
    assert shown.count("\x1b[?25h") == 1  # one display for all parts, and the cursor is back
