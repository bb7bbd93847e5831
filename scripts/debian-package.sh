#!/usr/bin/env bash
# Builds the Debian package of the program, with the unit of systemd, completions and manual pages. Needs cargo-deb
# (cargo install --locked cargo-deb). Prints the path of the package.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --package locker-server --features redis-tls,postgres-tls,etcd-tls,mysql-tls,zookeeper-tls >&2
scripts/generate-package-files.sh
cargo deb --package locker-server --no-build
