#!/bin/sh
# Builds wheel and sdist into the folder $1, looks at what is in them, and tries the wheel in an environment of its own.
# The wheel is installed without its dependencies and finds them in the environment that builds: no second torch.
set -eu
out=${1:?folder for the distributions}
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
rm -rf "$out"

"$python" -m venv "$room/build"
"$room/build/bin/pip" install --quiet --disable-pip-version-check --constraint "$here/constraints.txt" build twine
"$room/build/bin/python" -m build --outdir "$out" "$here"
"$room/build/bin/python" -m twine check --strict "$out"/*
"$python" "$here/tools/look_into_dist.py" "$out"

# --help and --version need these few, and nothing that is large.
"$python" -m venv "$room/try"
"$room/try/bin/pip" install --quiet --disable-pip-version-check --constraint "$here/constraints.txt" \
  typer rich pydantic tomli-w numpy jaxtyping platformdirs filelock
"$room/try/bin/pip" install --quiet --disable-pip-version-check --no-deps "$out"/*.whl
cd "$room"
"$room/try/bin/anchorscope" --version
"$room/try/bin/anchorscope" --help > "$room/help"
"$room/try/bin/anchorscope" run --help > "$room/help"
echo "wheel and sdist are whole"
