#!/usr/bin/env bash
# contributing_test.sh BUILD: follows CONTRIBUTING.md on a copy of the tree. An elementwise operator and a pass are written into the
# files that it names for each and into no other; what holds these files is compiled with the build's own flags and linked with its
# libraries; the generic tests of operators and passes must find the newcomers and pass.
# The operator's row is the last of its list, so that the number of no other operator changes and the libraries still fit; it is
# compiled for the lowest x86-64 level of the build alone, which the tests then run at.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
build=$(readlink -f "$1")
fail() { echo "contributing_test: $*" >&2; exit 1; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT

for folder in kernels engine passes tests/engine tests/passes; do
  mkdir -p "$copy/$folder" && cp -r "$root/$folder/." "$copy/$folder"
done
cp "$root"/tests/*.h "$copy/tests"
cd "$copy"
launcher=$(sed -n 's/^CCACHE:FILEPATH=\(\/.*\)/\1/p' "$build/CMakeCache.txt")

isa=$(grep -oE 'GRADLOOM_ISA=v[0-9]+' "$build/compile_commands.json" | sort -u | head -n 1 | cut -d= -f2)

# ---- what the text says ---------------------------------------------------------------------------------------------------------

# named_files HEADING: the file that each numbered step below this heading of CONTRIBUTING.md begins with.
named_files() {
  awk -v heading="## $1" '$0 == heading { on = 1; next } /^## / { on = 0 } on' "$root/CONTRIBUTING.md" |
    sed -n 's/^[0-9]*\. `\([^`]*\)`.*/\1/p'
}

# write FILE: what the newcomers are in this file.
write() {
  case $1 in
    kernels/elementwise.def) cat >> "$1" ;;
    engine/ops/elementwise/gradients.cpp)
      grep -q '^ZERO_GRADIENT' "$1" || fail "no place for a gradient in $1"
      awk 'FNR == NR { rule = rule $0 "\n"; next } /^ZERO_GRADIENT/ && !done { print rule; done = 1 } { print }' - "$1" > text
      mv text "$1" ;;
    passes/passes.def) cat >> "$1" ;;
    passes/cancel_negations.cpp) cat > "$1" ;;
    *) fail "CONTRIBUTING.md names $1, for which this test has nothing to write" ;;
  esac
}

# Where a step says <name>, the newcomer's name.
operator_files=$(named_files "An elementwise operator")
pass_files=$(named_files "A pass" | sed 's/<pass>/cancel_negations/')
[ "$(wc -w <<<"$operator_files")" = 2 ] || fail "an elementwise operator is not 2 files: $operator_files"
[ "$(wc -w <<<"$pass_files")" = 2 ] || fail "a pass is not 2 files: $pass_files"

for file in $operator_files $pass_files; do
  write "$file" < "$root/tests/contributing/$(basename "$file").txt"
done

# ---- what follows from it -------------------------------------------------------------------------------------------------------

# compile FILE [TEXT]: FILE of the copy, as the build compiles it (TEXT: by the command that has it), or the group of sources that it is in;
# prints the object.
compile() {
  local entry group like=$1 object=${1//\//_}.o
  [ "$1" != passes/cancel_negations.cpp ] || like=passes/pass.cpp
  group=$(grep -rlF --include='unity_*.cxx' "\"$root/$like\"" "$build" || true)
  entry=$(grep -E "^ *\"command\": .* -c ${group:-$root/$like}\",?\$" "$build/compile_commands.json" | grep -m 1 -F -e "${2:-}") ||
    fail "the build does not compile $like"
  entry=$(sed -E 's/^ *"command": "(.*)",?$/\1/; s/\\(.)/\1/g; s/ -o [^ ]+ -c [^ ]+$//' <<<"$entry")
  entry=${entry//$build/@build@}
  entry=${entry//$root/.}  # of the copy, where we are
  eval "$launcher ${entry//@build@/$build} -o $object -c $1" >&2 || fail "$1 does not compile"
  echo "$copy/$object"
}

# link PROGRAM OBJECT ..: as the build links PROGRAM, of these objects instead of its own.
link() {
  local program=$1 command word line=""
  shift
  command=$(ninja -C "$build" -t commands -s "tests/$program" | tail -n 1)
  command=${command#: && } command=${command%% && *}
  for word in $command; do
    case $word in
      *.o) ;;
      tests/"$program") line+=" $copy/$program $*" ;;
      *) line+=" $word" ;;
    esac
  done
  (cd "$build" && eval "$line") || fail "$program does not link"
}

# passes PROGRAM FILTER TEST ..: the tests that FILTER chooses pass, and these are among them.
passes() {
  local program=$1 filter=$2 log test
  shift 2
  log=$(GRADLOOM_ISA=$isa "./$program" --gtest_filter="$filter" 2>&1) || { echo "$log" >&2; fail "$program fails"; }
  for test in "$@"; do grep -qF "[       OK ] $test" <<<"$log" || fail "$program has no test $test: $log"; done
  grep -F '[  PASSED  ]' <<<"$log"
}

objects=()
for file in $(grep -rl --include='*.cpp' '#include "kernels/elementwise.def"' kernels engine); do
  objects+=("$(compile "$file" "$(case $file in kernels/cpu/*) echo "-DGRADLOOM_ISA=$isa " ;; esac)")")
done
for file in tests/engine/every_op_test.cpp tests/engine/every_op_gradient_test.cpp; do objects+=("$(compile "$file")"); done
link engine_tests "${objects[@]}"
passes engine_tests '*/Isru_*:Rows.*' Rows/EveryOp.KernelWritesWhatInferenceSays/Isru_ours_1 \
  Rows/EveryOp.SingleAgreesWithDouble/Isru_ours_1 Rows/EveryOpGradient.AgreesWithCentralDifferences/Isru_ours_1 Rows.AreComplete

objects=()
for file in $pass_files $(grep -rl --include='*.cpp' '#include "passes/passes.def"' passes) tests/passes/every_pass_test.cpp; do
  case $file in *.cpp) objects+=("$(compile "$file")") ;; esac
done
link passes_tests "${objects[@]}"
passes passes_tests '*/cancel_negations' Passes/EveryPass.TurnsItsExampleIntoWhatItPromises/cancel_negations \
  Passes/EveryPass.FindsNothingMoreInItsOwnResult/cancel_negations
