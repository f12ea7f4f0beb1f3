"""Which executor is meant: what can be said, and one line for what cannot."""

import pytest

from anchorscope.errors import UserError
from anchorscope.execute.choose import LEASE, Choice, choose


def test_this_process_runs_everything_unless_told_otherwise() -> None:
    assert choose() == Choice()
    assert choose().is_local


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (("processes:4",), Choice("processes", 4)),
        (("processes", 3), Choice("processes", 3)),
        (("processes",), Choice("processes", None)),
        (("processes:2", 2, 30.0, True, 4), Choice("processes", 2, None, 30.0, True, 4)),
        (("ray",), Choice("ray", None, None)),
        (("ray:auto", 8), Choice("ray", 8, "auto")),
        (("ray:10.0.0.1:6379", 8), Choice("ray", 8, "10.0.0.1:6379")),
        (("ray:[::1]:6379", 1), Choice("ray", 1, "[::1]:6379")),
    ],
)
def test_what_can_be_said(given: tuple[object, ...], wanted: Choice) -> None:
    found = choose(*given)  # type: ignore[arg-type]
    assert found == wanted
    assert found.lease in (LEASE, 30.0)
    assert not found.is_local


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("slurm",), r"'slurm' is not known; allowed: local, processes:N, ray"),
        (("local:2",), r"'local:2' is not known"),
        (("",), r"'' is not known"),
        (("processes:many",), r"number of processes is wanted"),
        (("processes:-1",), r"number of processes is wanted"),
        (("processes:0",), r"0 workers were asked for; allowed: 1"),
        (("processes", 0), r"0 workers were asked for"),
        (("processes:2", 3), r"'processes:2' and --workers 3 disagree"),
        (("ray:somewhere",), r"address is wanted, like ray:10\.0\.0\.1:6379"),
        (("ray:a b:1",), r"address is wanted"),
        (("local", 2), r"--workers says how workers run, and the executor is local; add --executor"),
        (("local", None, 5.0), r"--lease says how"),
        (("local", None, None, False, 2), r"--devices-per-worker says how"),
        (("processes:2", None, 0.0), r"lease of 0 seconds; allowed: 1 to 604,800"),
        (("processes:2", None, float("nan")), r"lease of nan seconds"),
        (("processes:2", None, None, False, 0), r"0 devices per worker; allowed: 1"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(given: tuple[object, ...], told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        choose(*given)  # type: ignore[arg-type]
    assert "\n" not in str(error.value)
