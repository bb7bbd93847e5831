#!/usr/bin/env bash
# Runs a command, such as `cargo test`, as on a machine that stands still for seconds: the command and all that it
# starts, servers too, are frozen from time to time. What fails depends on when the scheduler runs it.
#
#   scripts/stalls.sh COMMAND..              frozen for 2 s, about every 8 s
#   scripts/stalls.sh 0.5 3 COMMAND..        frozen for 0.5 s, about every 3 s
#
# Some tests fail rightly: sentinels wait for 30 s after each pause, the holds of forked Python programs last for 3 s,
# and the blocking client of Redis does not repeat an interrupted call. Needs Linux with control groups, and root.
# After `kill -9` of this script the group that it has named may stay frozen: write THAWED (or 0) into its switch.
set -euo pipefail
help() { sed -n '2,10s/^# \{0,1\}//p' "$0"; }
case "${1:---help}" in
--help | -h)
    help
    exit
    ;;
esac
frozen=2 every=8
number='^[0-9]+(\.[0-9]+)?$'
if [[ $1 =~ $number ]]; then
    if ! [[ ${2:-} =~ $number && $# -gt 2 ]]; then
        echo "give two numbers of seconds and a command, or a command alone" >&2
        exit 2
    fi
    frozen=$1 every=$2
    shift 2
fi

if [ -d /sys/fs/cgroup/freezer ]; then
    groups=/sys/fs/cgroup/freezer switch=freezer.state on=FROZEN off=THAWED
else
    groups=/sys/fs/cgroup switch=cgroup.freeze on=1 off=0
fi
if ! group=$(mktemp -d $groups/locker-stalls.XXXXXX) || [ ! -e "$group/$switch" ]; then
    rmdir "${group:-}" 2>/dev/null || true
    echo "no control group can be made in $groups: run this on Linux, as root" >&2
    exit 1
fi
echo "the switch is $group/$switch" >&2

end() {
    trap '' HUP INT TERM
    echo $off >"$group/$switch"
    # Whatever the command has left running, and then the group.
    for _ in {1..100}; do
        ! rmdir "$group" 2>/dev/null || return 0
        kill -KILL $(cat "$group/cgroup.procs") 2>/dev/null || true
        sleep 0.1
    done
    echo "$group cannot be removed" >&2
}
trap end EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# A background job has no input and ignores two signals, unless told otherwise.
exec 3<&0
(echo $BASHPID >"$group/cgroup.procs" && exec env --default-signal=INT,QUIT "$@" <&3 3<&-) &
command=$!
times=0
pause() { awk -v every="$every" -v random=$RANDOM 'BEGIN { print every * (0.5 + random / 32768) }'; }
while sleep "$(pause)" && kill -0 $command 2>/dev/null; do
    echo $on >"$group/$switch"
    sleep "$frozen"
    echo $off >"$group/$switch"
    times=$((times + 1))
done
status=0
wait $command || status=$?
echo "frozen $times times" >&2
[ $times -gt 0 ] || [ $status != 0 ] || { echo "the command ended before the first time" >&2 && status=1; }
exit $status
