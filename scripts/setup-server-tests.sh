#!/usr/bin/env bash
# Installs what is missing of what the examples of docs/server.md need, which a test runs (curl, openssl), and
# benches/server/run.sh (wrk, and Python for the crowd of waiters). The clients of the server's tests are in the
# environment of scripts/setup-python.sh.
set -euo pipefail
missing=()
for program in curl openssl wrk python3; do
    command -v $program >/dev/null || missing+=($program)
done
[ ${#missing[@]} -gt 0 ] || exit 0
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "missing: ${missing[*]}, which cannot be installed here" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >&2 || {
    apt-get update >&2
    apt-get install -y --no-install-recommends "${missing[@]}" >&2
}
