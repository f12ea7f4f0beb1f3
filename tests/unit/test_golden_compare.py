"""The comparison of golden files can fail: every kind of change is reported, in one readable line."""

import pytest

from golden import compare_texts, report_changes

TABLE = "curve,value,n\nplain,0.5,30\ncorrected,-12.25,31\n"
CARD = '{"sentence": "About 44 % need it (0.36)", "layer": 3, "tiles": [{"id": "share", "value": 0.25}]}'
OLD = {"curves.csv": TABLE, "answer.json": CARD, "recipe.toml": "seed = 0\n"}


def reported(exact: bool = False, **replaced: tuple[str, str]) -> str:
    """The report after one replacement in one file."""
    endings = {"table": "curves.csv", "card": "answer.json", "recipe": "recipe.toml"}
    new = {
        **OLD,
        **{
            endings[key]: OLD[endings[key]].replace(*pair)
            for key, pair in replaced.items()
        },
    }
    assert new != OLD
    return report_changes(compare_texts(OLD, new, exact), "run")


@pytest.mark.parametrize(
    ("replaced", "line"),
    [
        ({"table": ("0.5", "0.503")}, "line 2: plain,0.5,30 → plain,0.503,30"),
        ({"table": ("0.5,", ",")}, "plain,,30"),
        ({"table": (",30", ",31")}, "plain,0.5,31"),
        (
            {"table": ("corrected,-12.25,31\n", "")},
            "line 3: corrected,-12.25,31 → (no line)",
        ),
        ({"table": ("value,n", "n,value")}, "line 1: curve,value,n → curve,n,value"),
        ({"card": ("need", "want")}, "About 44 % want it"),
        ({"card": ('"layer": 3, ', "")}, "line 1"),
        ({"recipe": ("0", "1")}, "line 1: seed = 0 → seed = 1"),
    ],
)
def test_a_change_is_reported_everywhere(
    replaced: dict[str, tuple[str, str]], line: str
) -> None:
    assert line in reported(**replaced)
    assert line in reported(exact=True, **replaced)


@pytest.mark.parametrize(
    "replaced",
    [
        {"table": ("0.5", "0.5001")},
        {"table": ("-12.25", "-12.26")},
        {"card": ("0.36", "0.37")},
    ],
)
def test_last_digits_may_move_on_other_machines_only(
    replaced: dict[str, tuple[str, str]],
) -> None:
    assert reported(**replaced) == ""
    assert " → " in reported(exact=True, **replaced)


def test_files_that_come_or_go_are_reported() -> None:
    gone = compare_texts(OLD, {"curves.csv": TABLE})
    assert [(change.file, change.new) for change in gone] == [
        ("answer.json", "missing"),
        ("recipe.toml", "missing"),
    ]
    assert compare_texts({}, {"new.csv": TABLE})
