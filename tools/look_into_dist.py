"""What a wheel and an sdist must hold, and must not: `python tools/look_into_dist.py dist`.

Every file of the package that git knows is in both, templates, scripts, the atlas and the planted weights among them;
the sdist builds the same wheel again, so it has the project's files too; neither has caches, runs or leftovers.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BESIDE = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "CITATION.cff",
    "constraints.txt",
    "Makefile",
)
"""What an sdist has beside the package."""
NEVER = (
    "__pycache__",
    ".pyc",
    "anchorscope/runs/",
    ".venv/",
    ".DS_Store",
    "site/index.html",
)
LARGEST = 5_000_000
"""Bytes: more than that would be weights or runs that slipped in."""


def tracked(folder: str) -> set[str]:
    """The files of a folder that belong to the project."""
    told = subprocess.run(
        ["git", "ls-files", folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return set(told.split())


def main(folder: Path) -> int:
    """Tells what is missing or too much; the exit code."""
    wheel, sdist = next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    package = tracked("src/anchorscope")
    wrong = [
        f"not in the wheel: {name}"
        for name in sorted(package)
        if name.removeprefix("src/") not in in_wheel
    ]
    wrong += [
        f"not in the sdist: {name}"
        for name in sorted(package | set(BESIDE))
        if name not in in_sdist
    ]
    wrong += [
        f"not for a release: {name}"
        for name in sorted(in_wheel | in_sdist)
        if any(one in name for one in NEVER)
    ]
    wrong += [
        f"{path.name} has {path.stat().st_size:,} bytes"
        for path in (wheel, sdist)
        if path.stat().st_size > LARGEST
    ]
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    sizes = ", ".join(
        f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in (wheel, sdist)
    )
    sys.stdout.write(f"{len(package)} files of the package in both; {sizes}\n")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
