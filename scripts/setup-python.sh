#!/usr/bin/env bash
# Makes the virtual environment of the Python clients in the tests, with `redis` and `pyzmq` from PyPI, and prints where
# it is. `--plan` only says what would be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
# The tests run in other folders than this one.
venv=$(cd "$target" && pwd)/python
packages=(redis pyzmq)
if ! "$venv/bin/python" -c 'import redis, zmq' 2>/dev/null; then
    if [ "${1:-}" = --plan ]; then
        [ -x "$venv/bin/pip" ] || python3 -c 'import ensurepip, venv' 2>/dev/null || echo "apt-get install python3-venv"
        echo "pip install ${packages[*]} (from PyPI, into $venv)"
        exit 0
    fi
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || {
        # Debian keeps the module apart.
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
        DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3-venv >&2
        python3 -m venv "$venv" >&2
    }
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi
[ "${1:-}" = --plan ] || echo "export LOCKER_TEST_PYTHON=$venv/bin/python"
