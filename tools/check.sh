#!/usr/bin/env bash
# What `make check` runs. Every check is run, or those that are named, then the
# verdicts are listed.
set -uo pipefail
cd "$(dirname "$0")/.."
source tools/require.sh
selected=("$@")
verdicts=()
status=0

wanted() { # name
  [ ${#selected[@]} -eq 0 ] || printf '%s\n' "${selected[@]}" | grep -Fxq -- "$1"
}

passed() { verdicts+=("ok       $1"); }

failed() { # name, output
  printf '%s\n' "$2"
  verdicts+=("FAILED   $1")
  status=1
}

check() { # name, command…
  local name=$1 out
  shift
  wanted "$name" || return 0
  printf '== %s\n' "$name"
  if out=$("$@" 2>&1); then passed "$name"; else failed "$name" "$out"; fi
}

skip() { # name, component, reason
  wanted "$1" || return 0
  if required "$2"; then
    failed "$1" "needs $2: $3, and MERIDIAN_REQUIRE demands it"
  else
    verdicts+=("skipped  $1: needs $2: $3")
  fi
}

tool() { go tool -modfile=tools/go.mod "$@"; }

formatted() {
  local files
  files=$(git ls-files -co --exclude-standard '*.go' | xargs go tool -modfile=tools/go.mod gofumpt -l) || {
    printf 'gofumpt could not run\n%s\n' "$files"
    return 1
  }
  [ -z "$files" ] || { printf 'not formatted (gofumpt -w):\n%s\n' "$files"; return 1; }
}

tidy() { go mod tidy -diff && (cd tools && go mod tidy -diff); }

vulnerabilities() {
  local name=govulncheck out code
  wanted $name || return 0
  printf '== %s\n' $name
  out=$(tool govulncheck ./... 2>&1)
  code=$?
  # It exits with 3 where it has found something, which no outage can explain.
  if [ $code -eq 0 ]; then
    passed $name
  elif [ $code -ne 3 ] && grep -qiE 'fetching vulnerabilities|vuln\.go\.dev|no such host|dial tcp|connection refused|forbidden' <<<"$out"; then
    skip $name vulnerability-database 'it cannot be reached from here'
  else
    failed $name "$out"
  fi
}

# Files that only tests of real components see are looked at as well.
check gofumpt formatted
check 'go mod tidy' tidy
check 'go vet' go vet -tags=real ./...
check 'go vet, accelerated' go vet -tags=real,accel ./...
check 'go vet, tools' bash -c 'cd tools && go vet ./...'
check staticcheck tool staticcheck -tags=real ./...
check 'staticcheck, accelerated' tool staticcheck -tags=real,accel ./move/cuda/...
check 'staticcheck, tools' bash -c 'cd tools && go tool staticcheck ./...'
vulnerabilities
check licences bash -c 'cd tools && go run ./licences'
check 'rooms, package docs, file length, documents' go test -count=1 .
check 'generated files' go test -count=1 ./run/config ./see/telemetry ./move/transceiver/handoff ./keep/store/arena -run 'TestGenerated|TestReference'
check 'generated files, protocols' bash -c 'cd tools && go run ./protogen -check'
if [ -x .venv/bin/ruff ]; then
  check ruff bash -c 'cd python && ../.venv/bin/ruff check . && ../.venv/bin/ruff format --check .'
  check mypy bash -c 'cd python && ../.venv/bin/mypy meridian tests'
else
  for name in 'licences of Python packages' ruff mypy; do
    skip "$name" python-packages 'the environment in .venv could not be made'
  done
fi

printf '\n== make check\n'
printf '%s\n' "${verdicts[@]}"
exit $status
