#!/usr/bin/env bash
# Installs etcd, and faketime for wall clocks that differ, for the tests if they are missing and apt-get is there.
# `--plan` only says so.
set -euo pipefail
missing=()
command -v etcd >/dev/null || missing+=(etcd-server)
command -v faketime >/dev/null || missing+=(faketime)
if [ ${#missing[@]} = 0 ]; then
    exit 0
fi
note=
[[ " ${missing[*]} " != *" etcd-server "* ]] || note=" (the service that the package starts is stopped again)"
if [ "${1:-}" = --plan ]; then
    echo "apt-get install ${missing[*]}$note"
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "${missing[*]}: missing, and cannot be installed here: install etcd 3.4 or newer and faketime" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get install -y --no-install-recommends "${missing[@]}" >&2 || {
    apt-get update >&2
    apt-get install -y --no-install-recommends "${missing[@]}" >&2
}
# The package starts a server of its own on the usual ports; the tests start theirs on free ones.
if [ -n "$note" ] && command -v systemctl >/dev/null; then
    systemctl disable --now etcd >/dev/null 2>&1 || true
fi
