#!/usr/bin/env bash
# closure_test.sh PROGRAM: the archive of ./dev bundle would hold every library the program needs, none that is not expected, and stay
# below its size (measured with a weaker compression than the archive's).
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
program=$1
fail() { echo "closure_test: $*" >&2; exit 1; }

closure=$("$root/dev" closure "$program") || fail "the closure of $program is not as expected"
for library in dnnl onnx protobuf sqlite3 gomp; do
  grep -q "^lib .*/lib$library\.so" <<<"$closure" || fail "lib$library is not in the closure"
done
grep -q '^fallback .*/libstdc++\.so' <<<"$closure" || fail "libstdc++ is not a fallback"
! grep -qE '/lib(c|m|GLX_[a-z]+|gallium|drm|LLVM[^/]*)\.so' <<<"$closure" || fail "a library of glibc or of a driver is in the closure"

# A program with other libraries is refused, by the name of one.
other=$(command -v cmake)
if refusal=$("$root/dev" closure "$other" 2>&1 >/dev/null); then fail "the libraries of $other pass"; fi
grep -q "needs lib.*which the archive does not hold" <<<"$refusal" || fail "no library is named: $refusal"

limit=$(sed -n 's/^bundle_bytes=\([0-9]*\).*/\1/p' "$root/dev")
bytes=$({ cat "$program"; awk '{ print $2 }' <<<"$closure" | xargs cat; tar -C "$root" -c kernels engine/device/gpu bench tests/models; } | xz -0 | wc -c)
[ "$bytes" -lt "$limit" ] || fail "$bytes bytes, at most $limit are allowed"
echo "$(wc -l <<<"$closure") libraries, $bytes bytes compressed (at most $limit)"
