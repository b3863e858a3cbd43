#!/usr/bin/env bash
# wheel_test.sh BUILD: the wheel of ./dev wheel is the same when made twice, says what it needs, and in a fresh virtual environment, without a
# source tree, brings the command and the package, which leave nothing when they are uninstalled.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
build=$(readlink -f "$1")
fail() { echo "wheel_test: $*" >&2; exit 1; }
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
python3 -m venv "$at/venv" >"$at/log" 2>&1 || { echo "skipped: no virtual environment can be made (python3-venv)"; exit 77; }
python=$at/venv/bin/python

mkdir "$at/first" "$at/second" "$at/empty"
"$root/dev" wheel "$build" "$at/first" >"$at/log" 2>&1 || fail "./dev wheel: $(cat "$at/log")"
"$root/dev" wheel "$build" "$at/second" >/dev/null 2>&1
wheel=$(echo "$at"/first/gradloom-*.whl)
cmp "$wheel" "$at/second/$(basename "$wheel")" || fail "made twice, it is not the same"

# The tag is true: no file needs a newer glibc, nor a newer libstdc++ than GCC 12's, which such systems have.
glibc=$(sed -n 's/.*manylinux_2_\([0-9]*\)_.*/\1/p' <<<"$wheel")
mkdir "$at/files"
"$python" -m zipfile -e "$wheel" "$at/files"
for file in "$at/files/gradloom/gradloom" "$at/files/gradloom"/*.so "$at/files/gradloom"/lib/*.so*; do
  needs=$(readelf -V "$file")
  newest=$(sed -n 's/.*GLIBC_2\.\([0-9]*\).*/\1/p' <<<"$needs" | sort -nu | tail -n 1)
  [ "${newest:-0}" -le "$glibc" ] || fail "$file needs glibc 2.$newest: its tag says 2.$glibc"
  newest=$(sed -n 's/.*GLIBCXX_3\.4\.\([0-9]*\).*/\1/p' <<<"$needs" | sort -nu | tail -n 1)
  [ "${newest:-0}" -le 30 ] || fail "$file needs GLIBCXX_3.4.$newest"
done
# The engine is there once: the program is the window and what else the library lacks.
[ "$(stat -c %s "$at/files/gradloom/gradloom")" -lt 12000000 ] || fail "the program holds the engine, too"

listed() { (cd "$at/venv" && find . | LC_ALL=C sort); }
listed >"$at/before"
"$python" -m pip install -q --no-index --no-deps "$wheel" 2>"$at/log" || fail "pip: $(cat "$at/log")"

cd "$at/empty"
alone() { env -i PATH="$at/venv/bin:/usr/bin:/bin" HOME="$at/empty" "$@"; }
model=$root/tests/models/mlp/model.onnx
job=("$model" --dim batch=8 --loss ce:logits,labels)
[ "$(alone gradloom --version)" = "$("$build/wheel/gradloom" --version)" ] || fail "another version"
alone gradloom train "${job[@]}" --steps 3 --session s.db >"$at/log" 2>&1 || fail "it does not train: $(cat "$at/log")"
alone gradloom show s.db >"$at/log" 2>&1 || fail "it does not show: $(cat "$at/log")"
alone gradloom compare "${job[@]}" --a passes=none --b passes=default --max-seconds 1 >"$at/log" 2>&1 || fail "it does not compare: $(cat "$at/log")"
alone gradloom tune "${job[@]}" --seconds 2 --session t.db >"$at/log" 2>&1 || fail "it does not tune: $(cat "$at/log")"
alone env GRADLOOM_TRANSPORT=tcp gradloom devices --measure --ranks 2 --threads 1 >"$at/log" 2>&1 || fail "two ranks: $(cat "$at/log")"
code=0
alone gradloom plan no.onnx 2>"$at/log" || code=$?
[ $code = 5 ] && [ "$(wc -l <"$at/log")" = 1 ] || fail "a missing file: exit code $code, $(cat "$at/log")"
alone gradloom background --help >"$at/log" 2>&1 || fail "background: $(cat "$at/log")"
if grep -q libglfw <<<"$(ldd "$build/wheel/gradloom")"; then   # no pipe: grep leaves it early, and ldd fails then
  alone gradloom open s.db --headless --size 800x500 --screenshot window.png >"$at/log" 2>&1 || fail "it does not draw: $(cat "$at/log")"
  [ "$(stat -c %s window.png)" -gt 10000 ] || fail "an empty picture"
  # The sample job of the first screen lies where the program looks.
  printf 'wait 2\nclick welcome.sample\nwait idle\n' >sample.script
  alone gradloom open --headless --script sample.script --screenshot sample.png >"$at/log" 2>&1 || fail "the sample job: $(cat "$at/log")"
  code=0
  alone gradloom open s.db >"$at/log" 2>&1 || code=$?
  [ $code -gt 0 ] && [ "$(wc -l <"$at/log")" = 1 ] || fail "a window without a display: exit code $code, $(cat "$at/log")"
fi
hash=$(alone gradloom plan "${job[@]}" --json | tail -n 1)
alone "$python" - "$model" "$hash" <<'PYTHON' || fail "the package"
import json
import os
import sys

import gradloom
from gradloom import _library

model, told = sys.argv[1], json.loads(sys.argv[2])
settings = dict(dim={"batch": 8}, loss="ce:logits,labels")
assert gradloom.plan(model, **settings).plan_hash == told["plan_hash"]
assert gradloom.inspect(model).parameters > 0
assert gradloom.verify(model, **settings).verified
assert gradloom.compare(model, max_seconds=1, **settings).verdict
assert gradloom.tune(model, seconds=1, **settings).measured
assert _library.library().path.startswith(os.path.dirname(gradloom.__file__)), _library.library().path
PYTHON
[ "$(alone "$python" -m gradloom --version)" = "$(alone gradloom --version)" ] || fail "python -m gradloom"

# Where the Python that made the environment has PyTorch, which the wheel does not bring: the two lines, and a captured step that the command trains.
torch=$(python3 -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null || true)
if [ -n "$torch" ]; then
  alone env PYTHONPATH="$torch" "$python" - >"$at/log" 2>&1 <<'PYTHON' || fail "with PyTorch: $(cat "$at/log")"
import copy

import torch
from gradloom.torch import Module, TrainStep, capture
from torch import nn

torch.manual_seed(1)
model, x, y = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3)), torch.randn(5, 8), torch.randint(3, (5,))
loss, mine, theirs = nn.CrossEntropyLoss(), Module(copy.deepcopy(model)), copy.deepcopy(model)
for each in (mine, theirs):
    loss(each(x), y).backward()
for p, q in zip(mine.parameters(), theirs.parameters()):
    assert float((p.grad - q.grad).abs().max()) < 1e-5, (p.grad, q.grad)
step = TrainStep(copy.deepcopy(model), loss, "adamw{lr=0.01}")
losses = [step.step(x, y) for _ in range(5)]
assert losses[-1] < losses[0], losses
capture(model, (x, y), loss, "adamw{lr=0.01}", "job", steps=5)
PYTHON
  alone gradloom train --recipe job/recipe.json >"$at/log" 2>&1 || fail "a captured step: $(cat "$at/log")"
fi

# A program that does not start, and one that is gone, are one line.
program=$(alone "$python" -c 'import gradloom, os; print(os.path.dirname(gradloom.__file__))')/gradloom
mv "$program" "$at/program"
for text in "" "no program"; do
  [ -z "$text" ] || printf '%s' "$text" >"$program"
  [ -z "$text" ] || chmod +x "$program"
  code=0
  alone gradloom --version >"$at/log" 2>&1 || code=$?
  [ $code = 5 ] && [ "$(wc -l <"$at/log")" = 1 ] || fail "a program that is '$text': exit code $code, $(cat "$at/log")"
done
mv "$at/program" "$program"

"$python" -m pip uninstall -q -y gradloom 2>"$at/log" || fail "pip: $(cat "$at/log")"
listed | diff "$at/before" - >"$at/log" || fail "it leaves $(cat "$at/log")"
echo "$(basename "$wheel"): $(stat -c %s "$wheel") bytes"
