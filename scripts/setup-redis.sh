#!/usr/bin/env bash
# Installs redis-server for the tests if it is missing and apt-get is there. `--plan` only says so.
# With LOCKER_TEST_REDIS_URL set, the behaviour tests use that server; the fault tests always start their own.
set -euo pipefail
if command -v redis-server >/dev/null; then
    exit 0
fi
if [ "${1:-}" = --plan ]; then
    echo "apt-get install redis-server (the service that the package starts is stopped again)"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "redis-server is missing and cannot be installed here: install Redis 6.2 or newer" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends redis-server >&2 || {
    apt-get update >&2
    apt-get install -y --no-install-recommends redis-server >&2
}
# The package starts a server of its own on the usual port; the tests start theirs on free ones.
if command -v systemctl >/dev/null; then
    systemctl disable --now redis-server >/dev/null 2>&1 || true
fi
