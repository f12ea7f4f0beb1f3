"""`python -m anchorscope` is the command `anchorscope`: it handles signals before the slow imports begin."""

import sys

from anchorscope.cli.signals import STOPPED, deafen, exit_code, listen


def main() -> None:
    try:
        listen()
        from anchorscope.cli.main import main as command
    except KeyboardInterrupt as stop:
        if sys.stderr is not None:
            sys.stderr.write(f"{STOPPED}\n")
        deafen()
        sys.exit(exit_code(stop))
    command()


if __name__ == "__main__":
    main()
