#!/usr/bin/env bash
# Installs PostgreSQL and PgBouncer for the tests if they are missing and apt-get is there. `--plan` only says so.
# docs/reference/postgres.md lists the versions that are tested.
# The tests find `initdb` in /usr/lib/postgresql/*/bin, in the PATH, or in the folder LOCKER_TEST_POSTGRES_BIN.
set -euo pipefail
missing=()
if [ -z "${LOCKER_TEST_POSTGRES_BIN:-}" ] && ! command -v initdb >/dev/null &&
    ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
    missing+=(postgresql)
fi
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing+=(pgbouncer)
if [ ${#missing[@]} = 0 ]; then
    exit 0
fi
if [ "${1:-}" = --plan ]; then
    echo "apt-get install ${missing[*]} (the services that the packages start are stopped again)"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "${missing[*]}: missing, and cannot be installed here: install PostgreSQL 15 or 16 and PgBouncer" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >&2 || {
    apt-get update >&2
    apt-get install -y --no-install-recommends "${missing[@]}" >&2
}
# The packages start services of their own on the usual ports; the tests start theirs on free ones.
if command -v systemctl >/dev/null; then
    for service in "${missing[@]}"; do
        systemctl disable --now "$service" >/dev/null 2>&1 || true
    done
fi
if command -v pg_lsclusters >/dev/null; then
    pg_lsclusters --no-header | while read -r version name _ status _; do
        [[ $status != online* ]] || pg_ctlcluster "$version" "$name" stop -m fast >&2 || true
    done
fi
