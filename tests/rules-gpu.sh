#!/usr/bin/env bash
# Checks other libraries' rules of error on a GPU: attention, linear attention and SSD, delta rules and layers around them.
#   tests/rules-gpu.sh PROGRAM [FOLDER]
# PROGRAM is oplus-check, built with `--release --features jit`; what each process prints is written to FOLDER. Cases of these checks run one
# after the other in a process, and wait for the compiler most of the time, so that each kind has a process of its own: four minutes on 16 cores.
set -uo pipefail
program=$(realpath "${1:?usage: tests/rules-gpu.sh PROGRAM [FOLDER]}")
out=${2:-$(mktemp -d)}
at_once=${AT_ONCE:-$(nproc)}
mkdir -p "$out"

patterns() {
    for digit in 0 1 2 3 4 5 6 7 8 9; do echo "^rules/[0-9]*$digit attention"; done
    echo "^rules/ssd"
    for elem in bf16 f16 f32; do
        for decay in Time Packed Channel Shared TimeInvariant Rates Head Never; do echo "^rules/linear attention $decay $elem "; done
        for rule in r m n p k e gated_d.*rule gated_d.*layer gated_k gated_l d; do echo "^rules/delta $rule.* $elem "; done
    done
}

check() {
    local file long=""
    file="$out/$(echo "$1" | tr -c 'a-zA-Z0-9\n' '_')"
    # Only long checks have linear attention in f16 and f32.
    [[ $1 == *linear* ]] && long=--long
    "$program" $long --threads 1 --only "$1" >"$file" 2>&1
    local status=$?
    echo "$([ $status = 0 ] && echo holds || echo FAILS): $1 $(grep -h '^largest error' "$file")"
    return $status
}
export -f check
export program out
patterns | xargs -P "$at_once" -I{} bash -c 'check "$1"' _ {} || { echo "see $out" >&2; exit 1; }
