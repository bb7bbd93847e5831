#!/usr/bin/env bash
# Installs the browser of the tests of the server's page and its driver (chromium, chromium-driver) if they are missing
# and apt-get is there, fetches the rules for accessible pages (axe-core), and prints where they are. `--plan` only says
# what would be installed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh
target=${CARGO_TARGET_DIR:-target}
mkdir -p "$target"
target=$(cd "$target" && pwd)
rules=$target/axe-4.12.1.min.js
# axe-core, in the package from PyPI that has it as one file.
package=axe-playwright-python==0.1.8
sum=fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8
missing=()
command -v chromium chromium-browser google-chrome >/dev/null || missing+=(chromium)
command -v chromedriver >/dev/null || missing+=(chromium-driver)
install_packages "${1:-}" "" "" ${missing[@]+"${missing[@]}"}
if [ "${1:-}" = --plan ]; then
    [ -s "$rules" ] || echo "pip download $package (from PyPI, one file of it into $target)"
    exit 0
fi
if [ ! -s "$rules" ]; then
    [ -n "${LOCKER_TEST_PYTHON:-}" ] || eval "$(scripts/setup-python.sh)"
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    echo "$package --hash=sha256:$sum" >"$folder/requirements"
    "$LOCKER_TEST_PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
        --dest "$folder" --requirement "$folder/requirements" >&2
    "$LOCKER_TEST_PYTHON" - "$folder"/*.whl "$folder/rules" <<'END'
import sys, zipfile
rules = zipfile.ZipFile(sys.argv[1]).read("axe_playwright_python/axe.min.js")
open(sys.argv[2], "wb").write(rules)
END
    mv "$folder/rules" "$rules"
fi
echo "export LOCKER_TEST_AXE=$rules"
