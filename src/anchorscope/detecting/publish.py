"""A saved detector on a hub of models: what would be published, and publishing it."""

import re
from dataclasses import dataclass
from pathlib import Path

from anchorscope.detecting.detector_card import card_text, is_hub_id
from anchorscope.detectors.bundle import bundle_files, unpack
from anchorscope.detectors.hub_bundle import PREFIX, hub_api, hub_errors
from anchorscope.errors import UserError

CARD = "README.md"
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Publication:
    """Files for a repository, before anything is sent."""

    repository: str
    files: dict[str, bytes]
    sha256: str
    """Of the bundle."""
    model: str
    """Where the model was found in training: it stands in the files."""
    told: tuple[str, ...]
    """What the user may not want others to see."""


def publication(bundle: Path, repository: str) -> Publication:
    """What would be published of a bundle: its two files as they are, and the card."""
    if not _REPOSITORY.fullmatch(repository):
        raise UserError(f"{repository!r} is no name of a repository on the hub; write USER/NAME.")
    files = bundle_files(bundle)
    trained = unpack(files, str(bundle))
    card = card_text(trained, PREFIX + repository)
    source = trained.setting.source
    told = (
        ()
        if is_hub_id(source)
        else (
            f"detector.json names the model as it was found in training, {source!r}: others read that, and have to "
            f"name the model themselves (--model)",
        )
    )
    return Publication(repository, {CARD: card.encode(), **files}, str(trained.sha256), source, told)


def publish(what: Publication, *, private: bool = False, update: bool = False) -> str:
    """Makes the repository and puts the files into it, in one commit; gives the commit."""
    from huggingface_hub import CommitOperationAdd, get_token  # only here: help has to come at once

    if not get_token():
        raise UserError(
            "There is no token for the hub, so nothing can be published. Log in with hf auth login, or set HF_TOKEN."
        )
    api = hub_api()
    with hub_errors(what.repository, "published"):
        api.create_repo(what.repository, private=private, exist_ok=update)  # one that exists stays as public as it is
        if private and not api.model_info(what.repository).private:
            raise UserError(
                f"{what.repository!r} is on the hub already, and public; nothing was published. Make it private there, "
                f"choose another name, or leave out --private."
            )
        done = api.create_commit(
            what.repository,
            [CommitOperationAdd(name, content) for name, content in what.files.items()],
            commit_message=f"Detector {what.sha256[:12]}",
        )
    return str(done.oid)
