"""Datasets from the hub: through the real library, on folders and on a small hub of this machine; never the network."""

import json
from pathlib import Path

import polars
import pytest

from anchorscope.datasets.catalog import (
    SOURCES,
    by_hand,
    hub_rows,
    open_dataset,
    parse_spec,
)
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe
from sample_files import HOTPOTQA_HUB, NQ, POPQA, TRIVIAQA_HUB

TRIVIA = TRIVIAQA_HUB[0] | {"search_results": {"title": ["y"]}}
ROWS = {"popqa": POPQA[0], "triviaqa": TRIVIA, "hotpotqa": HOTPOTQA_HUB[0], "nq": NQ[0]}
OWN = {"prompt": "Where is Oslo?", "gold": ["Norway"], "kind": "country", "key": "o1"}
MAPPING = {"question": "prompt", "answers": "gold", "relation": "kind", "id": "key"}


def publish(root: Path, name: str) -> Path:
    """A known repository as the hub has it: a card that names the configurations, and files per split."""
    source = SOURCES[name]
    folder = root / source.repository
    row = ROWS[name]
    if name == "popqa":
        folder.mkdir(parents=True)
        polars.DataFrame([row, row]).write_csv(folder / "test.tsv", separator="\t")
        return folder
    configuration = source.configuration or "nq_open"
    card = "---\nconfigs:\n"
    for config in (configuration, "another"):
        (folder / config).mkdir(parents=True)
        card += f"- config_name: {config}\n  default: {str(config == 'nq_open').lower()}\n  data_files:\n"
        for split, question in (
            ("train", "wrong split"),
            (source.split, row["question"]),
        ):
            changed = row | {
                "question": question
                if config == configuration
                else "wrong configuration"
            }
            polars.DataFrame([changed, changed]).write_parquet(
                folder / config / f"{split}-00000-of-00001.parquet"
            )
            card += f"  - split: {split}\n    path: {config}/{split}-*\n"
    (folder / "README.md").write_text(card + "---\n# A card\n")
    return folder


def publish_own(root: Path, *splits: str) -> None:
    folder = root / "someone" / "my-questions"
    folder.mkdir(parents=True)
    for split in splits:
        row = OWN | {"prompt": f"{OWN['prompt']} {split}"}
        (folder / f"{split}.jsonl").write_text(json.dumps(row) + "\n")


@pytest.fixture
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory in which the library finds repositories as folders, and a cache that is thrown away."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", SOURCES)
def test_rows_come_through_the_library(
    name: str, local: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(local, name)
    rows = list(hub_rows(parse_spec(name)))
    kept = {
        column: value
        for column, value in ROWS[name].items()
        if column not in SOURCES[name].heavy
    }
    assert rows == [(1, kept), (2, kept)]
    assert capfd.readouterr() == ("", "")
    assert (local / "cache").is_dir()


def test_any_dataset_is_read_by_its_id_with_its_columns_mapped(local: Path) -> None:
    publish_own(local, "train", "test")
    for spec in (
        "hub:someone/my-questions:test",
        "hub:someone/my-questions:default/test",
    ):
        reading = open_dataset(parse_spec(spec), columns=MAPPING)
        (question,) = reading
        assert (question.question, question.answers, question.item_id) == (
            "Where is Oslo? test",
            ("Norway",),
            "o1",
        )
        assert (question.relation, question.metadata) == ("country", {})
        assert reading.format == "own columns, from the hub"
        assert question.dataset == parse_spec(spec).name
    Recipe(model="m", datasets=(spec,), columns=("question=prompt,answers=gold",))
    with pytest.raises(
        UserError,
        match=r"has the splits train, test; name one, like hub:someone/my-questions:test\.",
    ):
        open_dataset(parse_spec("hub:someone/my-questions"), columns=MAPPING)
    with pytest.raises(
        UserError,
        match=r"The hub's someone/my-questions has no column 'q', which --columns gives",
    ):
        open_dataset(parse_spec(spec), columns={"question": "q", "answers": "gold"})
    with pytest.raises(
        UserError,
        match=r"columns found: \['prompt', 'gold', 'kind', 'key'\].*--columns question",
    ):
        open_dataset(parse_spec(spec))


@pytest.mark.parametrize("name", [*SOURCES, "hub:someone/my-questions:test"])
def test_an_unreachable_hub(
    name: str, local: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """conftest switches the hub off: the library really tries and really fails."""
    spec = parse_spec(name)
    with pytest.raises(UserError) as failure:
        open_dataset(spec)
    message = str(failure.value)
    repository = (spec.hub or SOURCES[spec.name]).repository
    assert message.startswith(
        f"Dataset {spec.name!r} could not be loaded from the hub ({repository}): Couldn't"
    )
    assert message.endswith(
        f"Switch offline mode off (HF_HUB_OFFLINE), or {by_hand(spec)}."
    )
    assert capfd.readouterr() == ("", "")


def test_a_damaged_cache_is_told_and_not_thrown(local: Path) -> None:
    folder = publish(local, "nq")
    for file in folder.rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.raises(UserError, match="'nq' could not be loaded from the hub"):
        list(hub_rows(parse_spec("nq")))
