"""What every command does alike: mistakes in one line, progress for long steps, JSON for programs.

Results go to standard output, everything else to standard error, so that `anchorscope … --json | jq` always works.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from anchorscope.errors import UserError
from anchorscope.progress import Progress, Silent
from anchorscope.screen.messages import console as console
from anchorscope.screen.messages import duration as duration
from anchorscope.screen.messages import harmless as harmless
from anchorscope.screen.messages import say as say
from anchorscope.screen.terminal_progress import TerminalProgress, clear_screen

STOPPED = "stopped; the same command goes on where it stopped"


def emit_json(record: Mapping[str, Any]) -> None:
    """The one JSON object on standard output. JSON has no NaN: a number that does not exist becomes null."""
    text = json.dumps(record, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))
    sys.stdout.write(json.dumps(json.loads(text, parse_constant=lambda _: None)) + "\n")
    sys.stdout.flush()


def listener(quiet: bool) -> Progress:
    """What a command passes to its long steps."""
    return Silent() if quiet else TerminalProgress()


@contextmanager
def user_errors(stopped: str = STOPPED) -> Iterator[None]:
    """A mistake of the user becomes one line and exit code 2, Ctrl-C one line and 130; our own mistakes pass."""
    try:
        try:
            yield
        finally:
            clear_screen()
    except UserError as error:
        say("error: " + " ".join(str(error).split()))
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        say(stopped)
        raise SystemExit(130) from None
