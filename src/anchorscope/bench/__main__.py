"""`python -m anchorscope.bench`: `anchorscope bench` with nothing but torch, transformers, NumPy, SciPy and
scikit-learn.
"""

import argparse
import sys
import types
from pathlib import Path
from typing import NoReturn, get_type_hints

from anchorscope.bench.options import Options, about, refuse_no_folder
from anchorscope.errors import UserError
from anchorscope.json_text import to_json
from anchorscope.options import split_list


class _OneLine(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}. See: {self.prog} --help\n")


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints the table or the JSON object, and returns the exit code."""
    parser = _OneLine(
        prog="python -m anchorscope.bench",
        description="Speed here against other ways to do the work.",
    )
    for name, kind in get_type_hints(Options).items():
        read = (
            int
            if isinstance(kind, types.UnionType)
            else kind
            if kind in (int, float, str)
            else split_list
        )
        parser.add_argument(f"--{name.replace('_', '-')}", type=read, help=about(name))
    parser.add_argument(
        "--json", action="store_true", help="One JSON object on standard output."
    )
    parser.add_argument("--quiet", action="store_true", help="No progress.")
    parser.add_argument(
        "--out", type=Path, help="Also write the JSON object to this file."
    )
    given = vars(parser.parse_args(arguments))
    as_json, quiet, out = given.pop("json"), given.pop("quiet"), given.pop("out")
    try:
        options = Options(
            **{name: value for name, value in given.items() if value is not None}
        )
        refuse_no_folder(out)
        from anchorscope.bench.session import (
            render,
            run_benchmark,
        )  # only here: help and mistakes have to come at once

        note = (lambda text: None) if quiet else _print_to_stderr
        record = run_benchmark(options, note)
    except UserError as error:
        sys.stderr.write("error: " + " ".join(str(error).split()) + "\n")
        return 2
    text = to_json(record)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")
    sys.stdout.write((text if as_json else render(record)) + "\n")
    return 0


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
