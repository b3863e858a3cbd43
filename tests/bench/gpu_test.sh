#!/usr/bin/env bash
# gpu_test.sh PROGRAM: the trials of bench/gpu.sh on host-gpu pass, and say so when something fails or takes too long.
set -uo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "gpu_test: $*" >&2; cat "$work/log" >&2; exit 1; }

trials() { # folder, expected exit code, flags
  local folder=$1 expected=$2
  shift 2
  "$root/bench/gpu.sh" --gradloom "$program" --device host-gpu --out "$work/$folder" "$@" >"$work/log" 2>&1
  local code=$?
  [ $code = "$expected" ] || fail "$folder: exit $code, expected $expected"
}
says() { grep -qF "$2" "$work/$1" || fail "$1 lacks $2: $(cat "$work/$1")"; }

trials good 0 --parts "devices memory faults sanitizer"
says good/summary.json '"part":"memory","result":"pass"'
says good/summary.json '"part":"sanitizer","result":"skip"'
says good/memory.json '"ok":true,"detail":"gradloom: the plan needs '
says good/faults.json '"part":"faults","result":"pass"'
says log 'faults       pass'

# A part that fails does not stop the next one.
GRADLOOM_HOSTGPU_FAIL=run:3=5 trials failing 1 --parts "overhead devices"
says failing/summary.json '"part":"overhead","result":"fail"'
says failing/summary.json '"part":"devices","result":"pass"'
says failing/overhead.json 'failure on demand'

trials slow 1 --parts samples --limit 1
says slow/summary.json '"part":"samples","result":"timeout"'

# A launch that fails loses its sample, and not those that would have run after it.
GRADLOOM_HOSTGPU_FAIL=determinant:1=5 trials lost 1 --parts samples --samples 'D*'
says lost/samples.json '"check":"f32","ok":false'
says lost/samples-f32.jsonl '"name":"Div/same shape","status":"PASS"'
says lost/samples-f32.jsonl 'determinant: failure on demand'
[ "$(grep -c '"name":"Det/[^"]*","status":"FAIL"' "$work/lost/samples-f32.jsonl")" = "$(grep -c '"status":"FAIL"' "$work/lost/samples-f32.jsonl")" ] ||
  fail "more than Det's samples are lost"

trials unknown 2 --parts dancing
