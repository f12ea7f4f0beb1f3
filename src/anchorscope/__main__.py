"""`python -m anchorscope` is the command `anchorscope`: it handles signals before the slow imports begin, and until the
very end."""

import sys

from anchorscope.cli.signals import STOPPED, deafen, listen


def main() -> None:
    try:
        listen()
        from anchorscope.cli.main import main as command

        command()
    except KeyboardInterrupt as stop:
        if sys.stderr is not None:
            sys.stderr.write(f"{STOPPED}\n")
        deafen()
        sys.exit(getattr(stop, "exit_code", 130))


if __name__ == "__main__":
    main()
