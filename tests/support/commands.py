"""Commands in this process, as a user types them."""

from click.testing import Result
from typer.testing import CliRunner

from anchorscope.cli.main import app


def invoke(*words: object, typed: str = "") -> Result:
    """`anchorscope` with these words; `typed` is its standard input."""
    return CliRunner().invoke(
        app, [*map(str, words)], prog_name="anchorscope", input=typed
    )
