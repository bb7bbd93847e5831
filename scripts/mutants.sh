#!/usr/bin/env bash
# Changes one place of the code after the other, and asks for each such mutant whether a test fails. A mutant that
# survives shows what no test asks for. docs/contributing/mutants.md has the results, and why some may survive.
#
# Works in a copy of the tree, for hours; results are in mutants/PART of the build folder. Installs cargo-mutants if it
# is missing.
#
#   scripts/mutants.sh PART [OPTIONS]           primitives, engine, lease or macros; options of cargo-mutants
#   scripts/mutants.sh engine --shard 0/8       every eighth mutant
#   scripts/mutants.sh engine --iterate         those that survived before, once more
#   scripts/mutants.sh --report                 what was killed in each file, and what survived
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants

# Prints killed, all and the share for each file of a part, and which mutants survived.
report() {
    python3 - "$out" <<'PYTHON'
import collections, json, pathlib, sys

for part in sorted(pathlib.Path(sys.argv[1]).glob("*/mutants.out/outcomes.json")):
    killed, survived = collections.Counter(), collections.defaultdict(list)
    for outcome in json.loads(part.read_text())["outcomes"]:
        if outcome["scenario"] == "Baseline" or outcome["summary"] == "Unviable":
            continue
        mutant = outcome["scenario"]["Mutant"]
        if outcome["summary"] == "MissedMutant":
            survived[mutant["file"]].append(mutant["name"])
        else:
            killed[mutant["file"]] += 1
    print(f"\n{part.parts[-3]}")
    for file in sorted({*killed, *survived}):
        total = killed[file] + len(survived[file])
        print(f"{killed[file]:5} of {total:4}  {100 * killed[file] / total:3.0f} %  {file}")
    total = killed.total() + sum(map(len, survived.values()))
    print(f"{killed.total():5} of {total:4}  {100 * killed.total() / max(total, 1):3.0f} %")
    for mutant in sorted(sum(survived.values(), [])):
        print(f"survived: {mutant}")
PYTHON
}

part=${1:-}
case "$part" in
primitives)
    mutants=(--package locker-core --file 'locker-core/src/primitives/**' --features _cas,serde --timeout 20)
    tests=(primitives)
    # Only fuzz targets use these.
    mutants+=(--exclude '**/samples.rs')
    # The models walk through thousands of random histories.
    export CARGO_PROFILE_DEV_OPT_LEVEL=1
    ;;
engine)
    mutants=(--package locker-cas --file 'stores/cas/src/**' --all-features --timeout 300)
    # Not the tests' own backend, nor what backends and fuzz targets call.
    mutants+=(--exclude '**/fake.rs' --exclude '**/fake/**' --exclude '**/contract.rs' --exclude '**/fuzz.rs')
    # They wait for leases and crowds.
    tests=(--test-threads=16)
    export CARGO_PROFILE_DEV_OPT_LEVEL=1
    ;;
lease)
    mutants=(--package locker-runtime --file 'locker-runtime/src/lease/**' --all-features --timeout 300)
    tests=(--test-threads=8)
    ;;
macros)
    mutants=(--package locker-macros --file 'locker-macros/src/validate/**' --file 'locker-macros/src/parse/**')
    mutants+=(--file 'locker-macros/src/{attribute,ranges,validate}.rs' --timeout 60)
    tests=()
    ;;
--report)
    report
    exit
    ;;
*)
    sed -n '2,12s/^# \{0,1\}//p' "$0"
    [ "$part" = --help ] || [ "$part" = -h ]
    exit
    ;;
esac
shift

export PATH=$out/tools/bin:$PATH
if ! cargo mutants --version >/dev/null 2>&1; then
    cargo install --quiet --locked cargo-mutants --root "$out/tools" --target-dir "$out/tools/target"
fi
mkdir -p "$out/$part"
result=0
# Failing inputs that proptest keeps would find the next mutants. What Debug prints is not tested.
PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$out/build cargo mutants \
    "${mutants[@]}" --exclude '**/tests/**' --exclude '**/tests.rs' --exclude-re 'impl (fmt::)?Debug' --no-times \
    --output "$out/$part" --cargo-test-arg=--lib "$@" -- -- "${tests[@]}" || result=$?
report
# 2: mutants survived; 3: some did not end, so a test noticed them.
[ $result -eq 0 ] || [ $result -eq 2 ] || [ $result -eq 3 ]
