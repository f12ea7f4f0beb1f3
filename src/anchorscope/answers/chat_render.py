"""A chat template's text for a conversation: rendered in a process of its own (`chat_child`), within limits.

A template comes with a model, from a stranger. Whatever it does, a limit of size, time and memory ends it in one line.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from anchorscope.answers import chat_child

LONGEST_SOURCE = 2**20
"""Characters that a template may have; the longest ones of models that are in use have some 20,000."""
_PATIENCE = 60  # seconds on a machine that has no processor left; the child's own limit is processor time
_DATE = "26 Jul 2024"  # Llama's own, for when no clock is at hand: the same recipe asks the same tomorrow


class TemplateRefused(Exception):
    """Why a template gives no text."""


def render_chat(source: str, turns: Sequence[Mapping[str, str]], variables: Mapping[str, Any]) -> str:
    """What the template makes of the turns, up to where the model goes on; `variables` are what else it may read."""
    if len(source) > LONGEST_SOURCE:
        raise TemplateRefused(f"it has {len(source):,} characters, at most {LONGEST_SOURCE:,} are read")
    given = {**variables, "messages": list(turns), "tools": None, "documents": None, "add_generation_prompt": True}
    request = {"source": source, "variables": given, "date": _DATE, "path": sys.path}
    return _rendered(json.dumps(request, default=str))


@lru_cache(maxsize=8)  # asked for again by every step that writes prompts
def _rendered(request: str) -> str:
    # No site packages and no environment: the request says where modules are.
    command = [sys.executable or "python3", "-I", "-S", chat_child.__file__]
    try:
        done = subprocess.run(command, input=request.encode(), capture_output=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise TemplateRefused(f"it does not end within {_PATIENCE} seconds") from None
    except OSError as error:
        raise TemplateRefused(f"the process that renders it cannot be started: {error.strerror}") from None
    if sys.platform != "win32" and done.returncode == -signal.SIGXCPU:
        raise TemplateRefused(f"it takes more than {chat_child.SECONDS} seconds")
    if done.returncode != 0:
        raise TemplateRefused("the process that renders it ended without an answer")
    answer: dict[str, str] = json.loads(done.stdout)
    if "error" in answer:
        raise TemplateRefused(answer["error"])
    return answer["text"]
