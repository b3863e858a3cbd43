#!/usr/bin/env bash
# run_page.sh PAGE GRADLOOM FOLDER [RECORDED]: runs the commands of docs/PAGE.md (guide, hugging-face) in FOLDER, all in one shell and
# in their order. Command N is kept in FOLDER/log/N.command, what it says in FOLDER/log/N.output. Windows are drawn without a display;
# a picture docs/PAGE/NAME.png is drawn into FOLDER/pictures by NAME.script, in the window that the command before it opened.
# The page's PyTorch script runs by $PYTHON (default /usr/bin/python3). With a folder RECORDED, as a test has it, no PyTorch is needed:
# what the script would write is copied from there, and measurements are as short as they can be.
set -euo pipefail
page=$1
here=$(dirname "$(readlink -f "$0")")
program=$(readlink -f "$2")
recorded=${4:+$(readlink -f "$4")}
mkdir -p "$3/log" "$3/pictures"
cd "$3"
cp "$here/$page"/*.py .

gradloom() {
  if [ -n "$recorded" ]; then
    case $1 in
      advise) set -- "$@" --all ;;   # of a model that small, few findings are worth a hundredth of a step
      compare) [[ " $* " == *" --stored "* ]] || set -- "$@" --max-seconds 0.2 --min-groups 2 ;;
      tune)
        local word words=() before=""
        for word; do
          [ "$before" != --seconds ] || word=3
          words+=("$word") before=$word
        done
        set -- "${words[@]}"
        ;;
    esac
  fi
  [ "$1" = open ] || { "$program" "$@"; return; }
  [ -z "$picture" ] || set -- "$@" --size 1600x900 --script "$here/$page/$picture.script" --screenshot "pictures/$picture.png"
  "$program" "$@" --headless
}

python3() { # SCRIPT train [--recipe FILE] | SCRIPT export|capture|profile WHAT, which is a file or a folder
  [ -n "$recorded" ] || { OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0 "${PYTHON:-/usr/bin/python3}" "$@"; return; }
  case $2 in
    export) cp "$recorded/$3" "$recorded/batches.npz" . ;;
    capture | profile) cp -r "$recorded/$3" . ;;
  esac
}

run() { # command
  local at status=0
  at=log/$(printf %02d $number)
  printf '%s\n' "$1" | tee "$at.command"
  eval "$1" >"$at.output" 2>&1 </dev/null || status=$?
  # A replay also judges the speed, which a busy machine does not keep.
  [ $status -ne 1 ] || ! grep -q '^replay *losses: agrees' "$at.output" || status=0
  [ $status -eq 0 ] || { cat "$at.output" >&2; echo "run_page.sh: exit code $status: $1" >&2; exit 1; }
}

number=0 window=""
while IFS= read -r line; do
  number=$((number + 1)) picture=""
  case $line in
    '$ gradloom open '*) window=${line#'$ '}; number=$((number - 1)) ;;   # run with its picture
    '$ '*) run "${line#'$ '}" ;;
    *) picture=$(sed "s/.*($page\/\(.*\)\.png).*/\1/" <<<"$line"); run "$window" ;;
  esac
done < <(grep -e '^\$ ' -e "^!\[.*($page/.*\.png)" "$here/$page.md")
[ $number -gt 0 ] || { echo "run_page.sh: no command in docs/$page.md" >&2; exit 1; }
