#!/usr/bin/env bash
# Makes docs/pictures/page.png: the server's page in a browser, with what a stub tells it. Needs chromium and
# chromium-driver.
set -euo pipefail
cd "$(dirname "$0")/.."
export LOCKER_TEST_PICTURE=$PWD/docs/pictures/page.png
exec cargo test --package locker-server --all-features --test browser page_is_pictured -- --ignored
