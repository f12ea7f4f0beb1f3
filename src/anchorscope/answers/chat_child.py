"""Renders a chat template in a process of its own; run as a script, with a request on standard input.

A template is a program that comes with a model. jinja2's sandbox keeps it from files and from Python's inside, not from
taking all time and memory: so this process may use a little of each, opens no file once it has begun, and ends with
whoever exceeds that. It renders as transformers does: the same options, tags, filters and functions, but with a clock
that stands still. It imports nothing of ours, so that it starts in a tenth of a second.
"""

import contextlib
import json
import sys
from typing import Any

MEMORY = 512 * 2**20
"""Bytes of address space; the interpreter with jinja2 takes less than a tenth of it."""
SECONDS = 2
"""Of processor time; a template takes a hundredth."""
LONGEST = 2**20
"""Characters that a template may write."""


def limit_this_process() -> None:
    """From here on: little memory and time, no new file, nothing written to one, no core left behind.

    Windows has no such limits, and macOS none of memory: there only whoever started this process ends it in time.
    """
    if sys.platform == "win32":
        return
    import resource
    import time

    limits = {
        resource.RLIMIT_AS: MEMORY,
        resource.RLIMIT_CPU: int(time.process_time()) + SECONDS,
        resource.RLIMIT_NOFILE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
    }
    for kind, value in limits.items():
        _, most = resource.getrlimit(kind)
        least = value if most == resource.RLIM_INFINITY else min(value, most)
        with contextlib.suppress(ValueError, OSError):  # the system does not know it
            resource.setrlimit(kind, (least, most))  # the soft one: at the hard limit of time SIGKILL would come


def environment(date: str) -> Any:
    """What transformers renders chat templates in; `date` is what the clock says."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.runtime import Macro
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Marks what the model wrote, for those who train; here it only shows its content."""

        tags = {"generation"}  # noqa: RUF012 - jinja2's own way to name them

        def parse(self, parser: Parser) -> nodes.Node:
            """The content, as a block of its own."""
            line = next(parser.stream).lineno
            content = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.CallBlock(self.call_method("content_of"), [], [], content).set_lineno(line)

        def content_of(self, caller: Macro) -> str:
            """What the block writes."""
            return caller()

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(
        value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = to_json
    made.globals |= {"raise_exception": refuse, "strftime_now": lambda format: date}
    return made


def import_all() -> None:
    """Loads, while files can still be opened, what jinja2 and Python load when a template first needs it."""
    import jinja2.constants
    import jinja2.debug  # noqa: F401

    environment("").from_string("{{ 'a\\n' | wordwrap }}").render()


def rendered(request: dict[str, Any]) -> dict[str, str]:
    """The text, or why there is none."""
    try:
        text = environment(request["date"]).from_string(request["source"]).render(request["variables"])
    except MemoryError:
        return {"error": f"it asks for more than {MEMORY // 2**20} MB of memory"}
    except RecursionError:
        return {"error": "it is nested too deeply, or calls itself without end"}
    except Exception as error:  # whatever a template makes jinja2 say
        return {"error": (str(error).strip() or type(error).__name__).splitlines()[0][:200]}
    return {"text": text} if len(text) <= LONGEST else {"error": f"it writes {len(text):,} characters"}


def main() -> None:
    """Reads a request, answers it."""
    request = json.load(sys.stdin)
    sys.path[:] = request["path"]
    import_all()
    limit_this_process()
    sys.stdout.write(json.dumps(rendered(request)))


if __name__ == "__main__":
    main()
