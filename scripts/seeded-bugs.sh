#!/usr/bin/env bash
# Seeds faults in the engine of the stores that compare and set, one at a time, in a copy of the tree, and requires that
# the engine's tests notice each. Takes some ten minutes; CI runs it weekly.
#
#   scripts/seeded-bugs.sh [NUMBER..]                 all faults, or some
#   scripts/seeded-bugs.sh --simulation [NUMBER..]    says which of them 250 seeds of the simulated fleet find, and
#                                                     whether they find the clock that came before (number 19)
set -euo pipefail
cd "$(dirname "$0")/.."
simulation=
if [ "${1:-}" = --simulation ]; then
    simulation=yes
    shift
elif [[ "${1:-}" == -* ]]; then
    sed -n '2,9s/^# \{0,1\}//p' "$0"
    exit
fi
copy=target/seeded
cas=stores/cas/src
primitives=locker-core/src/primitives

# Number, file, regular expression of the line, its replacement, what goes wrong.
faults() {
    cat <<TABLE
1~$cas/store/engine.rs~Some\(lost\) if version != write.expected => return Err\(lost.clone\(\)\)~Some(_) if version != write.expected => return Ok(Outcome::Differs { version, value })~a write whose answer was lost is repeated on the value that replaced it
2~$cas/ticked.rs~\(self\.base \+ local\.since\(self\.at\)\)\.min\(self\.end\(\)\)~self.base + local.since(self.at)~a clock goes on for ever without a tick
3~$cas/store/engine.rs~\{ basis\.clone\(\) \} else \{ Basis::Served \}~{ Basis::Served } else { basis.clone() }~what a write promises does not depend on the clock that it was dated by
4~$cas/store/engine.rs~messages: messages::write\(self\.key, others\)~messages: { drop(others); Vec::new() }~other processes are not told
5~$cas/store/engine.rs~\|request\| Job::own\(request, Some\(version\)\)\)\.collect\(\)~|request| { let _ = version; Job::own(request, None) }).collect()~a grant is taken back although it may have been confirmed
6~$cas/round.rs~let is_seated = .*~let is_seated = false && seat.is_some_and(|until| until > time.now + WAITER_TTL / 2);~each request of a waiter writes
7~$cas/store/engine.rs~let is_unseen = !self~let is_unseen = false && !self~a key that was never seen is taken for one without an earlier value
8~$cas/store/engine.rs~if round\.changed\.is_none\(\) && self\.knows_enough\(&round\)~if round.changed.is_none()~the known value is not compared before a reply
9~$cas/store.rs~lock\(&self\.queues\)\.told\(&first\.key\)~let _ = first~a waiter that was told asks only its own process
10~$cas/round.rs~let is_handed_off =~let is_handed_off = |_: &Notification| false; let _ =~a hand-off may be lost in a crash
11~$primitives/state.rs~self\.now \+ self\.spread \+ lease~self.now + lease~a hold ends early by what is unknown about the clock
12~$cas/round.rs~\*body != known\.stored\.body~true~every request writes
13~$primitives/parts/wait_queue.rs~self\.silent\.push\(inbox\)~let _ = inbox~a stopped process is waited for once per waiter
14~$primitives/parts/wait_queue.rs~self\.silent\.retain\(\|silent\| \*silent != id\.inbox\(\)\)~let _ = id~a process that was silent is passed over for ever
15~$cas/time.rs~let end = self\.latest \+ passed~let end = Timestamp::from_micros(self.latest.as_micros() - CAP.as_micros() as u64) + passed~a repeated write promises too little
16~$cas/ticked.rs~\(time > tick\.time\)\.then~(true).then~a clock is written that has not moved on
17~$cas/ticked.rs~let wall = tick\.time \+ tick\.gaps \+ local\.since\(known\.at\)~let wall = time + tick.gaps~a clock forgets how long it stood still
18~$cas/store/engine.rs~round\.must_be_durable\(\) && self\.was_behind~false && self.was_behind~a grant is kept although the clock was later than the step took it for
TABLE
}

# Runs the tests whose names contain the second argument, of the package and with the features that the first names.
run() {
    (cd "$copy" && CARGO_TARGET_DIR="$PWD/../seeded-build" cargo test --quiet -p $1 --lib "$2" \
        </dev/null >../seeded.log 2>&1)
}
# Prints what the simulation finds of the fault that is in the copy.
simulate() { # simulate NUMBER WHAT
    if ! (cd "$copy" && CARGO_TARGET_DIR="$PWD/../seeded-build" cargo run --quiet --release -p locker-sim -- --once \
        --no-shrink --seeds 250 </dev/null >../seeded.log 2>&1); then
        grep -q ' fails: ' target/seeded.log || { echo "ADAPT $1: $(grep -m 1 '^error' target/seeded.log)" && return 1; }
        echo "found $1: $2, by $(grep -c ' fails: ' target/seeded.log) of 250 seeds:" \
            "$(grep -m 1 -o ' fails: .*' target/seeded.log | cut -c 9-100)"
    else
        echo "not found $1: $2"
    fi
}
engine="locker-cas --features _fake"
steps="locker-core --features _cas"

# Also over the fault of a run that was interrupted.
git ls-files -z | while IFS= read -r -d '' file; do
    cmp -s "$file" "$copy/$file" || { mkdir -p "$copy/$(dirname "$file")" && cp "$file" "$copy/$file"; }
done

missed=0
while IFS='~' read -r number file line replacement what; do
    if [ $# -gt 0 ] && [[ " $* " != *" $number "* ]]; then
        continue
    fi
    if ! LINE=$line NEW=$replacement perl -0pi -e 's/$ENV{LINE}/$ENV{NEW}/ or exit 1' "$copy/$file"; then
        echo "ADAPT $number: $file has changed"
        missed=$((missed + 1))
        continue
    fi
    touch "$copy/$file"
    if [ -n "$simulation" ]; then
        simulate "$number" "$what" || missed=$((missed + 1))
        cp "$file" "$copy/$file"
        continue
    fi
    if ! { run "$engine" --no-run && run "$steps" --no-run; }; then
        echo "ADAPT $number: it does not compile: $(grep -m 1 '^error' target/seeded.log)"
        missed=$((missed + 1))
        cp "$file" "$copy/$file"
        continue
    fi
    # Most are found by the quick tests.
    if run "$engine" "" && run "$steps" primitives::; then
        echo "MISSED $number: $what"
        missed=$((missed + 1))
    else
        # The list of failures is the last one of the log, one name on each line.
        tests=$(sed -n 's/^    \([a-z0-9_:]*\)$/\1/p' target/seeded.log | sort -u)
        echo "found $number: $what, by" ${tests:-a crash of the tests}
    fi
    cp "$file" "$copy/$file"
done < <(faults)
if [ -n "$simulation" ] && { [ $# -eq 0 ] || [[ " $* " == *" 19 "* ]]; }; then
    if (cd "$copy" && patch --quiet --batch -p1) <testing/sim/observed-clock.patch; then
        simulate 19 "each process dates a key by its own clock, from the value that it saw first" || missed=$((missed + 1))
    else
        echo "ADAPT 19: testing/sim/observed-clock.patch does not fit"
        missed=$((missed + 1))
    fi
    cp "$cas/round.rs" "$copy/$cas/round.rs"
    cp "$cas/store/engine.rs" "$copy/$cas/store/engine.rs"
fi
exit "$missed"
