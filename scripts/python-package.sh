#!/usr/bin/env bash
# Builds the Python package: an sdist, and a wheel for this platform and every Python from 3.11 on, in `target/wheels`.
#
#   scripts/python-package.sh                         builds both, and imports the wheel in a new environment
#   scripts/python-package.sh --zig --target T        builds the wheel for another platform; needs `pip install ziglang`
#
# Publishing, once the version in Cargo.toml is the one to be published:
#
#   scripts/python-package.sh && target/python/bin/python -m pip install twine
#   target/python/bin/python -m twine upload target/wheels/*
#
# That has the wheel of this platform only. The workflow `wheels.yml` builds those of all platforms.
set -euo pipefail
cd "$(dirname "$0")/.."
eval "$(scripts/setup-python.sh)"
target=${CARGO_TARGET_DIR:-target}
out=$target/wheels
rm -rf "$out"
"$LOCKER_TEST_PYTHON" -m maturin sdist -m clients/python/Cargo.toml -o "$out"
"$LOCKER_TEST_PYTHON" -m maturin build --release --locked --strip -m clients/python/Cargo.toml -o "$out" "$@"
ls -l "$out"
if [ $# = 0 ]; then
    fresh=$(mktemp -d)
    trap 'rm -rf "$fresh"' EXIT
    "$LOCKER_TEST_PYTHON" -m venv "$fresh"
    "$fresh/bin/pip" install --quiet --disable-pip-version-check --no-index "$out"/*.whl
    (cd "$fresh" && bin/python -c 'import locker
with locker.Locker("memory://").lock("a") as guard:
    print("locker", locker.__version__, guard)')
fi
