#!/usr/bin/env bash
# Writes what packages contain beside the program into packaging/generated: completions and manual pages.
#
#   scripts/generate-package-files.sh LOCKER    the program that prints them, by default target/release/locker
set -euo pipefail
cd "$(dirname "$0")/.."
locker=${1:-${CARGO_TARGET_DIR:-target}/release/locker}
rm -rf packaging/generated
mkdir -p packaging/generated
"$locker" completions bash >packaging/generated/locker.bash
"$locker" completions zsh >packaging/generated/_locker
"$locker" completions fish >packaging/generated/locker.fish
"$locker" man packaging/generated/man
