"""How a command ends that is stopped, or that cannot write: one line at most, the right exit code, no traceback."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

STOPPED = "stopped; the same command goes on where it stopped\n"
WORKING = """
    import os, signal, sys, time
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    from anchorscope.cli import main as door, inspect

    def install(*_):
        os.write(2, b"working\\n")
        try:
            time.sleep(60)
        finally:
            time.sleep({ending})

    inspect.installed_path = install
    sys.argv = ["anchorscope", "models"]
    door.main()
"""


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """A program that is started in the background is not told of Ctrl-C, nor are those that it starts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def program(code: str, **more: object) -> subprocess.Popen[str]:
    order = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.Popen(
        order, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )  # type: ignore[call-overload]


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    with process:
        _, told = process.communicate(timeout=120)
    return process.returncode, told


@pytest.mark.parametrize(
    ("name", "times"), [("SIGINT", 1), ("SIGINT", 30), ("SIGTERM", 3), ("SIGHUP", 2)]
)
def test_every_signal_ends_calmly_however_often_it_comes(name: str, times: int) -> None:
    process = program(WORKING.format(ending=0.2))
    assert process.stderr is not None
    assert process.stderr.readline() == "working\n"
    number = getattr(signal, name)
    for _ in range(times):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
    assert ended(process) == (128 + number, STOPPED)


def test_a_signal_during_the_imports_ends_calmly() -> None:
    code = """
        import os, signal, sys

        class Finder:
            def find_spec(self, name, *_):
                if name == "rich":
                    for _ in range(5):
                        os.kill(os.getpid(), signal.SIGTERM)

        sys.meta_path.insert(0, Finder())
        from anchorscope.__main__ import main
        main()
    """
    assert ended(program(code)) == (128 + signal.SIGTERM, STOPPED)


def test_a_signal_while_an_object_is_removed_is_not_lost() -> None:
    code = """
        import os, signal, sys, time
        from anchorscope.cli import main as door, inspect

        class Leaving:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.1)

        def install(*_):
            Leaving()
            time.sleep(60)

        inspect.installed_path = install
        sys.argv = ["anchorscope", "models"]
        door.main()
    """
    assert ended(program(code)) == (128 + signal.SIGINT, STOPPED)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_last_line_ends_calmly(name: str) -> None:
    code = """
        import os, signal
        from anchorscope import __main__
        from anchorscope.cli import main as door, signals
        deafen = signals.deafen

        def late():
            os.kill(os.getpid(), signal.{name})
            deafen()

        door.app, signals.deafen = lambda **_: None, late
        __main__.main()
    """.replace("{name}", name)
    assert ended(program(code)) == (128 + getattr(signal, name), STOPPED)


def test_using_the_package_changes_no_handler() -> None:
    code = """
        import signal
        import anchorscope, anchorscope.api, anchorscope.cli.main

        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    """
    assert ended(program(code)) == (0, "")


def command(
    redirected: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command behind a shell's redirections."""
    line = f'exec "$0" -m anchorscope "$@" {redirected}'
    order = ["bash", "-c", line, sys.executable, *arguments]
    return subprocess.run(
        order,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_result_that_cannot_be_written_is_one_line_and_exit_code_2() -> None:
    done = command(">/dev/full", "--version")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "error: The result could not be written to standard output ("
    )
    assert done.stderr.count("\n") == 1


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    order = [sys.executable, "-m", "anchorscope", "--version"]
    done = subprocess.run(
        order, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=120
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.parametrize("redirected", ["2>/dev/full", "2>&-"])
def test_messages_that_cannot_be_written_change_nothing(redirected: str) -> None:
    done = command(redirected, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("anchorscope ")
    assert command(redirected, "modls").returncode == 2


def test_what_the_caller_has_switched_off_stays_so() -> None:
    code = """
        import signal
        from anchorscope.cli import signals

        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signals.listen()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signals._end
    """
    assert ended(program(code)) == (0, "")
