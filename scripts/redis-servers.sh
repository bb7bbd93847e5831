# Sourced by scripts/try-*.sh: servers in a temporary folder, which are stopped and deleted when the script ends.
for program in redis-server redis-cli; do
    command -v "$program" >/dev/null || { echo "there is no $program: run scripts/setup-redis.sh" >&2; exit 1; }
done
folder=$(mktemp -d)
processes=()
stop() {
    trap - EXIT
    kill "${processes[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$folder"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

free() { # PORT..
    local port
    for port in "$@"; do
        if redis-cli -p "$port" PING >/dev/null 2>&1; then
            echo "port $port is in use: set BASE" >&2
            exit 1
        fi
    done
}
server() { # PORT ARGUMENTS..
    mkdir -p "$folder/$1"
    (cd "$folder/$1" && exec redis-server --port "$@" --bind 127.0.0.1 --save "" --repl-diskless-sync-delay 0 \
        >log 2>&1) &
    processes+=($!)
}
until_says() { # PATTERN PORT COMMAND..
    for _ in $(seq 300); do
        if redis-cli -p "${@:2}" 2>/dev/null | tr -d '\r' | tr '\n' ' ' | grep -q "$1"; then return; fi
        sleep 0.1
    done
    echo "port $2 does not come up:" >&2
    cat "$folder/$2/log" >&2
    exit 1
}
run() { # FAILOVER COMMAND..
    if [ $# -gt 1 ]; then
        "${@:2}"
    else
        echo "$LOCKER_URL"
        echo "Ctrl-C stops all; a failover: $1" >&2
        wait
    fi
}
