#!/usr/bin/env bash
# Installs the missing programs of the examples in docs/reference/http.md and docs/how-to/run-the-server.md (curl,
# openssl), which tests run, the shells and the formatter that read completions and manual pages (zsh, fish, mandoc),
# and the alerts (promtool), and of the server's benchmark benches/server/run.sh (wrk, python3), what slows down the
# disk of a process (strace), and what sets up the network of a client that vanishes (ip). `--plan` only says so. The
# Python clients of the server's tests are installed by scripts/setup-python.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
missing=()
service=
for program in curl openssl strace wrk python3 zsh fish mandoc; do
    command -v $program >/dev/null || missing+=($program)
done
command -v ip >/dev/null || missing+=(iproute2)
# The tests need promtool alone.
command -v promtool >/dev/null || { missing+=(prometheus) && service=prometheus; }
command -v pgrep >/dev/null || missing+=(procps)
install_packages "${1:-}" "" "$service" ${missing[@]+"${missing[@]}"}
