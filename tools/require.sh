# What a machine may lack, for scripts to source in the root of the tree;
# internal/require is the same for tests.
components=internal/require/components.txt
demanded=${MERIDIAN_REQUIRE:-}
demanded=${demanded//,/ }

required() { # component: whether MERIDIAN_REQUIRE names it
  local name
  for name in $demanded; do
    [ "$name" != "$1" ] || return 0
  done
  return 1
}

for name in $demanded; do
  cut -d: -f1 "$components" | grep -Fxq -- "$name" || {
    printf 'MERIDIAN_REQUIRE names %s, which is not in %s\n' "$name" "$components" >&2
    exit 2
  }
done
