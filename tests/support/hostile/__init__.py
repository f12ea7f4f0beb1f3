"""Hostile and unlucky users: seeded cases, each a folder with files and a command, and one judge.

The same seed makes the same files and the same command. Every command runs in a forked child, so that a case costs
milliseconds and not an import of torch. What may happen is the same for all: one line and exit code 2 or a result, and
every file of the user's as it was.

    python tools/hostile.py --cases 10000 --seed 1
    python tools/hostile.py --replay question-files 17
"""
