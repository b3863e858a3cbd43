#!/usr/bin/env bash
# Trials of the program on a GPU against the CPU: ./dev gpu runs this. Needs the program, awk and coreutils; Python and PyTorch only
# for the comparison of the part `bench`.
#
#   bench/gpu.sh --gradloom PROGRAM [--device cuda:0|hip:0|host-gpu] [--out FOLDER] [--parts "samples parity"] [--limit SECONDS]
#                [--samples 'Conv*']
#
# Every part is a process of its own with a time limit; one that fails does not stop the others. FOLDER gets, for each part, NAME.log
# (everything it printed) and NAME.json {"part", "result", "seconds", "detail", "checks": [{"check", "ok", "detail"}]}, and summary.json.
# A table comes last. Exit code 1 when a part failed. Results: pass, fail, skip (nothing to run it with), timeout.
set -uo pipefail

root=$(dirname "$(dirname "$(readlink -f "$0")")")
glob='*'
all_parts="build devices samples models libraries parity determinism memory faults sanitizer bench bench_bf16 overhead"
gradloom="" device=cuda:0 out="" parts=$all_parts limit=480 only=""
while [ $# -gt 0 ]; do
  case $1 in
    --gradloom) gradloom=$2 ;;
    --device) device=$2 ;;
    --out) out=$2 ;;
    --parts) parts=$2 ;;
    --limit) limit=$2 ;;
    --samples) glob=$2 ;;                   # which operators' samples the part `samples` takes
    --only) only=$2 ;;                      # one part, in this process
    *) sed -n '2,11p' "$0" >&2; exit 2 ;;
  esac
  shift 2 || { echo "gpu: a flag lacks its value" >&2; exit 2; }
done
[ -x "$gradloom" ] || { echo "gpu: --gradloom: no program '$gradloom'" >&2; exit 2; }
for part in $parts; do
  case " $all_parts " in *" $part "*) ;; *) echo "gpu: no part '$part' (there are: $all_parts)" >&2; exit 2 ;; esac
done
kind=${device%%:*}
out=${out:-gpu-report}
mkdir -p "$out" && out=$(readlink -f "$out") || { echo "gpu: cannot write to '$out'" >&2; exit 5; }
gradloom=$(readlink -f "$gradloom")
models=$root/tests/models
skipped=77
# The plugin that the part `build` has made; before that, in an archive, the one that came with it.
[ "$kind" = host-gpu ] || [ ! -f "$root/build/gpu/libgradloom_$kind.so" ] || export GRADLOOM_PLUGINS=${GRADLOOM_PLUGINS:-$root/build/gpu}
export GRADLOOM_CACHE=${GRADLOOM_CACHE:-$out/cache} GOMP_SPINCOUNT=2000   # set: the program does not start itself anew for it

# ---- reporting -----------------------------------------------------------------------------------------------------------------------

json_text() { # a JSON string
  local s=$1
  s=${s//\\/\\\\}
  s=${s//\"/\\\"}
  s=${s//$'\n'/\\n}
  s=${s//[[:cntrl:]]/ }
  printf '"%s"' "$s"
}

# report CHECK yes|no DETAIL: one row of the part's checks.
report() {
  local ok=true mark=ok
  [ "$2" = yes ] || { ok=false; mark=FAILED; }
  printf '%-6s %s: %s\n' "$mark" "$1" "$3"
  printf '{"check":%s,"ok":%s,"detail":%s}\n' "$(json_text "$1")" "$ok" "$(json_text "$3")" >>"$out/$only.rows"
}

detail() { printf '%s' "$1" >"$out/$only.detail"; }   # for the table; without it: the number of checks, or the first that failed

skip() {
  detail "$1"
  exit $skipped
}

last_line() { tail -n 1 "$1" | cut -c 1-300; }

# run NAME COMMAND...: its outputs go to $work/NAME.out and .err; leaves the exit code in $code.
run() {
  local name=$1
  shift
  "$@" >"$work/$name.out" 2>"$work/$name.err"
  code=$?
}

# number FILE KEY: the last number of that key in lines of JSON.
number() { sed -n "s/.*\"$2\": *\\(-\\{0,1\\}[0-9][0-9.eE+-]*\\).*/\\1/p" "$1" | tail -n 1; }

losses() { sed -n 's/.*"step":.*"loss":\([^,}]*\).*/\1/p' "$1"; }

# ---- training runs -------------------------------------------------------------------------------------------------------------------

model_names="mlp cnn-digits bert-tiny gpt-char"

# job MODEL: the flags of a training run on the model's own batches.
job() {
  local optimizer='adamw{lr=1e-3}' batch=8
  case $1 in
    cnn-digits) optimizer='sgd{lr=0.005,momentum=0.9}' ;;
    gpt-char) batch=4 ;;
  esac
  printf '%s\n' "$models/$1/model.onnx" --dim "batch=$batch" --loss ce:logits,labels --optimizer "$optimizer" --data "npz:$models/$1/batches.npz" --seed 1
}

# train NAME MODEL FLAGS...: run NAME of the model's job.
train() {
  local name=$1 model=$2 flags
  shift 2
  mapfile -t flags < <(job "$model")
  run "$name" "$gradloom" train "${flags[@]}" --json "$@"
}

# compare_losses CHECK LIMIT MODEL FLAGS... [-- FLAGS OF THE DEVICE]: 10 steps on the CPU and on the device.
compare_losses() {
  local check=$1 most=$2 model=$3 flags=() own=()
  shift 3
  while [ $# -gt 0 ] && [ "$1" != -- ]; do flags+=("$1"); shift; done
  [ $# -gt 0 ] && own=("${@:2}")
  train cpu "$model" --steps 10 "${flags[@]}"
  [ "$code" = 0 ] || { report "$check" no "cpu: exit $code: $(last_line "$work/cpu.err")"; return; }
  train device "$model" --steps 10 "${flags[@]}" "${own[@]}" --device "$device"
  [ "$code" = 0 ] || { report "$check" no "exit $code: $(last_line "$work/device.err")"; return; }
  local difference
  difference=$(paste <(losses "$work/cpu.out") <(losses "$work/device.out") | LC_ALL=C awk '
    NF != 2 || $1 + 0 != $1 || $2 + 0 != $2 { wrong = 1 }
    { d = $1 - $2; d = d < 0 ? -d : d; a = $1 < 0 ? -$1 : $1; if (a > 0) d /= a; if (d > most) most = d }
    END { if (wrong || NR != 10) print "nan"; else printf "%.3g", most }')
  local ok=no
  LC_ALL=C awk -v d="$difference" -v most="$most" 'BEGIN { exit !(d != "nan" && d + 0 <= most + 0) }' && ok=yes
  report "$check" "$ok" "losses of 10 steps differ by $difference (relative; at most $most)"
}

# ---- the parts -----------------------------------------------------------------------------------------------------------------------

part_build() {
  if [ "$kind" = host-gpu ]; then
    detail "the host executor comes with the program"
    return
  fi
  local row
  row=$("$gradloom" devices --json 2>/dev/null | grep -F "\"device\":\"$device\"")
  if [ -f "$root/BUNDLE" ] && [ -f "$root/lib/libgradloom_$kind.so" ] && [[ $row == *'"available":true'* ]]; then
    report plugin yes "the archive's own runs here: $(stat -c %s "$root/lib/libgradloom_$kind.so") bytes"
    return
  fi
  run build "$root/dev" plugin "$kind"
  tail -n 40 "$work/build.out" "$work/build.err"
  local file=$root/build/gpu/libgradloom_$kind.so
  [ "$code" = 0 ] && [ -f "$file" ] && { report plugin yes "$(stat -c %s "$file") bytes"; return; }
  report plugin no "exit $code: $(last_line "$work/build.err")"
}

part_devices() {
  run devices "$gradloom" devices --json
  cp "$work/devices.out" "$out/devices.jsonl"
  local row
  row=$(grep -F "\"device\":\"$device\"" "$work/devices.out")
  case $row in
    *'"available":true'*) report "$device" yes "$(sed 's/.*"name":"\([^"]*\)".*/\1/' <<<"$row")" ;;
    *) report "$device" no "$(sed 's/.*"why_not":"\([^"]*\)".*/\1/' <<<"${row:-not listed}")" ;;
  esac
  if command -v nvidia-smi >/dev/null && [ "$kind" = cuda ]; then nvidia-smi -q >"$out/nvidia-smi.txt" 2>&1 || true; fi
  return 0
}

# checked CHECK COMMAND...: a `gradloom check --json`; every failed item is named.
checked() {
  local check=$1
  shift
  run checked "$gradloom" check --json --device "$device" "$@"
  count_checked "$check" "$work/checked.out"
}

# count_checked CHECK ROWS: after a run with exit code $code.
count_checked() {
  local check=$1 passed failed unsupported
  cp "$2" "$out/$only-$check.jsonl"
  passed=$(grep -c '"status":"PASS"' "$2")
  failed=$(grep -c '"status":"FAIL"' "$2")
  unsupported=$(grep -c '"status":"UNSUPPORTED"' "$2")
  grep '"status":"FAIL"' "$2" | head -n 40
  if [ "$code" = 0 ] && [ "$failed" = 0 ] && [ "$passed" -gt 0 ]; then report "$check" yes "$passed passed, $unsupported unsupported"
  else report "$check" no "exit $code, $passed passed, $failed failed, $unsupported unsupported $(last_line "$work/checked.err")"; fi
}

# samples_of PRECISION GLOB: their rows, when the process that checks them comes to its end.
samples_of() {
  run checked "$gradloom" check --json --device "$device" --precision "$1" --samples "$2"
  [ "$code" = 0 ] || [ "$code" = 1 ] || return 1
  cat "$work/checked.out" >>"$work/samples"
}

# A launch that fails ends the process with all samples in it. So what does not come to its end is checked again in smaller groups, each
# in a process of its own: by first letter, by operator, one by one. The sample with the launch is lost, and no other.
part_samples() {
  local precision letter op sample names
  for precision in f32 f64 f16 bf16; do
    run probe "$gradloom" check --samples Relu --precision "$precision" --device "$device"
    [ "$code" != 2 ] || { echo "$precision: not in this build"; continue; }
    : >"$work/samples"
    if ! samples_of "$precision" "$glob"; then
      echo "$precision: exit $code: $(last_line "$work/checked.err"); smaller groups follow"
      names=$("$gradloom" check --json --samples "$glob" --precision "$precision" | sed -n 's/^{"name":"\([^"]*\)".*/\1/p')
      for letter in $(cut -c 1 <<<"$names" | sort -u); do
        [ "$glob" = '*' ] && samples_of "$precision" "$letter*" && continue
        for op in $(grep "^$letter" <<<"$names" | cut -d / -f 1 | sort -u); do
          samples_of "$precision" "$op" && continue
          while read -r sample; do
            samples_of "$precision" "$sample" ||
              printf '{"name":"%s","status":"FAIL","reason":%s}\n' "$sample" "$(json_text "exit $code: $(last_line "$work/checked.err")")" >>"$work/samples"
          done < <(grep "^$op/" <<<"$names")
        done
      done
    fi
    count_checked "$precision" "$work/samples"
  done
}

part_models() {
  checked none "$models" --passes none
  checked default "$models" --passes default
}

# Nothing is missing and nothing fails that a library should compute; libraries-MODEL-PRECISION.txt says what computed what.
part_libraries() {
  local model precision from
  for model in $model_names; do
    for precision in f32 bf16; do
      rm -f "$work/libraries.db"
      train strict "$model" --steps 4 --precision "$precision" --device "$device" --strict-libraries on --profile all --session "$work/libraries.db"
      [ "$code" = 0 ] || { report "$model $precision" no "exit $code: $(last_line "$work/strict.err")"; continue; }
      run shown "$gradloom" show "$work/libraries.db" --group implementation --limit 1000
      cp "$work/shown.out" "$out/libraries-$model-$precision.txt"
      run shown "$gradloom" show "$work/libraries.db" --json
      from=$(sed -n 's/.*"gpu.kernel_times":"\([^"]*\)".*/\1/p' "$work/shown.out")
      report "$model $precision" yes "kernels' times are from ${from:-nowhere}"
    done
  done
}

part_parity() {
  local model passes
  for model in $model_names; do
    for passes in none default; do compare_losses "$model passes $passes" 1e-5 "$model" --passes "$passes"; done
  done
  compare_losses "mlp sgd nesterov" 1e-5 mlp --optimizer 'sgd{lr=0.05,momentum=0.9,nesterov=true,weight_decay=1e-2}'
  compare_losses "mlp lamb" 1e-5 mlp --optimizer 'lamb{lr=1e-2}'
  compare_losses "mlp adagrad" 1e-5 mlp --optimizer 'adagrad{lr=1e-2}'
  compare_losses "mlp lion" 1e-5 mlp --optimizer 'lion{lr=1e-4}'
  compare_losses "mlp adamw_hf" 1e-5 mlp --optimizer 'adamw_hf{lr=1e-3}'
  compare_losses "mlp adafactor" 1e-5 mlp --optimizer 'adafactor{beta1=0.9}'
  compare_losses "mlp amsgrad" 1e-5 mlp --optimizer 'adamw{lr=1e-3,amsgrad=true}'
  compare_losses "mlp rmsprop" 1e-5 mlp --optimizer 'rmsprop{lr=1e-3,momentum=0.9,centered=true,eps=1e-3}'
  compare_losses "mlp nadam" 1e-5 mlp --optimizer 'nadam{lr=1e-3}'
  compare_losses "mlp radam" 1e-5 mlp --optimizer 'radam{lr=1e-3}'
  compare_losses "mlp adadelta" 1e-5 mlp --optimizer adadelta
  compare_losses "mlp groups, clipped by value" 1e-5 mlp --optimizer 'adamw{lr=1e-3}' --clip-value 0.01 --group '*bias{weight_decay=0,lr_factor=2}'
  compare_losses "mlp adam, clipped" 1e-5 mlp --optimizer 'adam{lr=1e-3}' --clip-norm 0.5
  compare_losses "mlp accumulate 4" 1e-5 mlp --accumulate 4
  for model in $model_names; do
    compare_losses "$model bf16 against f32" 5e-2 "$model" -- --precision bf16
    compare_losses "$model bf16" 2e-2 "$model" --precision bf16
  done
}

part_determinism() {
  local model other
  for model in $model_names; do
    train first "$model" --steps 10 --device "$device" --save-params "$work/first.npz"
    [ "$code" = 0 ] || { report "$model" no "exit $code: $(last_line "$work/first.err")"; continue; }
    for other in on off; do
      train second "$model" --steps 10 --device "$device" --record "$other" --save-params "$work/second.npz"
      if [ "$code" != 0 ]; then report "$model, record $other" no "exit $code: $(last_line "$work/second.err")"
      elif ! cmp -s <(losses "$work/first.out") <(losses "$work/second.out"); then report "$model, record $other" no "losses differ"
      elif ! cmp -s "$work/first.npz" "$work/second.npz"; then report "$model, record $other" no "trained parameters differ"
      else report "$model, record $other" yes "losses and parameters of 10 steps have the same bits"; fi
    done
  done
}

# refused CHECK PATTERN: the last run ended with exit code 6 and one line on stderr that matches.
refused() {
  local text lines
  text=$(last_line "$work/device.err")
  lines=$(grep -c . "$work/device.err")
  if [ "$code" = 6 ] && [ "$lines" = 1 ] && grep -qE "$2" <<<"$text"; then report "$1" yes "$text"
  else report "$1" no "exit $code, $lines lines (expected: exit 6, one line with '$2'): $text"; fi
}

part_memory() {
  train device gpt-char --steps 2 --device "$device" --dim batch=100000000 --data synthetic
  refused "a run that does not fit" 'the plan needs .* free; largest at the peak: .*/'
  # Allocations fail one after the other until the run has what it needs.
  local n failed=0 done_at=""
  if [ "$kind" = host-gpu ]; then
    for n in $(seq 1 200); do
      GRADLOOM_HOSTGPU_FAIL="allocate:$n=4" train device mlp --steps 2 --device "$device"
      [ "$code" = 0 ] && { done_at=$n; break; }
      refused "allocation $n fails" 'allocat'
      failed=$n
    done
  else
    for n in 0 2 4 8 16 32 64 128 256 512 1024; do
      GRADLOOM_GPU_LEAVE_MB=$n train device gpt-char --steps 2 --device "$device"
      [ "$code" = 0 ] && { done_at="$n MiB"; break; }
      refused "$n MiB left" 'memory|alloc'
      failed=$((failed + 1))
    done
  fi
  if [ -n "$done_at" ] && [ "$failed" -gt 0 ]; then report "enough memory again" yes "$failed runs refused, the one at $done_at trained"
  else report "enough memory again" no "$failed runs refused, trained at: ${done_at:-none}"; fi
}

# lost CHECK FLAGS...: the run of which the device was lost, in a session. HIP ends the process itself on a fault.
lost() {
  local check=$1 row
  shift
  rm -f "$work/lost.db"
  train device mlp --steps 20 --device "$device" --session "$work/lost.db" "$@"
  run runs "$gradloom" runs "$work/lost.db" --json
  row=$(last_line "$work/runs.out")
  if [ "$kind" = hip ] && [ "$code" = 0 ] && [[ $row == *'"status":"interrupted"'* ]]; then report "$check" yes "the process ended, the run reads as interrupted"
  elif [[ $row != *'"status":"failed"'* || $row != *'device lost'* ]]; then report "$check" no "the session says: ${row:-nothing}; $(last_line "$work/device.err")"
  else
    train device mlp --steps 20 --device "$device" "$@"
    refused "$check" 'device lost'
  fi
}

part_faults() {
  local record
  for record in on off; do
    if [ "$kind" = host-gpu ]; then
      GRADLOOM_HOSTGPU_FAIL="run:5=6" lost "a lost device, record $record" --record "$record"
      GRADLOOM_HOSTGPU_FAIL="run:5=5" train device mlp --steps 2 --device "$device" --record "$record"
      refused "a launch that fails, record $record" 'failure on demand'
    else
      GRADLOOM_GPU_TRAP=5 lost "a kernel that traps, record $record" --record "$record"
    fi
  done
  train device mlp --steps 2 --device "$device"
  if [ "$code" = 0 ]; then report "the next process" yes "trains"; else report "the next process" no "exit $code: $(last_line "$work/device.err")"; fi
}

part_sanitizer() {
  local tool sanitizer
  sanitizer=$(command -v compute-sanitizer || ls "${CUDA_HOME:-/usr/local/cuda}/bin/compute-sanitizer" 2>/dev/null)
  [ "$kind" = cuda ] || skip "compute-sanitizer is for CUDA"
  [ -n "$sanitizer" ] || skip "no compute-sanitizer"
  for tool in memcheck racecheck; do
    run "$tool" timeout -k 10 $((limit * 45 / 100)) "$sanitizer" --tool "$tool" --error-exitcode 99 --log-file "$out/$tool.log" \
      "$gradloom" check --samples '*' --device "$device"
    local summary
    summary=$(grep 'ERROR SUMMARY' "$out/$tool.log" | tail -n 1 | sed 's/^=* *//')
    if [ "$code" = 0 ]; then report "$tool" yes "${summary:-no errors}"
    elif [ "$code" = 124 ] || [ "$code" = 137 ]; then report "$tool" no "not finished in $((limit * 45 / 100)) s (--limit gives more)"
    else report "$tool" no "exit $code ${summary:-$(last_line "$work/$tool.err")}"; fi
  done
}

# A Python that has PyTorch with a GPU.
torch_python() {
  local python
  for python in "${PYTHON:-}" python3 /usr/bin/python3; do
    [ -n "$python" ] && "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null && { echo "$python"; return; }
  done
  return 1
}

own_times() { # without a peer: our step times alone
  local model
  for model in $model_names; do
    train device "$model" --steps "${1:-100}" --device "$device"
    if [ "$code" = 0 ]; then report "$model" yes "median step $(number "$work/device.out" median_step_ns) ns"
    else report "$model" no "exit $code: $(last_line "$work/device.err")"; fi
  done
}

# against_torch PYTHON PRECISION: rows come as they are measured, so that a time limit leaves those before it.
against_torch() {
  local row
  "$1" "$root/bench/vs_torch.py" --device cuda --gradloom "$gradloom" --precision "$2" --blocks 8 --launches 1 --json 2>"$work/vs_torch.err" |
    while read -r row; do
      printf '%s\n' "$row" >>"$out/vs_torch.jsonl"
      report "$(sed 's/.*"model": "\([^"]*\)".*/\1/' <<<"$row") $2 $(sed 's/.*"variant": "\([^"]*\)".*/\1/' <<<"$row")" yes \
        "$(LC_ALL=C printf '%.2fx of PyTorch [%.2f, %.2f]' "$(number - ratio <<<"$row")" "$(number - low <<<"$row")" "$(number - high <<<"$row")")"
    done
  code=${PIPESTATUS[0]}
  cat "$work/vs_torch.err"
  [ "$code" = 0 ] || report "vs_torch $2" no "exit $code: $(grep '^vs_torch' "$work/vs_torch.err" | tail -n 1)"
}

part_bench() {
  local python
  rm -f "$out/vs_torch.jsonl"
  if [ "$kind" = host-gpu ]; then own_times 5; detail "no peer on host-gpu; steps ran"
  elif python=$(torch_python); then against_torch "$python" f32
  else own_times; detail "no PyTorch with a GPU; our times only"; fi
}

part_bench_bf16() {
  local python
  [ "$kind" != host-gpu ] && python=$(torch_python) || skip "no PyTorch with a GPU"
  against_torch "$python" bf16
}

part_overhead() {
  local model steps=300 value
  [ "$kind" = host-gpu ] && steps=40
  for model in mlp gpt-char; do
    [ "$kind" = host-gpu ] && [ $model = gpt-char ] && continue   # minutes
    rm -f "$work/profiled.db"
    train device "$model" --steps $steps --device "$device" --session "$work/profiled.db" --profile sampled
    [ "$code" = 0 ] || { report "$model" no "exit $code: $(last_line "$work/device.err")"; continue; }
    value=$(sed -n 's/.*"profiler_overhead":{\([^}]*\)}.*/\1/p' "$work/device.out" | tr -d '"')
    run show "$gradloom" show "$work/profiled.db" --group kernel --json
    if [ "$code" = 0 ] && [ -n "$value" ] && [ -s "$work/show.out" ]; then report "$model" yes "of a timed step: $value"
    else report "$model" no "overhead '${value:-not known}', $(grep -c . "$work/show.out") kernel rows"; fi
  done
}

if [ -n "$only" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  "part_$only"
  ! grep -qs '"ok":false' "$out/$only.rows"
  exit
fi

# ---- the table -----------------------------------------------------------------------------------------------------------------------

table=() summaries="" failed=0
for part in $parts; do
  rm -f "$out/$part".{rows,detail,json,log}
  printf '\033[1m== %s\033[0m\n' "$part"
  start=$SECONDS
  timeout -k 10 "$limit" bash "$0" --gradloom "$gradloom" --device "$device" --out "$out" --limit "$limit" --samples "$glob" --only "$part" 2>&1 | tee "$out/$part.log"
  code=${PIPESTATUS[0]}
  seconds=$((SECONDS - start))
  touch "$out/$part.rows"
  case $code in
    0) result=pass ;;
    "$skipped") result=skip ;;
    124 | 137) result=timeout ;;
    *) result=fail ;;
  esac
  text=$(cat "$out/$part.detail" 2>/dev/null)
  first=$(grep -m 1 '"ok":false' "$out/$part.rows" | sed 's/^{"check":"\(.*\)","ok":false,"detail":"\(.*\)"}$/\1: \2/')
  [ -n "$first" ] && text="$(grep -c '"ok":false' "$out/$part.rows") of $(grep -c . "$out/$part.rows") checks failed; $first"
  [ -n "$text" ] || { [ $result = fail ] && text="exit $code: $(last_line "$out/$part.log")"; }
  rows=$(grep -c . "$out/$part.rows")
  [ -n "$text" ] || { [ "$rows" = 1 ] && text=$(sed 's/.*"detail":"\(.*\)"}$/\1/' "$out/$part.rows") || text="$rows checks"; }
  [ $result = pass ] || [ $result = skip ] || failed=1
  head="{\"part\":\"$part\",\"result\":\"$result\",\"seconds\":$seconds,\"detail\":$(json_text "$text")"
  printf '%s,"checks":[%s]}\n' "$head" "$(paste -s -d, "$out/$part.rows")" >"$out/$part.json"
  rm -f "$out/$part".{rows,detail}
  summaries+="${summaries:+,}$head}"
  table+=("$(printf '%-12s %-8s %7s  %s' "$part" "$result" "$seconds" "$(cut -c 1-90 <<<"$text")")")
done
printf '{"device":%s,"version":%s,"date":"%s","host":%s,"parts":[%s]}\n' "$(json_text "$device")" "$(json_text "$("$gradloom" --version 2>/dev/null)")" \
  "$(date -u +%FT%TZ)" "$(json_text "$(uname -sr)")" "$summaries" >"$out/summary.json"
printf '\n%-12s %-8s %7s  %s\n' part result seconds detail
printf '%s\n' "${table[@]}"
printf '\n%s\n' "$out/summary.json"
exit $failed
