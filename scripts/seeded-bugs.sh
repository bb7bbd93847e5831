#!/usr/bin/env bash
# Seeds faults in the engine of the stores that compare and set, one at a time, in a copy of the tree, and requires that
# the engine's tests notice each. Takes some ten minutes; not part of CI. Arguments: the numbers of the faults to seed.
set -euo pipefail
cd "$(dirname "$0")/.."
copy=target/seeded
cas=locker-runtime/src/stores/cas
primitives=locker-runtime/src/primitives

# Number, file, regular expression of the line, its replacement, what goes wrong.
faults() {
    cat <<TABLE
1~$cas/exchange.rs~Some\(lost\) if version != write.expected => return Err\(lost.clone\(\)\)~Some(_) if version != write.expected => return Ok(Outcome::Differs { version, value })~a write whose answer was lost is repeated on the value that replaced it
2~$cas/observed.rs~\.min\(\)\.unwrap_or\(self\.latest\)~.max().unwrap_or(self.latest)~the time is that of the promise that is known best
3~$cas/observed.rs~lead\.unwrap_or\(self\.latest\)~lead.map_or(self.latest, |lead| lead.max(self.latest) + 1_000_000)~a promise that was seen before is dated a second early
4~$cas/exchange.rs~messages: messages::write\(key, present.entry.holds\(\), others\)~messages: { drop(others); Vec::new() }~other processes are not told
5~$cas/exchange.rs~Job::own\(request, Some\(version\)\)\)\.collect\(\)~{ let _ = version; Job::own(request, None) }).collect()~a grant is taken back although it may have been confirmed
6~$cas/round.rs~\.filter\(.until. \*until > moment\.now \+ WAITER_TTL / 2\)~.filter(|_| false)~each request of a waiter writes
7~$cas/exchange.rs~if !known\.has_value\(\) && self\.must_look~if false && self.must_look~a key that was never seen is taken for one without an earlier value
8~$cas/exchange.rs~if round\.changed\.is_none\(\) && is_fresh~if round.changed.is_none()~the known value is not compared before a reply
9~$cas/exchange.rs~let Some\(request\) = holds\.take_back\(id, fence\) \{~let Some(request) = holds.take_back(id, fence).filter(|_| false) {~a grant that no waiter wants is kept
10~$cas/round.rs~let is_handed_off =~let is_handed_off = |_: &Notification| false; let _ =~a hand-off may be lost in a crash
11~$primitives/state.rs~self\.now \+ self\.spread \+ lease~self.now + lease~a hold ends early by what is unknown about the clock
12~$cas/round.rs~\*body != known\.stored\.body~true~every request writes
TABLE
}

# Runs the tests whose names contain the argument.
run() {
    (cd "$copy" && CARGO_TARGET_DIR="$PWD/../seeded-build" cargo test --quiet -p locker-runtime --features _fake \
        --lib "$1" </dev/null >../seeded.log 2>&1)
}

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
    if ! run --no-run; then
        echo "ADAPT $number: it does not compile: $(grep -m 1 '^error' target/seeded.log)"
        missed=$((missed + 1))
        cp "$file" "$copy/$file"
        continue
    fi
    # Most are found by the quick tests.
    if run stores::cas && run primitives::; then
        echo "MISSED $number: $what"
        missed=$((missed + 1))
    else
        # The list of failures is the last one of the log, one name on each line.
        tests=$(sed -n 's/^    \([a-z0-9_:]*\)$/\1/p' target/seeded.log | sort -u)
        echo "found $number: $what, by" ${tests:-a crash of the tests}
    fi
    cp "$file" "$copy/$file"
done < <(faults)
exit "$missed"
