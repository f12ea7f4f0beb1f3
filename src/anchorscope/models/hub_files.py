"""A model of the hub, brought into the hub's cache file by file; after that it is a folder like any other.

Only the repository that the user named is asked, and only for what is used: settings and tokenizer first, weights once
these have been looked at. Nothing that the files themselves name is fetched.
"""

from pathlib import Path

from anchorscope.errors import UserError
from anchorscope.models.weight_files import INDEX, SINGLE, weight_names

_SMALL = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken")
_CODE = ("*.py",)


def fetch_settings(source: str, with_code: bool) -> Path:
    """The folder of a hub id's settings and tokenizer; its own code only where it may run."""
    folder = _fetch(source, [*_SMALL, *(_CODE if with_code else ())], None)
    if not (folder / "config.json").is_file():
        raise UserError(f"Model {source!r} has no config.json on the hub; name a model that transformers can load.")
    return folder


def fetch_weights(source: str, folder: Path) -> None:
    """The weights, into the same folder."""
    if not (folder / SINGLE).exists():
        _fetch(source, [SINGLE], folder.name)
    if not (folder / SINGLE).exists() and (folder / INDEX).exists():
        _fetch(source, weight_names(folder), folder.name)


def _fetch(source: str, names: list[str], commit: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=commit, allow_patterns=names, ignore_patterns=["*/*"]))
    except Exception as error:  # a wrong name, no network, no permission, no such file in the cache
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        raise UserError(
            f"Model {source!r} cannot be read: {reason.rstrip('.')}. Check the name, the network and the hub's cache."
        ) from error
