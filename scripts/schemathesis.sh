#!/usr/bin/env bash
# Checks the server against its OpenAPI document with schemathesis, for some minutes: what the document allows is
# accepted, what it forbids does no harm, and every answer is declared. Ends with the exit code of schemathesis.
#
#   scripts/schemathesis.sh                          all checks but the one below
#   scripts/schemathesis.sh --mode positive ..       with further options of `schemathesis run`
#
# It installs schemathesis from PyPI into target/schemathesis, and starts the server on a free port of 127.0.0.1. A call
# that would have to wait is answered 429 at once (--max-waits-per-name 0), and 408 with `maxwait=0`.
#
# These gaps between the document and the server are known:
# - The document allows less than the server: names beyond ASCII have at most 66 characters of common scripts instead of
#   200 bytes, keys of attributes have a simple prefix, and parameters that a call does not need are not in the form. So
#   the check negative_data_rejection is left out.
# - The parameters of a POST are described as a form only. The server takes them from the query, too.
# - A lock that is called `by-key` is refused, as only a description says.
# - The stateful phase is left out: the document has no links.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.32.5
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target/schemathesis"
target=$(cd "$target" && pwd)
venv=$target/schemathesis/venv
is_installed() {
    "$venv/bin/python" - "$version" 2>/dev/null <<'END'
import sys
from importlib.metadata import version
sys.exit(version("schemathesis") != sys.argv[1])
END
}
if ! is_installed; then
    python3 -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi
cargo build --quiet -p locker-server

folder=$(mktemp -d)
"$target/debug/locker" serve --http 127.0.0.1:0 --zmq off --max-waits-per-name 0 >"$folder/ready" 2>"$folder/log" &
server=$!
trap 'kill "$server" 2>/dev/null || true; wait "$server" || true; rm -r "$folder"' EXIT
for _ in $(seq 100); do
    [ ! -s "$folder/ready" ] || break
    sleep 0.1
done
url=$(grep -o 'http://[^, ]*' "$folder/ready") || { cat "$folder/log" >&2; exit 1; }

cat >"$folder/schemathesis.toml" <<'END'
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "404", "408", "409", "429"]
END
cd "$folder"
"$venv/bin/schemathesis" --config-file schemathesis.toml run "$url/openapi.json" \
    --phases examples,coverage,fuzzing --exclude-checks negative_data_rejection "$@"
