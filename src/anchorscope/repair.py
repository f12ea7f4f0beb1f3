"""`verify --repair`: damaged steps and results of a run are made again by the machinery that made them.

Only what depends on a damaged file is made: where only results are damaged, they are written again from the steps, and
no model is loaded. A run that was not finished is left where it can be gone on with.
"""

from pathlib import Path

from anchorscope.artefacts.kinds import RUN, VALIDATION, kind_of
from anchorscope.artefacts.mend import forget_damaged_steps, recipe_of, restore_index
from anchorscope.artefacts.run_folder import MANIFEST, open_run
from anchorscope.artefacts.verify import Verified, verify
from anchorscope.errors import UserError
from anchorscope.progress import Progress, Silent
from anchorscope.recipe import to_toml


def repair(path: Path, progress: Progress | None = None) -> Verified:
    """Mends a run, or the run of a validation; what it is like afterwards. What cannot be mended here stays damaged."""
    listener = progress or Silent()
    found = verify(path, listener)
    run = path / "run" if found.kind == VALIDATION else path
    if found.whole or kind_of(run) != RUN or verify(run).whole:
        return found
    told = restore_index(run)
    if told is not None:
        listener.note(told)
    with open_run(run, listener) as folder:
        forget_damaged_steps(folder)
        finished = MANIFEST in folder.index.results or folder.index.notes.get("published") is not None
        if not finished:
            folder.write_recipe(to_toml(recipe_of(run)))
    if finished:
        from anchorscope.pipeline import run_recipe  # only here: a folder that is whole is checked without torch

        recipe = recipe_of(run)
        if recipe.trust_remote_code:  # the folder may come from anybody
            raise UserError(
                f"The model of {str(run)!r} brings code of its own. If you trust its authors, mend the run with: "
                f"anchorscope run {run / 'recipe.toml'} --out {run} --trust-remote-code"
            )
        run_recipe(recipe, run, progress=listener)
    return verify(path, listener)
