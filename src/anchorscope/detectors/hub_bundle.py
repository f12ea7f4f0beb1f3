"""Bundles on a hub of models: `hub:USER/NAME`, or `hub:USER/NAME@COMMIT` for one version of it, and no other ever.

Only the two files of a bundle are fetched, JSON and safetensors, none larger than a bundle may be; nothing that comes
from there is run. What was fetched once is used from the cache of huggingface_hub where the hub cannot be reached.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from anchorscope.errors import UserError

PREFIX = "hub:"
"""How the place of a bundle on the hub begins."""
_PLACE = re.compile(r"([\w.-]+/[\w.-]+?)(?:@([\w./-]+))?")
_HOW = "Write hub:USER/NAME, or hub:USER/NAME@COMMIT"


def hub_folder(place: str, names: Sequence[str], most_bytes: int) -> Path:
    """The folder of the cache that holds these files of a repository, fetched if they are not there."""
    named = _PLACE.fullmatch(place.removeprefix(PREFIX))
    if named is None:
        raise UserError(f"{place!r} names no repository of the hub. {_HOW}.")
    repository, revision = named.groups()
    api = hub_api()
    try:
        found = _version(api, place, repository, revision, names, most_bytes)
    except _NoHub as error:
        return _kept(place, repository, revision, names, error)
    with hub_errors(place):
        files = [Path(api.hf_hub_download(repository, name, revision=found)) for name in names]
    _remember(files[0].parents[2], revision or "main", found)
    return files[0].parent


def hub_api() -> Any:
    """The hub's client: the address that HF_ENDPOINT gives, the token that HF_TOKEN or `hf auth login` gave."""
    from huggingface_hub import HfApi  # only here: help has to come at once
    from huggingface_hub.utils import disable_progress_bars

    disable_progress_bars()
    return HfApi(endpoint=os.environ.get("HF_ENDPOINT"), library_name="anchorscope")


def _version(api: Any, place: str, repository: str, revision: str | None, names: Sequence[str], most_bytes: int) -> str:
    """The commit that is meant; its files are there and small."""
    with hub_errors(place):
        info = api.model_info(repository, revision=revision, files_metadata=True)
    sizes = {one.rfilename: one.size for one in info.siblings or ()}
    missing = [name for name in names if name not in sizes]
    if missing:
        raise UserError(f"{place!r} is no detector: it has no {missing[0]}. Name what detector push has published.")
    if sum(sizes[name] or 0 for name in names) > most_bytes:
        raise UserError(f"{place!r} has more than {most_bytes / 1e6:g} MB, which no detector needs; it is not fetched.")
    return str(info.sha)


def _kept(place: str, repository: str, revision: str | None, names: Sequence[str], why: UserError) -> Path:
    """What the cache has of it, where the hub cannot be reached."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, name, revision=revision) for name in names]
    if not all(isinstance(one, str) for one in found):
        raise why
    return Path(str(found[0])).parent


def _remember(cache: Path, revision: str, commit: str) -> None:
    """Writes into the cache which commit a name stands for, as the client does where it is given the name."""
    if revision == commit or not all(re.fullmatch(r"\w[\w.-]*", part) for part in revision.split("/")):
        return
    place = cache / "refs" / revision
    with suppress(OSError):  # a cache that others own is read, and that is all
        if place.is_file() and place.read_text() == commit:
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        half = place.with_name(f"{place.name}.{os.getpid()}.tmp")
        half.write_text(commit)
        half.replace(place)


class _NoHub(UserError):
    """The hub cannot be reached."""


@contextmanager
def hub_errors(place: str, doing: str = "read") -> Iterator[None]:
    """What goes wrong with the hub, in one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client, its transport and the cache raise dozens of unrelated types
        code = getattr(getattr(error, "response", None), "status_code", None)
        raise _told(place, doing, code, error) from None


def _told(place: str, doing: str, code: int | None, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    if type(error).__name__ == "HFValidationError":
        return UserError(f"{place!r} is no name of a repository ({reason}). {_HOW}.")
    if code == 401:
        return UserError(
            f"The hub does not know you (401), so {place!r} cannot be {doing}. Log in with hf auth login, or set "
            f"HF_TOKEN to a token that is valid."
        )
    if code == 403:
        return UserError(
            f"The hub does not let you (403): {place!r} cannot be {doing}. Use a token that has the right, or a name "
            f"of your own."
        )
    if code == 404:
        return UserError(
            f"The hub has no {place!r} that you may see (404). Check the name; a private one needs a token (HF_TOKEN)."
        )
    if code == 409:
        return UserError(f"{place!r} is on the hub already (409). Choose another name, or add --update.")
    if code is not None:
        return UserError(f"The hub answered with {code}: {place!r} cannot be {doing} ({reason}). Try again later.")
    return _NoHub(
        f"The hub cannot be reached, so {place!r} cannot be {doing} ({reason}). Check the connection, HF_ENDPOINT and "
        f"HF_HUB_OFFLINE."
    )
