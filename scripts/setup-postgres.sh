#!/usr/bin/env bash
# Installs PostgreSQL and PgBouncer for the tests if they are missing and apt-get is there. `--plan` only says so.
# docs/reference/postgres.md lists the versions that are tested.
# The tests find `initdb` in /usr/lib/postgresql/*/bin, in the PATH, or in the folder LOCKER_TEST_POSTGRES_BIN.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
missing=()
if [ -z "${LOCKER_TEST_POSTGRES_BIN:-}" ] && ! command -v initdb >/dev/null &&
    ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
    missing+=(postgresql)
fi
PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null || missing+=(pgbouncer)
install_packages "${1:-}" ": install PostgreSQL 15 or 16 and PgBouncer" "${missing[*]-}" ${missing[@]+"${missing[@]}"}
# The package starts its cluster without systemd, too.
if [ ${#missing[@]} -gt 0 ] && [ "${1:-}" != --plan ] && command -v pg_lsclusters >/dev/null; then
    pg_lsclusters --no-header | while read -r version name _ status _; do
        [[ $status != online* ]] || pg_ctlcluster "$version" "$name" stop -m fast >&2 || true
    done
fi
