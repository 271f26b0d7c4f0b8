#!/bin/sh
# Installs the clients that tests/clients drives, with npm, into $CLIENTS_DIR (build/clients of the checkout unless set).
# Does nothing where they are there already in the wanted versions. Without npm it says so and ends well: the tests skip.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
target=${CLIENTS_DIR:-$here/../../build/clients}

if ! command -v npm >/dev/null; then
    echo "npm is not installed: the tests of npm's clients will be skipped." >&2
    exit 0
fi
mkdir -p "$target"
if cmp -s "$here/package.json" "$target/.installed"; then
    exit 0
fi
cp "$here/package.json" "$target/package.json"
(cd "$target" && npm install --no-audit --no-fund --loglevel=error)
cp "$here/package.json" "$target/.installed"
