#!/usr/bin/env bash
# Installs redis-server for the tests if it is missing and apt-get is there. `--plan` only says so.
# With LOCKER_TEST_REDIS_URL set, the behaviour tests use that server; the fault tests always start their own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
command -v redis-server >/dev/null ||
    install_packages "${1:-}" ": install Redis 6.2 or newer" redis-server redis-server
