#!/usr/bin/env bash
# Runs a command, such as `cargo test`, as on a machine that stands still for seconds: the command and all that it
# starts, servers too, are frozen from time to time. What fails depends on when the scheduler runs it.
#
#   scripts/stalls.sh COMMAND..              frozen for 2 s, about every 8 s
#   scripts/stalls.sh 0.5 3 COMMAND..        frozen for 0.5 s, about every 3 s
#
# Some tests fail by nature: sentinels wait for 30 s after each pause, a hold of Python's children has 3 s, and Redis'
# blocking client does not repeat an interrupted call. Needs Linux with control groups, and root.
set -euo pipefail
case "${1:---help}" in
--help | -h)
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit
    ;;
esac
frozen=2 every=8
if [[ $1 =~ ^[0-9.]+$ && ${2:-} =~ ^[0-9.]+$ && $# -gt 2 ]]; then
    frozen=$1 every=$2
    shift 2
fi

if [ -d /sys/fs/cgroup/freezer ]; then
    group=/sys/fs/cgroup/freezer/locker-stalls-$$ switch=freezer.state on=FROZEN off=THAWED
else
    group=/sys/fs/cgroup/locker-stalls-$$ switch=cgroup.freeze on=1 off=0
fi
if ! mkdir "$group" 2>/dev/null || [ ! -e "$group/$switch" ]; then
    rmdir "$group" 2>/dev/null || true
    echo "no control group can be made at $group: run it on Linux, as root" >&2
    exit 1
fi

end() {
    echo $off >"$group/$switch"
    # Whatever the command has left running, and then the group.
    until rmdir "$group" 2>/dev/null; do
        kill -KILL $(cat "$group/cgroup.procs") 2>/dev/null || true
        sleep 0.1
    done
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM

(echo $BASHPID >"$group/cgroup.procs" && exec "$@") &
command=$!
while sleep "$(awk -v every="$every" -v random=$RANDOM 'BEGIN { print every * (0.5 + random / 32768) }')" &&
    kill -0 $command 2>/dev/null; do
    echo $on >"$group/$switch"
    sleep "$frozen"
    echo $off >"$group/$switch"
done
wait $command
