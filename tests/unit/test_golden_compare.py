"""The comparison of golden files can fail: every kind of change is reported, in one readable line."""

import pytest

from golden import compare_texts, report_changes

TABLE = "curve,value,n\nplain,0.5,30\ncorrected,-12.25,31\n"
CARD = '{"sentence": "About 44 % need it (0.36)", "layer": 3, "tiles": [{"id": "share", "value": 0.25}]}'
OLD = {"curves.csv": TABLE, "answer.json": CARD, "recipe.toml": "seed = 0\n"}


def reported(exact: bool = False, **replaced: tuple[str, str]) -> str:
    """The report after one replacement in one file."""
    endings = {"table": "curves.csv", "card": "answer.json", "recipe": "recipe.toml"}
    new = {**OLD, **{endings[key]: OLD[endings[key]].replace(*pair) for key, pair in replaced.items()}}
    assert new != OLD
    return report_changes(compare_texts(OLD, new, exact), "run")


@pytest.mark.parametrize(
    ("replaced", "line"),
    [
        ({"table": ("0.5", "0.503")}, "  row 1 (plain), value: 0.5 → 0.503 (0.006 of it)"),
        ({"table": ("0.5", "nan")}, "  row 1 (plain), value: 0.5 → nan"),
        ({"table": ("0.5,", ",")}, "  row 1 (plain), value: 0.5 → "),
        ({"table": (",30", ",31")}, "  row 1 (plain), n: 30 → 31"),
        ({"table": ("plain", "simple")}, "  row 1 (plain), curve: plain → simple"),
        ({"table": ("corrected,-12.25,31\n", "")}, "  rows: 2 → 1"),
        ({"table": ("value", "delta_p")}, "  columns: curve, value, n → curve, delta_p, n"),
        ({"table": ("value,n", "n,value")}, "  columns: curve, value, n → curve, n, value"),
        ({"card": ("0.25", "0.27")}, "  tiles[share].value: 0.25 → 0.27 (0.07 of it)"),
        ({"card": ("need", "want")}, '  sentence: "About 44 % need it (0.36)" → "About 44 % want it (0.36)"'),
        ({"card": ("0.36", "0.38")}, '  sentence: "About 44 % need it (0.36)" → "About 44 % need it (0.38)"'),
        ({"card": ("44", "45")}, '  sentence: "About 44 % need it (0.36)" → "About 45 % need it (0.36)"'),
        ({"card": ('"layer": 3', '"layer": 4')}, "  layer: 3 → 4"),
        ({"card": ('"layer": 3, ', "")}, "  names in the object: sentence, layer, tiles → sentence, tiles"),
        ({"recipe": ("0", "1")}, "  line 1: seed = 0 → seed = 1"),
    ],
)
def test_a_change_is_reported_everywhere(replaced: dict[str, tuple[str, str]], line: str) -> None:
    assert line in reported(**replaced).splitlines()
    assert line in reported(exact=True, **replaced).splitlines()


@pytest.mark.parametrize(
    "replaced", [{"table": ("0.5", "0.5001")}, {"table": ("-12.25", "-12.26")}, {"card": ("0.36", "0.37")}]
)
def test_last_digits_may_move_on_other_machines_only(replaced: dict[str, tuple[str, str]]) -> None:
    assert reported(**replaced) == ""
    assert " → " in reported(exact=True, **replaced)


def test_files_that_come_or_go_are_reported() -> None:
    assert report_changes(compare_texts(OLD, {"curves.csv": TABLE}), "run").splitlines() == [
        "run/answer.json: 1 changes",
        "  file: there → missing",
        "run/recipe.toml: 1 changes",
        "  file: there → missing",
    ]
    assert compare_texts({}, {"new.csv": TABLE})
