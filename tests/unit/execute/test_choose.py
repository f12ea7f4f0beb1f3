"""Which executor is meant: what can be said, and one line for what cannot."""

import pytest

from anchorscope.errors import UserError
from anchorscope.execute.choose import Choice, choose


def test_this_process_runs_everything_unless_told_otherwise() -> None:
    assert choose() == Choice()
    assert choose().is_local


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((None, 3), Choice("ray", 3)),
        (("ray",), Choice("ray", None, None)),
        (("ray", 2), Choice("ray", 2)),
        (("ray:auto", 8), Choice("ray", 8, "auto")),
        (("ray:[::1]:6379", 1), Choice("ray", 1, "[::1]:6379")),
    ],
)
def test_what_can_be_said(given: tuple[object, ...], wanted: Choice) -> None:
    assert choose(*given) == wanted  # type: ignore[arg-type]
    assert not wanted.is_local


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("slurm",), r"'slurm' is not known; allowed: local, ray"),
        (("processes:4",), r"'processes:4' is not known; allowed: .*--workers N"),
        ((None, 0), r"0 workers were asked for; allowed: 1"),
        (("ray:somewhere",), r"address is wanted, like ray:10\.0\.0\.1:6379"),
        (
            ("local", 2),
            r"--workers 2 says how many workers run, and the executor is local",
        ),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    given: tuple[object, ...], told: str
) -> None:
    with pytest.raises(UserError, match=told):
        choose(*given)  # type: ignore[arg-type]
