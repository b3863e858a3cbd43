#!/usr/bin/env bash
# deb_test.sh BUILD: the package of ./dev deb is the same when made twice, and its program trains and draws from where it was unpacked.
# What a tool says of it that is not installed is left out.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
build=$(readlink -f "$1")
fail() { echo "deb_test: $*" >&2; exit 1; }
command -v dpkg-shlibdeps >/dev/null || { echo "no dpkg-shlibdeps here: no package is made"; exit 77; }
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT

mkdir "$at/first" "$at/second"
export SOURCE_DATE_EPOCH=1790000000 DEB_XZ_LEVEL=0
"$root/dev" deb "$build" "$at/first" >"$at/log" 2>&1 || fail "./dev deb: $(cat "$at/log")"
"$root/dev" deb "$build" "$at/second" >/dev/null 2>&1
package=$(echo "$at"/first/gradloom_*.deb)
cmp "$package" "$at/second/$(basename "$package")" || fail "made twice, it is not the same"

needs=$(dpkg-deb -f "$package" Depends)
for library in libc6 libonnx1 libprotobuf libsqlite3 libdnnl libgomp fonts-dejavu-core; do
  grep -q "$library" <<<"$needs" || fail "it does not depend on $library: $needs"
done
! grep -q 'libopenmpi' <<<"$needs" || fail "it depends on Open MPI, which only several ranks need"

dpkg-deb -x "$package" "$at/root"
usr=$at/root/usr
for file in lib/gradloom/libgradloom_mpi.so lib/gradloom/libgradloom_tcp.so lib/libgradloom.so lib/libgradloom.so.1 include/gradloom.h include/gradloom_op.h lib/pkgconfig/gradloom.pc \
  lib/cmake/gradloom/gradloomConfig.cmake share/applications/gradloom.desktop share/icons/hicolor/scalable/apps/gradloom.svg \
  share/mime/packages/gradloom.xml share/man/man1/gradloom.1.gz share/bash-completion/completions/gradloom \
  share/gradloom/samples/bert-tiny/model.onnx share/gradloom/samples/bert-tiny/batches.npz share/zsh/vendor-completions/_gradloom share/fish/vendor_completions.d/gradloom.fish share/doc/gradloom/copyright; do
  [ -s "$usr/$file" ] || fail "$file is not in it"
done
(cd "$at/root" && dpkg-deb --ctrl-tarfile "$package" | tar -xO ./md5sums | md5sum -c --quiet) || fail "md5sums are of other files"
[ -z "$(find "$usr" -type f -name '*.so*' -perm /111)" ] || fail "libraries may be executed"
pkg-config --with-path="$usr/lib/pkgconfig" --exists gradloom || fail "pkg-config does not read gradloom.pc"

gradloom() { env -u DISPLAY -u WAYLAND_DISPLAY -u GRADLOOM_PLUGINS HOME="$at" "$usr/bin/gradloom" "$@"; }
model=$root/tests/models/mlp/model.onnx
gradloom train "$model" --dim batch=8 --loss ce:logits,labels --steps 3 --session "$at/s.db" --json >"$at/steps" || fail "it does not train"
[ "$(grep -c '"step":' "$at/steps")" -ge 3 ] || fail "no steps: $(cat "$at/steps")"
if grep -q libglfw <<<"$(ldd "$usr/bin/gradloom")"; then   # no pipe: grep leaves it early, and ldd fails then
  gradloom open "$at/s.db" --headless --size 800x500 --screenshot "$at/window.png" >"$at/open" 2>&1 || fail "it does not draw: $(cat "$at/open")"
  [ "$(stat -c %s "$at/window.png")" -gt 10000 ] || fail "an empty picture"
fi
# Ranks load the plugin that lies in ../lib/gradloom.
for transport in tcp $(! command -v mpirun >/dev/null || echo mpi); do
  GRADLOOM_TRANSPORT=$transport gradloom devices --measure --ranks 2 --threads 1 >"$at/ranks" 2>&1 || fail "two ranks, $transport: $(cat "$at/ranks")"
done

if command -v desktop-file-validate >/dev/null; then desktop-file-validate "$usr/share/applications/gradloom.desktop" || fail "the desktop entry"; fi
if command -v update-mime-database >/dev/null; then
  update-mime-database "$usr/share/mime" 2>"$at/mime" || fail "the MIME types: $(cat "$at/mime")"
  [ -s "$usr/share/mime/application/vnd.gradloom.session+sqlite3.xml" ] && [ -s "$usr/share/mime/application/x-onnx.xml" ] || fail "no MIME types"
fi
if command -v lintian >/dev/null; then
  lintian --allow-root --fail-on error "$package" >"$at/lintian" 2>&1 || fail "lintian: $(grep '^E' "$at/lintian" || cat "$at/lintian")"
fi
echo "$(basename "$package"): $(stat -c %s "$package") bytes"
