#!/usr/bin/env bash
# Times other libraries and oplus in one run, on a machine with an NVIDIA GPU, nvcc, PyTorch and Triton.
#   tests/peers/run.sh WHEELS BENCH OUT [GROUP ...]
# WHEELS is a folder that fetch.sh has filled, and BENCH is oplus-bench, built with `--release --features jit`. Results go to OUT/peers.jsonl and
# OUT/ours.jsonl; collect.py brings them into docs/benchmarks.jsonl. GROUPS: scan rows monoid s6 attention decode ssd linear delta, all when none is
# named. Triton chooses among many forms of each kernel: they are compiled side by side first (STEPS=compile), and timed with nothing beside them
# (STEPS=time); by default both.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
wheels=$(cd "${1:?usage: tests/peers/run.sh WHEELS BENCH OUT [GROUP ...]}" && pwd)
bench=$(realpath "${2:?BENCH}")
out=${3:?OUT}
shift 3
groups=("$@")
[ ${#groups[@]} -gt 0 ] || groups=(scan rows monoid s6 attention decode ssd linear delta)
steps=${STEPS:-compile time}
work=${PEERS_WORK:-/tmp/oplus-peers}
mkdir -p "$out" "$work"
if [ ! -d "$work/site" ]; then
    python3 -m pip install -q --no-index --no-deps --target "$work/site" "$wheels"/*.whl
    mkdir -p "$work/mamba" && tar xzf "$wheels"/mamba_ssm-*.tar.gz -C "$work/mamba" --strip-components 1
    # Its own __init__ imports the CUDA kernels.
    cp -r "$work/mamba/mamba_ssm" "$work/site/" && echo '__version__ = "2.3.2.post1"' >"$work/site/mamba_ssm/__init__.py"
fi
export PYTHONPATH=$work/site MAMBA_SDIST=$work/mamba TORCH_EXTENSIONS_DIR=$work/extensions MAX_JOBS=$(nproc) TORCH_CUDA_ARCH_LIST=9.0
export TRITON_CACHE_DIR=$work/triton PYTHONDONTWRITEBYTECODE=1

is_wanted() { [[ " ${groups[*]} " == *" $1 "* ]]; }

# Cases whose kernels have nothing in common, by group, case and peer: one process each.
parts() {
    local elem chunk
    for elem in bf16-b8s2048h80 bf16-b8s2048h24 f16 f32; do
        is_wanted ssd && printf '%s\n' "ssd ssd-$elem mamba-ssm" "ssd ssd-$elem fla"
    done
    for elem in bf16 f16 f32; do
        is_wanted linear && printf '%s\n' "linear retention-$elem fla" "linear gla-$elem.*v64 fla" "linear gla-$elem.*v128 fla" "linear linear-attention-$elem fla"
        for rule in delta gated-delta kda; do
            is_wanted delta && printf '%s\n' "delta ^$rule-$elem-b8.*k64 fla" "delta ^$rule-$elem-b8.*k128 fla"
        done
        is_wanted delta && echo "delta rwkv7-$elem-b8 fla"
    done
    is_wanted monoid && echo "monoid decay-f32 fla"
    is_wanted rows && echo "rows affine Triton"
    is_wanted s6 && echo "s6 none none"
}

compile() {
    # Forms that are chosen while others compile would be the wrong ones.
    parts | FLA_CACHE_RESULTS=0 xargs -P "$(nproc)" -I{} bash -c 'set -f; set -- $1; timeout 300 python3 "$0/peers.py" --compile-only "$1" --case "$2" --peer "$3"' "$here" {} >"$out/compile.log" 2>&1
    if is_wanted scan; then nvcc -O3 -std=c++17 --extended-lambda -arch=sm_90 "$here/cub_scan.cu" -o "$work/cub_scan"; fi
}

time_all() {
    local group
    if is_wanted scan; then "$work/cub_scan" >>"$out/peers.jsonl"; fi
    for group in "${groups[@]}"; do
        python3 "$here/peers.py" "$group" 2>>"$out/peers.err" | grep --line-buffered '^{' >>"$out/peers.jsonl"
        local ours=(--group "$group")
        # oplus-bench has decoding in the group of attention.
        [ "$group" = decode ] && ours=(--case '^decode')
        [ "$group" = attention ] && ours=(--case '^attn')
        "$bench" --unchecked "${ours[@]}" 2>>"$out/ours.err" | grep --line-buffered '^{' >>"$out/ours.jsonl"
        [ "$group" = decode ] && "$bench" --unchecked --clean-cache "${ours[@]}" 2>>"$out/ours.err" | grep --line-buffered '^{' >>"$out/ours.jsonl"
        echo "$SECONDS s: $group"
    done
}

for step in $steps; do
    case $step in
    compile) compile ;;
    time) time_all ;;
    *) echo "STEPS are compile and time" >&2 && exit 2 ;;
    esac
    echo "$SECONDS s: $step"
done
