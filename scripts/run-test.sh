#!/usr/bin/env bash
# Runs one test program for cargo (see test.sh), with as many tests at a time as it bears.
set -euo pipefail
case "$(basename "$1")" in
# Its crowds of a thousand waiters keep both processors busy.
redis-*)
    if [ "${LOCKER_TESTS_BESIDE:-}" = redis ]; then
        exit 0
    fi
    unset RUST_TEST_THREADS
    ;;
esac
# Without a program such as this one, rustdoc names the bundle of examples here. Then each runs in a process of its own.
case "$1" in
*/rustdoctest*) export RUSTDOC_DOCTEST_BIN_PATH=$1 ;;
esac
exec "$@"
