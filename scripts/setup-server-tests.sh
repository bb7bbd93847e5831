#!/usr/bin/env bash
# Installs the missing programs of the examples in docs/reference/http.md and docs/how-to/run-the-server.md (curl,
# openssl), which tests run, and of the server's benchmark benches/server/run.sh (wrk, python3), what slows down the
# disk of a process (strace), and what sets up the network of a client that vanishes (ip). `--plan` only says so. The
# Python clients of the server's tests are installed by scripts/setup-python.sh.
set -euo pipefail
missing=()
for program in curl openssl strace wrk python3; do
    command -v $program >/dev/null || missing+=($program)
done
command -v ip >/dev/null || missing+=(iproute2)
command -v pgrep >/dev/null || missing+=(procps)
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "${1:-}" = --plan ]; then
    echo "apt-get install ${missing[*]}"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "missing, and cannot be installed here: ${missing[*]}" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >&2 || {
    apt-get update >&2
    apt-get install -y --no-install-recommends "${missing[@]}" >&2
}
