#!/usr/bin/env bash
# page_test.sh PAGE GRADLOOM: every command of docs/PAGE.md runs, in the order of the page, on a tiny model of the same operators and names
# (the folder PAGE here, which ./dev guide makes), its pictures are drawn, and each line that the page shows of an answer is
# of a kind that the program answers: a line with the same first word, or the whole line where it holds no number.
set -euo pipefail
page=$1
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
fail() { echo "page_test: $*" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$root/docs/run_page.sh" "$page" "$2" "$folder" "$root/tests/docs/$page"

# What the page shows, as files "command TAB shown line"; first words of verdicts are one.
awk '/^```/ { inside = $0 == "```console"; next }
     !inside || $0 == "" || $0 == "..." { next }
     /^\$ / { command = substr($0, 3); next }
     { print command "\t" $0 }' "$root/docs/$page.md" >"$folder/shown"
lines=0
while IFS=$'\t' read -r command shown; do
  case $command in python3*) continue ;; esac   # PyTorch's own words
  # Which change is worth most depends on the size: of so small a model another one may be.
  case $command in "gradloom advise "*) case $shown in *" change "* | *" right where "*) continue ;; esac ;; esac
  at=$(grep -lxF -e "$command" "$folder"/log/*.command) || fail "did not run: $command"
  case $shown in
    FASTER* | SLOWER* | SAME* | UNSURE*) grep -qE '^(FASTER|SLOWER|SAME|UNSURE) ' "${at%.command}.output" && lines=$((lines + 1)) && continue ;;
  esac
  awk -v shown="$shown" '
    function squeezed(text) { gsub(/ +/, " ", text); sub(/^ /, "", text); sub(/^\/blocks.*/, "/blocks", text); return text }
    function first(text) { split(text, words, " "); return words[1] ~ /^[0-9]+$/ ? "number" : words[1] }
    BEGIN { wanted = squeezed(shown) }
    { line = squeezed($0); if (wanted ~ /[0-9]/ ? first(line) == first(wanted) : line == wanted) { found = 1; exit } }
    END { exit !found }' "${at%.command}.output" || fail "not answered by '$command': $shown"
  lines=$((lines + 1))
done <"$folder/shown"
[ $lines -gt 40 ] || fail "the page shows only $lines lines"
for picture in $(sed -n "s/^!\[.*($page\/\(.*\.png\))/\1/p" "$root/docs/$page.md"); do
  [ -s "$folder/pictures/$picture" ] || fail "$picture was not drawn"
  [ "$(stat -c %s "$root/docs/$page/$picture")" -lt 300000 ] || fail "docs/$page/$picture has 300 kB or more"
done
echo "page_test: $page: $(ls "$folder"/log/*.command | wc -l) commands, $lines lines"
