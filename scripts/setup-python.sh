#!/usr/bin/env bash
# Makes the virtual environment in which the Python clients of the tests run, with PyPI's `redis` and `pyzmq`, and says where it
# is.
set -euo pipefail
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
# The tests run in other folders than this one.
venv=$(cd "$target" && pwd)/python
packages=(redis pyzmq)
if ! "$venv/bin/python" -c 'import redis, zmq' 2>/dev/null; then
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv" >&2 || {
        # Debian keeps the module apart.
        [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 1
        apt-get install -y --no-install-recommends python3-venv >&2
        python3 -m venv "$venv" >&2
    }
    "$venv/bin/pip" install --quiet --disable-pip-version-check "${packages[@]}" >&2
fi
echo "export LOCKER_TEST_PYTHON=$venv/bin/python"
