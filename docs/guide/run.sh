#!/usr/bin/env bash
# run.sh GRADLOOM FOLDER [MODELS]: runs the commands of docs/guide.md in FOLDER, all in one shell and in their order. Command N is kept
# in FOLDER/log/N.command, what it says in FOLDER/log/N.output. Windows are drawn without a display; a picture NAME.png of the page is
# drawn into FOLDER/pictures by NAME.script, in the window that the command before it opened.
# With a folder MODELS, as a test has it, no PyTorch is needed: what language_model.py would export is copied from there, and
# comparisons measure as little as they can.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
program=$(readlink -f "$1")
models=${3:+$(readlink -f "$3")}
mkdir -p "$2/log" "$2/pictures"
cd "$2"
cp "$here/language_model.py" .

gradloom() {
  [ "$1" != compare ] || [ -z "$models" ] || set -- "$@" --max-seconds 0.2 --min-groups 2
  [ "$1" = open ] || { "$program" "$@"; return; }
  [ -z "$picture" ] || set -- "$@" --size 1600x900 --script "$here/$picture.script" --screenshot "pictures/$picture.png"
  "$program" "$@" --headless
}

python3() { # language_model.py train | language_model.py export MODEL
  [ -n "$models" ] || { OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 /usr/bin/python3 "$@"; return; }
  [ "$2" != export ] || cp "$models/$3" "$models/batches.npz" .
}

run() { # command
  local at status=0
  at=log/$(printf %02d $number)
  printf '%s\n' "$1" | tee "$at.command"
  eval "$1" >"$at.output" 2>&1 </dev/null || status=$?
  # A replay also judges the speed, which a busy machine does not keep.
  [ $status -ne 1 ] || ! grep -q '^replay *losses: agrees' "$at.output" || status=0
  [ $status -eq 0 ] || { cat "$at.output" >&2; echo "run.sh: exit code $status: $1" >&2; exit 1; }
}

number=0 window=""
while IFS= read -r line; do
  number=$((number + 1)) picture=""
  case $line in
    '$ gradloom open '*) window=${line#'$ '}; number=$((number - 1)) ;;   # run with its picture
    '$ '*) run "${line#'$ '}" ;;
    *) picture=$(sed 's/.*(guide\/\(.*\)\.png).*/\1/' <<<"$line"); run "$window" ;;
  esac
done < <(grep -e '^\$ ' -e '^!\[.*(guide/.*\.png)' "$here/../guide.md")
[ $number -gt 0 ] || { echo "run.sh: no command in docs/guide.md" >&2; exit 1; }
