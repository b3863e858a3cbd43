#!/usr/bin/env bash
# skipped_test.sh: the end of ./dev test says what ctest skipped and why, from the report of a real ctest whose tests skip in each of the ways
# that ours do: as GoogleTest tells it, and by a script's exit code.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
fail() { echo "skipped_test: $*" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT

# add NAME PROPERTIES SCRIPT: a test that runs the script.
add() {
  printf '%s\n' "$3" >"$work/$1.sh"
  printf 'add_test(%s bash "%s/%s.sh")\nset_tests_properties(%s PROPERTIES %s)\n' "$1" "$work" "$1" "$1" "$2" >>"$work/CTestTestfile.cmake"
}
by_gtest='SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]"'
gtest() { printf 'echo "[ RUN      ] %s"; echo "/a/b.cpp:7: Skipped"; echo "%s"; echo; echo "[  SKIPPED ] %s (0 ms)"' "$1" "$2" "$1"; }
add passes "$by_gtest" 'echo "a line: Skipped"; echo "but no test was"'
add one "$by_gtest" "$(gtest Plugin.One '<the plugin> & \"more\" are not built')"
add two "$by_gtest" "$(gtest Plugin.Two '<the plugin> & \"more\" are not built')"
add silent "$by_gtest" 'echo "/a/b.cpp:9: Skipped"; echo; echo "[  SKIPPED ] Silent (0 ms)"'
add long 'SKIP_RETURN_CODE 77' 'seq 1 800; echo "too long to be cut: the reason"; exit 77'
add script 'SKIP_RETURN_CODE 77' 'echo first; echo "no PyTorch here" >&2; exit 77'
add mute 'SKIP_RETURN_CODE 77' 'exit 77'
add fails 'SKIP_RETURN_CODE 77' 'echo "not the reason of a skip"; exit 1'

summary() { (cd "$work" && ctest --output-junit tests.xml "$@" >ctest.out 2>&1 || true) && python3 "$root/tests/dev/skipped.py" "$work/tests.xml"; }
said=$(summary)
expected() { grep -qxF -- "$1" <<<"$said" || fail "no line '$1' in: $said"; }
expected '6 tests were skipped:'
expected '  2: <the plugin> & "more" are not built (one, ..)'
expected '  1: no PyTorch here (script)'
expected '  2: the test does not say why (silent, ..)'
expected '  1: too long to be cut: the reason (long)'
[ "$(wc -l <<<"$said")" = 5 ] || fail "not one line for each reason: $said"

[ "$(summary -R '^script$')" = $'1 test was skipped:\n  1: no PyTorch here (script)' ] || fail "one alone"
[ -z "$(summary -R '^(passes|fails)$')" ] || fail "what was not skipped is named"
echo "$said"
