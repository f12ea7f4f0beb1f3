"""Recipes: what is written is what is read, and a mistake is told in one line with what would be right."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorscope.errors import UserError
from anchorscope.options import option_of
from anchorscope.recipe import Recipe, make_recipe, named_folder, read_recipe, to_toml

CHOICES = {
    name: option_of(field).choices
    for name, field in Recipe.model_fields.items()
    if option_of(field).choices and field.annotation is str
}
"""Options that take one of a few words."""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
SPECS = [
    "atlas",
    "popqa=a.jsonl",
    "triviaqa=~/x/y.csv",
    "hotpotqa=h.tsv",
    "nq=n q.jsonl",
    "file:my/own é.csv",
]
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "model": TEXT,
        "datasets": st.lists(st.sampled_from(SPECS), min_size=1, unique=True),
        "limit": st.integers(1, 10**9),
        "seed": st.integers(0, 2**31),
        "device": TEXT,
        "batch_tokens": st.integers(1, 10**6),
        "max_new_tokens": st.integers(1, 512),
        "max_per_class": st.integers(30, 10**6),
        "folds": st.integers(2, 20),
        "bootstrap": st.integers(100, 10**5),
        "large_files": st.booleans(),
        "trust_remote_code": st.booleans(),
        "evidence": st.sampled_from([("knockout",), ("knockout", "exact-tokens")]),
        "allow_random_weights": st.booleans(),
        **{name: st.sampled_from(allowed) for name, allowed in CHOICES.items()},
    },
).filter(
    lambda options: (
        (options.get("edges"), options.get("position")) != ("direct", "answer_before")
    )
)


def refused(options: dict[str, Any]) -> str:
    with pytest.raises(UserError) as error:
        make_recipe(options)
    return str(error.value)


@given(options=OPTIONS)
def test_a_recipe_that_is_written_is_the_recipe_that_is_read(
    options: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    recipe = make_recipe(options)
    for name, value in options.items():
        assert getattr(recipe, name) == (tuple(value) if name == "datasets" else value)
    path = tmp_path_factory.getbasetemp() / "recipe.toml"
    path.write_text(to_toml(recipe), encoding="utf-8")
    assert make_recipe(read_recipe(path)) == recipe


@pytest.mark.parametrize(
    ("option", "nearest"), [("sites", "site"), ("batch_token", "batch-tokens")]
)
def test_an_unknown_option_is_told_with_the_nearest_one(
    option: str, nearest: str
) -> None:
    message = refused({option: "x"})
    assert message.startswith(f"Unknown option {option.replace('_', '-')!r}; allowed: ")
    assert message.endswith(f"Did you mean {nearest!r}?")
    assert "trust-remote-code" in message


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_an_unknown_choice_is_told_with_all_allowed_ones_and_the_nearest(
    name: str,
) -> None:
    right = CHOICES[name][0]
    message = refused({name: right + "x"})
    assert message.startswith(
        f"Unknown {name.replace('_', '-')} {right + 'x'!r}; allowed: "
    )
    assert all(allowed in message for allowed in CHOICES[name])
    assert message.endswith(f"Did you mean {right!r}?")
    assert make_recipe({name: right})


def test_a_cut_that_the_probe_cannot_feel_is_refused() -> None:
    assert "'answer_before' stands before them: nothing would change" in refused(
        {"edges": "direct", "position": "answer_before"}
    )


@pytest.mark.parametrize(
    "specs",
    [
        ("atlas", "atlas"),
        ("file:a/x.csv", "file:b/x.jsonl"),
        ("popqa=a", "file:popqa.csv"),
    ],
)
def test_two_datasets_of_one_name_are_refused(specs: tuple[str, str]) -> None:
    assert "twice; name each file differently" in refused({"datasets": specs})


HOSTILE = {
    "brackets": "limit = " + "[" * 15_000,
    "dots": "a" + ".a" * 20_000 + " = 1",
    "nan": "seed = nan",
    "a table": "keep = {a = 1}",
    "zero": 'model = "a\\u0000b"',
    "draws": "bootstrap = 100000000",
}
"""Recipes that nobody writes."""


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_recipe_is_one_short_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    with pytest.raises(UserError) as refused:
        make_recipe(read_recipe(tmp_path / "recipe.toml"))
    assert len(str(refused.value)) < 1_000


def test_a_pipe_and_a_folder_are_no_recipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recipe.toml")
    for path in (tmp_path, tmp_path / "recipe.toml"):
        with pytest.raises(UserError, match="is no regular file"):
            read_recipe(path)


def test_a_folder_called_like_a_home_is_named_in_full() -> None:
    assert named_folder("~/x") == Path.cwd() / "~" / "x", (
        "polars would write into the home of somebody"
    )


@pytest.mark.parametrize("name", ["a\0b", "caf\udce9", "x" * 20_000])
def test_a_folder_that_cannot_be_written_down_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="folder's name"):
        named_folder(name)


def test_options_of_older_recipes_that_are_gone_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('keep = ["states"]\nkeep-layers = "3,10-14"\n')
    assert make_recipe(read_recipe(path)).keep == ("states",)
