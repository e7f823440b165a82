#!/usr/bin/env bash
# What `make check` runs. Every check is run, then the verdicts are listed.
set -u
cd "$(dirname "$0")/.."
verdicts=()
status=0

check() { # name, command…
  local name=$1 out
  shift
  printf '== %s\n' "$name"
  if out=$("$@" 2>&1); then
    verdicts+=("ok       $name")
  else
    printf '%s\n' "$out"
    verdicts+=("FAILED   $name")
    status=1
  fi
}

skip() { # name, component, reason
  case ",${MERIDIAN_REQUIRE:-}," in
    *",$2,"*) verdicts+=("FAILED   $1: needs $2: $3"); status=1 ;;
    *) verdicts+=("skipped  $1: needs $2: $3") ;;
  esac
}

tool() { go tool -modfile=tools/go.mod "$@"; }

formatted() {
  local files
  files=$(git ls-files -co --exclude-standard '*.go' | grep -v '\.pb\.go$' | xargs go tool -modfile=tools/go.mod gofumpt -l)
  [ -z "$files" ] || { printf 'not formatted (gofumpt -w):\n%s\n' "$files"; return 1; }
}

tidy() { go mod tidy -diff && (cd tools && go mod tidy -diff); }

vulnerabilities() {
  local out
  out=$(tool govulncheck ./... 2>&1) && { verdicts+=("ok       govulncheck"); return; }
  if grep -qiE 'fetching vulnerabilities|vuln\.go\.dev|no such host|dial tcp|connection refused|forbidden' <<<"$out"; then
    skip govulncheck vulnerability-database 'it cannot be reached from here'
  else
    printf '%s\n' "$out"
    verdicts+=("FAILED   govulncheck")
    status=1
  fi
}

check gofumpt formatted
check 'go mod tidy' tidy
check 'go vet' go vet ./...
check 'go vet, tools' bash -c 'cd tools && go vet ./...'
check staticcheck go tool -modfile=tools/go.mod staticcheck ./...
check 'staticcheck, tools' bash -c 'cd tools && go tool staticcheck ./...'
printf '== govulncheck\n'
vulnerabilities
check licences bash -c 'cd tools && go run ./licences'
check 'rooms, package docs, file length, documents' go test -count=1 .
check 'generated files' go test -count=1 ./config ./telemetry -run 'TestGenerated|TestReference'
if [ -x .venv/bin/ruff ]; then
  check ruff bash -c 'cd python && ../.venv/bin/ruff check . && ../.venv/bin/ruff format --check .'
  check mypy bash -c 'cd python && ../.venv/bin/mypy meridian tests'
else
  skip 'ruff and mypy' python-packages 'the environment in .venv could not be made'
fi

printf '\n== make check\n'
printf '%s\n' "${verdicts[@]}"
exit $status
