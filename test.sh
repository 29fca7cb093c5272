#!/usr/bin/env bash
# Runs the tests.
#   ./test.sh          everything that needs only cargo
#   ./test.sh --all    also formatting, lints, documentation, packages and the crates that need LLVM 22 and ptxas
#                      (installed with apt and pip where they are missing), and the Python package in a fresh environment
#   ./test.sh --rest   what --all adds to the first
set -euo pipefail
cd "$(dirname "$0")"
export INSTA_UPDATE=no

# Prints what a step took and when it ended, so that one can see which have become slow.
step() {
    echo "== $*"
    local start=$SECONDS
    "$@"
    took+="$(printf '%5d s  %s' $((SECONDS - start)) "$*")"$'\n'
    echo "== $((SECONDS - start)) s, $SECONDS s since the start: $*"
}
took=""
trap 'printf "%s" "$took"' EXIT

case "${1:-}" in
"")
    step cargo test
    exit
    ;;
--all) step cargo test ;;
--rest) ;;
*)
    echo "usage: ./test.sh [--all | --rest]" >&2
    exit 2
    ;;
esac

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

step cargo fmt --all --check
step cargo clippy --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" step cargo doc --workspace --no-deps
# Packages whose features all commands below, and a plain `cargo test`, compile alike.
alike=(-p oplus-test-features)
# What a plain `cargo test` leaves out. The extension module of Python is linked by maturin alone.
step cargo test -p oplus-llvm -p oplus-cli -p oplus-candle -p oplus-burn "${alike[@]}"
# The program that the tests of the command have just run.
export OPLUS="${CARGO_TARGET_DIR:-$PWD/target}/debug/oplus"
# The crates that do the work are optimised in this profile too.
step "$OPLUS" generate --check
step "$OPLUS" receipts --check
step .ci/page
# Machine code for the CPU, beside the instructions that it stands for. To optimise the runtime once more takes longer than its tests.
step cargo test -p oplus "${alike[@]}" --lib --features oplus/jit --config 'profile.dev.package.oplus.opt-level=0' native
step .ci/candle-cuda
step .ci/packages
# Last of what the compiler only checks, since the code for one version of CUDA is compiled again for another.
for version in 12080 13000 13040; do
    CUDARC_CUDA_VERSION=$version step cargo check -p oplus "${alike[@]}"
done
step .ci/size
step .ci/python
