#!/usr/bin/env bash
# Runs the tests.
#   ./test.sh          everything that needs only cargo
#   ./test.sh --all    also formatting, lints, documentation, packages and the crate that needs LLVM 22 and ptxas
#                      (installed with apt and pip where they are missing), and the Python package in a fresh environment
set -euo pipefail
cd "$(dirname "$0")"
export INSTA_UPDATE=no

if [ "${1:-}" != --all ]; then
    exec cargo test
fi

if [ ! -x /usr/lib/llvm-22/bin/llvm-config ]; then
    echo "installing LLVM 22"
    apt-get update -qq
    apt-get install -y -qq llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev
fi
if ! command -v ptxas >/dev/null && ! python3 -c 'import nvidia.cu13' 2>/dev/null; then
    echo "installing ptxas"
    python3 -m pip install -q nvidia-cuda-nvcc
fi
if ! command -v ptxas >/dev/null; then
    OPLUS_PTXAS=$(python3 -c 'import nvidia.cu13, pathlib; print(pathlib.Path(list(nvidia.cu13.__path__)[0]) / "bin" / "ptxas")')
    export OPLUS_PTXAS
fi

cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
# The extension module of Python is linked by maturin alone.
cargo test --workspace --exclude oplus-python
for version in 12080 13000 13040; do
    CUDARC_CUDA_VERSION=$version cargo check --target-dir target/bindings -p oplus
done
cargo run --release -p oplus-llvm -- generate --check
cargo run --release -p oplus-llvm -- receipts --check
.ci/packages
.ci/python
