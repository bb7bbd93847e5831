#!/usr/bin/env bash
# Installs etcd, and faketime for wall clocks that differ, for the tests if they are missing and apt-get is there.
# `--plan` only says so.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
missing=()
service=
command -v etcd >/dev/null || { missing+=(etcd-server) && service=etcd; }
command -v faketime >/dev/null || missing+=(faketime)
install_packages "${1:-}" ": install etcd 3.4 or newer and faketime" "$service" ${missing[@]+"${missing[@]}"}
