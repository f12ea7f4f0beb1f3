"""`python -m anchorscope` is the command `anchorscope`."""

from anchorscope.cli.main import main

if __name__ == "__main__":
    main()
