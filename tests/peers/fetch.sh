#!/usr/bin/env bash
# Brings the peers that do not come with PyTorch into a folder, as wheels and one source distribution.
#   tests/peers/fetch.sh FOLDER
set -euo pipefail
out=${1:?usage: tests/peers/fetch.sh FOLDER}
mkdir -p "$out"
python3 -m pip install -q packaging wheel setuptools ninja
python3 -m pip download -q --no-deps -d "$out" accelerated-scan==0.3.1 fla-core==0.6.0 flash-linear-attention==0.6.0
# mamba-ssm's set-up asks for PyTorch merely to be described; an empty stand-in is enough to download it.
stub=$(mktemp -d)
trap 'rm -rf "$stub"' EXIT
mkdir -p "$stub/torch/utils"
printf '__version__ = "2.11.0"\nclass version:\n    cuda, hip = "13.0", None\n' >"$stub/torch/__init__.py"
: >"$stub/torch/utils/__init__.py"
printf 'CUDA_HOME = HIP_HOME = CppExtension = None\nBuildExtension = object\ndef CUDAExtension(*a, **k): pass\n' >"$stub/torch/utils/cpp_extension.py"
MAMBA_SKIP_CUDA_BUILD=TRUE PYTHONPATH="$stub" python3 -m pip download -q --no-deps --no-binary :all: --no-build-isolation -d "$out" mamba-ssm==2.3.2.post1
ls -l "$out"
