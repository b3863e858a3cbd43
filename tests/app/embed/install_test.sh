#!/usr/bin/env bash
# What ./dev install leaves is enough to build and run the example, by CMake and by pkg-config, and the library exports what
# the header declares and nothing else. Arguments: build folder, source folder; CFLAGS: as the library was sanitized.
set -euo pipefail
build=$1 source=$2
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
fail() { printf 'install_test: %s\n' "$*" >&2; exit 1; }

cmake --install "$build" --component embed --prefix "$at/prefix" >/dev/null
library=$at/prefix/lib/libgradloom.so
declared=$(sed 's|/\*.*\*/||' "$source/app/embed/gradloom.h" | grep -oE '\bgradloom_[a-z_]+\(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@@.*//' | sort -u)
[ "$declared" = "$exported" ] || fail "exported and declared differ: $(diff <(echo "$declared") <(echo "$exported") | tr '\n' ' ')"
! ldd "$library" | grep -E 'glfw|libEGL|libX11|not found' || fail "the library needs what only the window does"

model=$source/tests/models/mlp
"$build/gradloom" train "$model/model.onnx" --dim batch=8 --loss ce:logits,labels --data "npz:$model/batches.npz" --steps 3 \
  --session "$at/s.db" --json >"$at/steps"
"$build/gradloom" export "$at/s.db" -o "$at/recipe.json" >/dev/null
example() { # program
  LD_LIBRARY_PATH=$at/prefix/lib "$1" "$at/recipe.json" --steps 4 --session "$at/own.db" >"$at/out" || fail "$1 failed"
  grep -q 'step 4 of 4, loss' "$at/out" || fail "$1 made no 4 steps: $(cat "$at/out")"
  grep -q 'is within' "$at/out" || fail "$1 read no parameter"
  local loss
  loss=$(sed -n 's/^step 1 of 4, loss //p' "$at/out")
  grep -q "\"step\":1,.*\"loss\":${loss:0:7}" "$at/steps" || fail "its first loss $loss is not the command's: $(head -1 "$at/steps")"
  ! LD_LIBRARY_PATH=$at/prefix/lib "$1" "$at/none.json" 2>"$at/err" || fail "a missing recipe is no error"
  grep -q 'none.json' "$at/err" || fail "the error does not name the recipe: $(cat "$at/err")"
}

cp -r "$source/app/embed/example" "$at/example"
cmake -S "$at/example" -B "$at/built" -DCMAKE_PREFIX_PATH="$at/prefix" >/dev/null
cmake --build "$at/built" >/dev/null
example "$at/built/train"

cc -std=c11 -pedantic -Wall -Wextra -Werror -shared -fPIC -I"$at/prefix/include" "$at/example/scaled_tanh.c" -o "$at/tanh.so" -lm
"$build/gradloom" ops --ops "$at/tanh.so" >"$at/ops"   # grep -q leaves early, which would be an error of the command
grep -q 'ScaledTanh' "$at/ops" || fail "the operator's library does not load"

flags=$(PKG_CONFIG_PATH=$at/prefix/lib/pkgconfig pkg-config --cflags --libs gradloom)
# shellcheck disable=SC2086
cc -std=c89 -pedantic -Wall -Wextra -Werror ${CFLAGS:-} "$at/example/train.c" $flags -o "$at/train"
example "$at/train"
lines=$(wc -l <"$at/example/train.c")
[ "$lines" -le 80 ] || fail "the example has $lines lines"
