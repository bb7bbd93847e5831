#!/usr/bin/env bash
# Makes the virtual environment of the Python tests, with packages from PyPI, and prints where it is. `--plan` only says
# what would be installed. The package in `clients/python` needs Python 3.11 or newer.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
# The tests run in other folders than this one.
venv=$(cd "$target" && pwd)/python
# The first two are for the clients of the server's tests, the others for the package and its tests.
packages=(redis pyzmq maturin pytest pytest-timeout mypy 'pyright[nodejs]' gevent uvloop trio gunicorn celery fastapi httpx
    django)
modules=(redis zmq maturin pytest pytest_timeout mypy pyright gevent uvloop trio gunicorn celery fastapi httpx django)
is_complete() {
    "$venv/bin/python" - "${modules[@]}" 2>/dev/null <<'END'
import sys
from importlib.util import find_spec
sys.exit(sys.version_info < (3, 11) or not all(map(find_spec, sys.argv[1:])))
END
}
newest() {
    for python in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$python"
            return
        fi
    done
    echo "there is no Python 3.11 or newer" >&2
    return 1
}
if ! is_complete; then
    if [ "${1:-}" = --plan ]; then
        [ -x "$venv/bin/pip" ] || python3 -c 'import ensurepip, venv' 2>/dev/null ||
            install_packages --plan "" "" python3-venv
        echo "pip install ${packages[*]} (from PyPI, into $venv)"
        exit 0
    fi
    python=$(newest)
    "$venv/bin/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
        "$python" -m venv --clear "$venv" >&2 || {
        # Debian keeps the module apart.
        install_packages "" "" "" python3-venv
        "$python" -m venv --clear "$venv" >&2
    }
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-compile "${packages[@]}" >&2
fi
[ "${1:-}" = --plan ] || echo "export LOCKER_TEST_PYTHON=$venv/bin/python"
