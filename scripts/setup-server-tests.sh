#!/usr/bin/env bash
# Installs what scripts/bench-server.sh needs and is missing: wrk, and Python for the crowd of waiters. The clients
# of the server's tests are in the environment of scripts/setup-python.sh.
set -euo pipefail
missing=()
command -v wrk >/dev/null || missing+=(wrk)
command -v python3 >/dev/null || missing+=(python3)
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
