#!/bin/sh
# Install the locked dependencies and the project (editable) into .venv. Run by make; it can be repeated.
set -eu

PYTHON=${PYTHON:-python3}
if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "kube-cpg needs Python 3.11 or newer; '$PYTHON' is $("$PYTHON" --version 2>&1 || true)." >&2
    echo "Name another one: make PYTHON=/path/to/python3.12 ..." >&2
    exit 1
fi

# Concurrent runs of make wait for each other.
if command -v flock >/dev/null 2>&1 && [ -z "${KUBE_CPG_SETUP_LOCKED:-}" ]; then
    KUBE_CPG_SETUP_LOCKED=1 exec flock pyproject.toml sh "$0"
fi

echo "Installing the locked dependencies into .venv ..."
[ -x .venv/bin/python ] || "$PYTHON" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
touch .venv/.ready
