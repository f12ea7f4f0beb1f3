"""What makes a damaged run folder one that can be gone on with; nothing is claimed that cannot be proven to be ours.

An index that was lost is written again from the manifest, which is sealed and knows the hash of every file. Steps whose
files are not what was written are forgotten, so that they are made again from those before them. Files that were
changed are moved aside, never removed.
"""

import os
import tomllib
from pathlib import Path

from anchorscope.artefacts.durable import move_aside
from anchorscope.artefacts.finished import read_manifest
from anchorscope.artefacts.index import INDEX, Damaged, Index, facts_of, index_in, read_index, wrong_with
from anchorscope.artefacts.run_folder import MANIFEST, RunFolder, locked
from anchorscope.errors import UserError
from anchorscope.recipe import Recipe, make_recipe, read_recipe

_RECIPE = "recipe.toml"


def restore_index(path: Path) -> str | None:
    """Writes an index again that is lost or damaged, and says so; None where it is whole."""
    try:
        read_index(path)
        return None
    except Damaged:
        index = _proven(path)
    with locked(path):
        aside = f"; the damaged one is {move_aside(path / INDEX).name}" if os.path.lexists(path / INDEX) else ""
        index.save(path)
    return f"{INDEX} is written again from {MANIFEST}{aside}"


def _proven(path: Path) -> Index:
    """The index that the manifest vouches for."""
    try:
        manifest = read_manifest(path)
    except UserError as error:
        raise UserError(
            f"The {INDEX} of {str(path)!r} is damaged, and no manifest vouches for its files ({error}); what belongs "
            f"to the run cannot be told, and nothing was touched. Run it again into another folder with --out."
        ) from None
    index = index_in(manifest)
    hashes = manifest["sha256"]
    whole = [name for name, known in hashes.items() if wrong_with(path / name, {"sha256": known}) is None]
    index.results = facts_of(path, [*whole, MANIFEST])
    if len(whole) < len(hashes):
        index.notes.pop("published", None)  # so that results are written again
    return index


def forget_damaged_steps(folder: RunFolder) -> list[str]:
    """Takes steps out of the index whose files are not what was written; their names."""
    found = []
    for name, record in list(folder.index.steps.items()):
        wrong = {file: told for file, facts in record.files.items() if (told := wrong_with(folder.path / file, facts))}
        if not wrong:
            continue
        for file, told in wrong.items():
            is_there = os.path.lexists(folder.path / file)
            aside = f"; it was moved to {move_aside(folder.path / file).name}" if is_there else ""
            folder.tell(f"{name} is made again: {file} {told}{aside}")
        del folder.index.steps[name]
        folder.index.notes.pop("published", None)
        folder.drop([file for file in record.files if file not in wrong])
        found.append(name)
    return found


def recipe_of(path: Path) -> Recipe:
    """The recipe that a run was made with: the file, or what the index remembers of it."""
    index = read_index(path)
    facts, noted = index.results.get(_RECIPE), index.notes.get("recipe")
    if facts is not None and wrong_with(path / _RECIPE, facts) is None:
        return make_recipe(read_recipe(path / _RECIPE))
    if isinstance(noted, str):
        return make_recipe(tomllib.loads(noted))
    raise UserError(
        f"The {_RECIPE} of {str(path)!r} is damaged, and its {INDEX} does not know what was in it; the command that "
        f"made the run, with the same options, goes on with it."
    )
