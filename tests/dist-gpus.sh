#!/usr/bin/env bash
# Checks and times kernels on all GPUs of this machine, in at most four minutes:
#   tests/dist-gpus.sh [PROGRAM [FILE]]
#       PROGRAM   the program `oplus-dist`, otherwise target/release/oplus-dist; built elsewhere by
#                 cargo build --release -p oplus-tests --features jit --bin oplus-dist
#       FILE      where the results go, one JSON line each; otherwise dist.jsonl
#   GPUS, TOKENS, LIBRARY, SECONDS_IN_ALL   how many GPUs; tokens of each rank; seconds for the library's kernels; the limit
# The machine needs NVIDIA's driver and NCCL: that of OPLUS_NCCL, of the system, or of a PyTorch that a `python3` has.
set -euo pipefail

program=${1:-target/release/oplus-dist}
file=${2:-dist.jsonl}
if [ ! -x "$program" ]; then
    echo "there is no program at $program" >&2
    exit 2
fi

nccl() {
    if [ -n "${OPLUS_NCCL:-}" ]; then
        echo "$OPLUS_NCCL"
        return
    fi
    local found python
    found=$(ldconfig -p 2>/dev/null | awk '/libnccl\.so\.2 / { print $NF; exit }')
    for python in /opt/torch/.venv/bin/python "${VIRTUAL_ENV:-/nonexistent}/bin/python" python3; do
        [ -n "$found" ] && break
        found=$("$python" -c '
import glob, sysconfig
found = glob.glob(sysconfig.get_paths()["purelib"] + "/nvidia/nccl/lib/libnccl.so.2")
print(found[0] if found else "")' 2>/dev/null || true)
    done
    echo "$found"
}

OPLUS_NCCL=$(nccl)
if [ -z "$OPLUS_NCCL" ]; then
    echo "no libnccl.so.2 was found; OPLUS_NCCL can have its path" >&2
    exit 2
fi
export OPLUS_NCCL
echo "NCCL: $OPLUS_NCCL" >&2

arguments=(--tokens "${TOKENS:-65536,524288}" --runs 3 --bits 100 --library "${LIBRARY:-60}" --out "$file")
if [ -n "${GPUS:-}" ]; then
    arguments+=(--gpus "$GPUS")
fi
exec timeout --kill-after 5 "${SECONDS_IN_ALL:-235}" "$program" "${arguments[@]}"
