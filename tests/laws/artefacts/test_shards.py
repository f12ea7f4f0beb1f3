"""Results of shards: kept while a step is under way, checked when they are read, gone when the step is stored."""

import errno
import hashlib
import os
import threading

import pytest

from anchorscope.artefacts.run_folder import open_run
from anchorscope.artefacts.shards import ShardStore, is_shard
from anchorscope.artefacts.step import MadeFrom, StepResult
from anchorscope.errors import Incomplete, UserError
from anchorscope.steps.formats import records
from anchorscope.verifying import verify

ONE, TWO = (hashlib.sha256(name).hexdigest()[:32] for name in (b"one", b"two"))
NUMBERS = records(list[int])


def test_what_is_written_is_read_and_nothing_else_is_there(tmp_path):
    store = ShardStore(tmp_path / "work" / "facts" / "clean-0123456789ab.shards")
    assert (store.ids(), store.read(ONE)) == ([], None)
    for body in (b"a body", b"", bytes(range(256)) * 1000):
        store.write(ONE, body)
        assert store.read(ONE) == body
    assert store.ids() == [ONE]
    assert [place.name for place in store.folder.iterdir()] == [f"{ONE}.safetensors"]
    store.drop()
    store.drop()
    assert not store.folder.exists()


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "other", "longer"])
def test_a_damaged_one_is_missing_and_its_file_goes(tmp_path, damage):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    store.write(ONE, b"x" * 1000)
    store.write(TWO, b"y")
    place = store.folder / f"{ONE}.safetensors"
    whole = place.read_bytes()
    changed = bytearray(whole)
    changed[-500] ^= 1
    place.write_bytes(
        {
            "truncated": whole[:-7],
            "changed": bytes(changed),
            "empty": b"",
            "longer": whole + b"!",
            "other": b"not of ours",
        }[damage]
    )
    assert store.read(ONE) is None
    assert not place.exists()
    assert store.read(TWO) == b"y"


def test_every_changed_byte_of_a_file_is_noticed(tmp_path):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    store.write(ONE, b"body")
    place = store.folder / f"{ONE}.safetensors"
    whole = place.read_bytes()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 0x11
        place.write_bytes(changed)
        assert store.read(ONE) in (None, b"body")


def test_a_file_of_another_name_is_never_removed(tmp_path):
    store = ShardStore(tmp_path / "clean-0123456789ab.shards")
    store.write(ONE, b"x")
    (store.folder / f"{TWO}.safetensors.anchorscope-partial").write_bytes(b"half")
    mine = store.folder / "my notes.txt"
    mine.write_text("mine")
    (store.folder / f"{TWO}x.safetensors").write_text("mine too")
    assert store.ids() == [ONE]
    store.drop()
    assert sorted(place.name for place in store.folder.iterdir()) == sorted([f"{TWO}x.safetensors", "my notes.txt"])


def test_only_ids_are_names(tmp_path):
    with pytest.raises(AssertionError, match="no id"):
        ShardStore(tmp_path).write("../../etc", b"x")


def stopped(folder, name="facts/clean", ids=(ONE,), **options):
    """A step that writes shards and is stopped; where they are."""

    def make():
        for one in ids:
            folder.shards().write(one, b"part")
        raise Incomplete("no worker is left")

    step = StepResult(folder, name, (), MadeFrom(options=options), NUMBERS, make)
    with pytest.raises(Incomplete):
        step.value  # noqa: B018
    return folder.work / f"{name}-{step.key[:12]}.shards"


def test_a_step_that_was_stopped_finds_its_shards_again_and_they_go_when_it_is_stored(tmp_path):
    with open_run(tmp_path / "run") as folder:
        place = stopped(folder, a=1)
        assert folder.shards() is None, "no step is under way"
    with open_run(tmp_path / "run") as folder:
        found = []

        def make():
            found.append((folder.shards().read(ONE), folder.shards().read(TWO)))
            return [1]

        assert StepResult(folder, "facts/clean", (), MadeFrom(options={"a": 1}), NUMBERS, make).value == [1]
    assert found == [(b"part", None)]
    assert not place.exists()


def test_other_options_have_other_shards_and_all_go_when_the_step_is_stored(tmp_path):
    with open_run(tmp_path / "run") as folder:
        first, second = stopped(folder, a=1), stopped(folder, a=2)
        longer = stopped(folder, "facts/clean-all")
        assert first != second
        step = StepResult(folder, "facts/clean", (), MadeFrom(), NUMBERS, lambda: [len(folder.shards().store.ids())])
        assert step.value == [0]
        assert not first.exists()
        assert not second.exists()
        assert longer.exists(), "another step's"


def test_a_step_goes_on_while_its_shards_are_written_and_ends_when_all_are(tmp_path, monkeypatch):
    go_on, whole = threading.Event(), []

    def slow(store, name, body, sha256=None):
        assert go_on.wait(30)
        whole.append(name)

    monkeypatch.setattr(ShardStore, "write", slow)
    with open_run(tmp_path / "run") as folder:

        def make():
            for one in (ONE, TWO):
                folder.shards().write(one, b"part")
            assert not whole, "nobody waits for the disk"
            go_on.set()
            return [1]

        write = NUMBERS.write
        form = NUMBERS._replace(write=lambda value, place: (whole.append("stored"), write(value, place)))
        StepResult(folder, "facts/clean", (), MadeFrom(), form, make).value  # noqa: B018
    assert whole == [ONE, TWO, "stored"]


def test_a_disk_that_is_full_behind_the_last_pass_ends_the_step(tmp_path, monkeypatch):
    def full(store, name, body, sha256=None):
        raise OSError(errno.ENOSPC, "No space left on device", name)

    monkeypatch.setattr(ShardStore, "write", full)
    with open_run(tmp_path / "run") as folder:

        def make():
            folder.shards().write(ONE, b"part")
            return [1]

        step = StepResult(folder, "facts/clean", (), MadeFrom(), NUMBERS, make)
        with pytest.raises(OSError, match="No space left"):
            step.value  # noqa: B018
        assert not step.is_kept
        assert folder.shards() is None


def test_the_innermost_step_has_the_shards(tmp_path):
    with open_run(tmp_path / "run") as folder:
        names = []

        def note():
            names.append(folder.shards().store.folder.name)
            return [1]

        inner = StepResult(folder, "facts/inner", (), MadeFrom(), NUMBERS, note)

        def make():
            note()
            inner.value  # noqa: B018
            return note()

        StepResult(folder, "facts/outer", (), MadeFrom(), NUMBERS, make).value  # noqa: B018
    assert [name.partition("-")[0] for name in names] == ["outer", "inner", "outer"]


def test_starting_over_removes_them_and_a_finished_run_has_none(tmp_path):
    with open_run(tmp_path / "run") as folder:
        place = stopped(folder)
        folder.forget_steps()
        assert not place.exists()
        place = stopped(folder)
        made = tmp_path / "made"
        made.mkdir()
        (made / "table.txt").write_text("1")
        folder.publish(made, {}, "key")
        assert not place.exists()


def test_a_new_run_that_a_mistake_ends_keeps_its_shards_and_goes_without_any(tmp_path):
    def mistaken(ids):
        with open_run(tmp_path / "run") as folder:
            stopped(folder, ids=ids)
            raise UserError("a mistake")

    for ids, kept in (((), False), ((ONE,), True)):
        with pytest.raises(UserError, match="mistake"):
            mistaken(ids)
        assert (tmp_path / "run" / "index.json").exists() == kept


def test_verify_knows_them_for_the_runs_own(tmp_path):
    with open_run(tmp_path / "run") as folder:
        place = stopped(folder)
        (place / "mine.txt").write_text("mine")
        (tmp_path / "run" / f"{ONE}.safetensors").write_text("mine")
    found = verify(tmp_path / "run")
    assert found.whole
    assert sorted(found.unlisted) == sorted([f"{ONE}.safetensors", f"work/facts/{place.name}/mine.txt"])
    assert not is_shard(f"elsewhere/clean-0123456789ab.shards/{ONE}.safetensors")


def test_a_link_leads_nowhere(tmp_path):
    elsewhere = ShardStore(tmp_path / "elsewhere" / "clean-0123456789ab.shards")
    elsewhere.write(ONE, b"another run's")
    with open_run(tmp_path / "run") as folder:
        folder.work.mkdir()
        os.symlink(elsewhere.folder.parent, folder.work / "facts")
        os.symlink(elsewhere.folder, folder.work / "other-0123456789ab.shards")
        folder.forget_steps()
    assert elsewhere.read(ONE) == b"another run's"
