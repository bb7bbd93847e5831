#!/usr/bin/env bash
# Checks the library and the server with the oldest compilers that their manifests promise (`rust-version`), which
# rustup installs if they are missing. Without rustup or its servers the check is skipped, which is an error with
# CI=true.
#
#   scripts/msrv.sh [library|server]    one of them, or both
set -euo pipefail
cd "$(dirname "$0")/.."

status=0
check() { # check VERSION WHAT CARGO-ARGUMENTS..
    local version=$1 what=$2
    shift 2
    if ! rustup run "$version" rustc --version >/dev/null 2>&1 \
        && ! rustup toolchain install "$version" --profile minimal --no-self-update; then
        echo "skipped: the check of $what with Rust $version, which needs rustup and its servers"
        if [ "${CI:-}" = true ]; then
            echo "with CI=true nothing may be skipped" >&2
            status=1
        fi
        return
    fi
    if cargo "+$version" check --target-dir "${CARGO_TARGET_DIR:-target}/oldest" --quiet --all-features "$@"; then
        echo "$what compiles with Rust $version"
    else
        status=1
    fi
}
promised() { # the first `rust-version` in a manifest
    sed -n 's/^rust-version = "\(.*\)"/\1/p' "$1" | head -n 1
}

[ "${1:-library}" != library ] ||
    check "$(promised Cargo.toml)" "the library" --package locker-rs --package locker-macros --package locker-runtime \
        --package locker-core --package locker-cas --package locker-redis --package locker-postgres \
        --package locker-etcd --package locker-mysql --package locker-zookeeper \
        --package locker-files
# The server promises the version that its ZeroMQ library needs.
[ "${1:-server}" != server ] ||
    check "$(promised locker-server/Cargo.toml)" "the server" --package locker-server
exit $status
