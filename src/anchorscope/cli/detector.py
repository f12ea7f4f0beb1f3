"""`anchorscope detector`: the card of a saved detector, and a saved detector for others, on a hub of models."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from anchorscope.cli.help_texts import AsJson, PlainCommand, Quiet, in_help
from anchorscope.cli.terminal import emit_json, emit_text, harmless, loading, say
from anchorscope.detectors.bundle_files import bundle_files, checked_record
from anchorscope.errors import UserError

EXAMPLES = (
    ("what it was trained on, how good it is", "anchorscope detector card runs/demo/detectors/anchor"),
    ("publish it; what is sent is shown before", "anchorscope detector push BUNDLE USER/NAME --private"),
    ("use it elsewhere", 'anchorscope score --detector hub:USER/NAME "Who wrote Emma?"'),
)
"""What people type first, and what for."""
GROUP = typer.Typer(
    no_args_is_help=True,
    epilog=in_help(EXAMPLES),
    pretty_exceptions_enable=False,
    help="Show the card of a saved detector, or publish it on a hub of models.",
)
_Bundle = Annotated[
    Path, typer.Argument(metavar="BUNDLE", help="The folder that anchorscope detect has written, or hub:USER/NAME.")
]


@GROUP.command("card", cls=PlainCommand, epilog=in_help(EXAMPLES[:1]))
def card(bundle: _Bundle) -> None:
    """Print the card of a saved detector, as Markdown: data, quality, shifts, limits, how to load it, sha256."""
    files = bundle_files(bundle)
    checked_record(files, str(bundle))
    with loading("torch"):
        from anchorscope.detecting.detector_card import card_text
        from anchorscope.detectors.bundle import unpack

    for line in card_text(unpack(files, str(bundle)), str(bundle)).splitlines():
        emit_text(harmless(line))


@GROUP.command("push", cls=PlainCommand, epilog=in_help(EXAMPLES[1:]))
def push(
    bundle: _Bundle,
    repository: Annotated[str, typer.Argument(metavar="REPO_ID", help="Where to: USER/NAME.")],
    private: Annotated[bool, typer.Option("--private", help="Only you, or your organisation, may see it.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Put a new version into a repository that exists.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Publish without asking.")] = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Publish a saved detector with its card: the two files of the bundle and README.md, nothing else."""
    checked_record(bundle_files(bundle), str(bundle))
    with loading("torch", quiet):
        from anchorscope.detecting.publish import publication, publish

    what = publication(bundle, repository)
    said = quiet and yes
    seen = "private" if private else "public, or private if it is that already" if update else "public"
    say(f"{seen}, as {repository}:", said)
    for name, content in what.files.items():
        say(f"  {name}: {len(content):,} bytes", said)
    say(f"  sha256 of the bundle: {what.sha256}", said)
    say(f"  model that these files name: {harmless(what.model)}", said)
    for line in what.told:
        say(f"warning: {line}", said)
    if not yes:
        _ask(repository)
    commit = publish(what, private=private, update=update)
    if as_json:
        return emit_json({"repository": repository, "commit": commit, "sha256": what.sha256, "files": [*what.files]})
    emit_text(f"hub:{repository}@{commit}")


def _ask(repository: str) -> None:
    """Nothing is published that nobody has agreed to."""
    if not _somebody_is_there():
        raise UserError(f"Nothing was published as {repository!r}: nobody can be asked here; add --yes.")
    if not typer.confirm("Publish this?", err=True):
        raise UserError(f"Nothing was published as {repository!r}.")


def _somebody_is_there() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
