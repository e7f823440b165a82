#!/usr/bin/env bash
# Demands that a binary needs nothing of the machine it runs on: no program
# interpreter, no shared library.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/require.sh

if ! command -v readelf >/dev/null; then
  echo 'static check skipped: needs readelf: not on PATH'
  ! required readelf
  exit
fi
segments=$(readelf -lW "$1")
libraries=$(readelf -dW "$1")
if grep -q INTERP <<<"$segments" || grep -q NEEDED <<<"$libraries"; then
  printf '%s is not static:\n%s\n' "$1" "$libraries"
  exit 1
fi
echo "$1 is static"
