#!/usr/bin/env bash
# Runs one test program for cargo (see test.sh). Test programs wait for servers and leases most of the time: while
# fewer than LOCKER_TEST_SLOTS run, the program starts beside the others and this returns at once. Its output follows
# as a whole when it ends, and its status stands in the folder LOCKER_TEST_PROGRAMS then.
set -euo pipefail
program=$(basename "$1")
case "$1" in
# Without a program such as this one, rustdoc names the bundle of examples here. Then each runs in a process of its own.
*/rustdoctest*)
    export RUSTDOC_DOCTEST_BIN_PATH=$1
    exec "$@"
    ;;
esac
[ -n "${LOCKER_TEST_PROGRAMS:-}" ] || exec "$@"

at=$LOCKER_TEST_PROGRAMS/$program
[ ! -e "$at.output" ] || exit 0
# The longest start before all others.
case "$program" in
redis-* | locker_redis-* | locker_postgres-* | behaviour-* | museum-* | server-* | smoke-* | locker_cas-*) ;;
*) [ -z "${LOCKER_TEST_LONG:-}" ] || exit 0 ;;
esac
has_ended() { [ ! -d "$LOCKER_TEST_PROGRAMS" ] || [ -e "$LOCKER_TEST_PROGRAMS/ended" ]; }
# Takes a slot: test.sh has put that many letters into the pipe.
exec 9<>"$LOCKER_TEST_PROGRAMS/slots" 8>&-
until read -r -n 1 -t 1 -u 9; do
    ! has_ended || exit 1
done
! has_ended || exit 1
# One at a time. Nobody may read it any more, which ends the inner shell.
show() {
    until mkdir "$LOCKER_TEST_PROGRAMS/printing" 2>/dev/null; do
        ! has_ended || exit 1
        sleep 0.1
    done
    (printf '\n     Ended %s with %d after %d s\n' "$program" "$1" $SECONDS && cat "$at.output") || true
    rmdir "$LOCKER_TEST_PROGRAMS/printing"
}
: >"$at.output"
{
    SECONDS=0 status=0
    # shellcheck disable=SC2086 # A command and its options, or nothing.
    ${LOCKER_TEST_SIGNALS:-} "$@" </dev/null >"$at.output" 2>&1 9>&- &
    echo $! >"$at.pid"
    wait $! || status=$?
    rm "$at.pid"
    echo $status >"$at.status"
    printf . >&9
    show $status
} &
