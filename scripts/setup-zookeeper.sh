#!/usr/bin/env bash
# Installs ZooKeeper and Java for the tests if they are missing and apt-get is there. `--plan` only says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
missing=()
[ -e /usr/share/java/zookeeper.jar ] || [ -n "${LOCKER_TEST_ZOOKEEPER:-}" ] || missing+=(zookeeper)
command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
install_packages "${1:-}" ": install ZooKeeper 3.6 or newer and Java" "" ${missing[@]+"${missing[@]}"}
