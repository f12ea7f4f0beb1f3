"""What a stranger sees first: a short README, a citation, a changelog, files for other machines that fit ours."""

import re
import tomllib
from pathlib import Path

import pytest

from repo import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
PINS = dict(
    re.findall(
        r"^([\w.-]+)==(\S+)$",
        (ROOT / "constraints.txt").read_text(encoding="utf-8"),
        re.M,
    )
)
TARGETS = set(
    re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
)
PUBLIC = {"pypi.org", "files.pythonhosted.org"}
"""Where a lock file may point."""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docker").glob("*.Dockerfile")), ids=lambda path: path.name
)
def test_images_are_made_of_what_is_here(path: Path) -> None:
    """They cannot be built here, so at least every step is one that docker knows and every file is in the context."""
    lines = [
        line
        for line in re.sub(r"\\\n", " ", path.read_text(encoding="utf-8")).splitlines()
        if line.strip()
    ]
    steps = [line.split(maxsplit=1) for line in lines if not line.startswith("#")]
    assert {word for word, _ in steps} <= {
        "FROM",
        "RUN",
        "COPY",
        "ENV",
        "WORKDIR",
        "ENTRYPOINT",
        "CMD",
    }
    assert steps[0][0] == "FROM"
    python = re.fullmatch(r"python:(\d+\.\d+)-slim", steps[0][1])
    assert python, steps[0]
    assert f"Programming Language :: Python :: {python[1]}" in PROJECT["classifiers"]
    allowed = set(re.findall(r"^!(\S+)$", read(".dockerignore"), re.M))
    for word, rest in steps:
        if word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in allowed, f"{source} is not in the build's context"
        if word == "RUN" and "pip install" in rest:
            pinned = (
                "--constraint /tmp/constraints.txt" in rest
                or "grep '^torch==' /tmp/constraints.txt" in rest
            )
            assert pinned, rest
        for extra in re.findall(r"/src\[(\w+)\]", rest):
            assert extra in PROJECT["optional-dependencies"]
    assert any("download.pytorch.org/whl/cpu" in rest for _, rest in steps) == (
        path.name == "cpu.Dockerfile"
    )


def test_the_ci_file_runs_our_targets_on_all_pythons_and_both_processors() -> None:
    text = read(".github/workflows/ci.yml")
    assert set(re.findall(r"run: make (\w+)", text)) <= TARGETS
    assert "run: make test" in text
    told = {
        name.rsplit(" ", 1)[1]
        for name in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", name)
    }
    assert set(re.findall(r'"(3\.\d+)"', text)) == told
    assert "-arm]" in text
    assert re.search(r"\bubuntu-24\.04\b", text)


def test_the_lock_file_has_our_versions_from_the_public_index() -> None:
    lock = tomllib.loads(read("uv.lock"))
    found: dict[str, set[str]] = {}
    for package in lock["package"]:
        found.setdefault(package["name"], set()).add(package["version"])
        files = [
            *package.get("wheels", []),
            *([package["sdist"]] if "sdist" in package else []),
        ]
        addresses = [one["url"] for one in files] + [
            value for value in package["source"].values() if "://" in value
        ]
        for address in addresses:
            assert re.match(r"https://([^/]+)/", address)[1] in PUBLIC, address  # type: ignore[index]
    wanted = {
        re.split(r"[><=\[]", one)[0]
        for extra in PROJECT["optional-dependencies"].values()
        for one in extra
    }
    wanted |= {re.split(r"[><=\[]", one)[0] for one in PROJECT["dependencies"]}
    for name in wanted:
        assert found[name] == {PINS[name]}, f"{name}: run make lock"
