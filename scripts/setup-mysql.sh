#!/usr/bin/env bash
# Installs MariaDB for the tests if it is missing and apt-get is there. `--plan` only says so.
# The tests start the `mariadbd` in the PATH or in /usr/sbin, or the server that LOCKER_TEST_MYSQLD names.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
missing=()
PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null || missing+=(mariadb-server)
install_packages "${1:-}" ": install MariaDB 10.6 or newer" "${missing[*]:+mariadb}" ${missing[@]+"${missing[@]}"}
