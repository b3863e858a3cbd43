#!/usr/bin/env bash
# plugin_test.sh: what ./dev plugin asks of the tools of a machine: code for the GPUs that are there and no more, by CMake from 3.22 with or
# without ninja, by nvcc alone where CMake is older or missing. The tools are stand-ins that write down how they were called.
set -euo pipefail
root=$(dirname "$(dirname "$(dirname "$(readlink -f "$0")")")")
fail() { echo "plugin_test: $*" >&2; cat "$work/said" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
mkdir -p "$work/bin" "$work/tree/kernels/gpu" "$work/tree/engine/device/gpu/runtime"
cp "$root/dev" "$work/tree/"
touch "$work/tree/kernels/gpu/a.cu" "$work/tree/kernels/gpu/workspace.cpp" "$work/tree/engine/device/gpu/runtime/"{device,rocblas,hip_runtime}.cpp
touch "$work/tree/engine/device/gpu/runtime/trap.cu"
for tool in bash env dirname readlink sed sort head tail cut grep tr paste mkdir rm ls xargs nproc basename sh cat; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done

tool() { printf '#!%s\n%s\n' "$(command -v bash)" "$2" >"$work/bin/$1"; chmod +x "$work/bin/$1"; }   # name, script
tool nvcc '[ "$1" != --list-gpu-arch ] || { printf "compute_%s\n" 80 86 90 100; exit; }; echo "nvcc $*" >>"$CALLS"'
cmake_of() { tool cmake '[ "$1" != --version ] || { echo "cmake version '"$1"'"; exit; }; echo "cmake $*" >>"$CALLS"'; }
plugin() { : >"$work/calls"; CALLS=$work/calls PATH=$work/bin HOME=$work "$work/tree/dev" plugin "$@" >"$work/said" 2>&1 || fail "plugin $*"; }
called() { grep -qF -- "$1" "$work/calls" || fail "no '$1' in: $(cat "$work/calls")"; }
not_called() { ! grep -qF -- "$1" "$work/calls" || fail "'$1' in: $(cat "$work/calls")"; }

cmake_of 3.22.1
plugin cuda   # nothing tells what GPU there is
called '-DGRADLOOM_CUDA_CODE=80-real;90a-real;90-virtual'
called '--build build/gpu --target gradloom_cuda'
not_called '-G Ninja'
tool ninja exit
tool nvidia-smi 'printf "9.0\n8.6\n9.0\n"'
plugin cuda
called '-G Ninja'
called '-DGRADLOOM_CUDA_CODE=86-real;90a-real '
plugin cuda all
called '-DGRADLOOM_CUDA_CODE=80-real;90a-real;90-virtual'
tool nvidia-smi 'echo 12.0'   # newer than this nvcc
plugin cuda
called '-DGRADLOOM_CUDA_CODE=90-virtual '
tool nvidia-smi 'echo "No devices were found" >&2; exit 6'
plugin cuda
called '-DGRADLOOM_CUDA_CODE=80-real;90a-real;90-virtual'
tool rocm_agent_enumerator 'printf "gfx000\ngfx942\ngfx942\n"'
plugin hip
called '-DGRADLOOM_HIP_ARCHITECTURES=gfx942'
called '--target gradloom_hip'

cmake_of 3.16.3
tool nvidia-smi 'echo 9.0'
plugin cuda
called '-gencode=arch=compute_90a,code=sm_90a -c kernels/gpu/a.cu'
not_called 'compute_80'
not_called 'rocblas.cpp'
not_called 'hip_runtime.cpp'
called '-shared -cudart=static'
echo "the tools were called as they should be"
