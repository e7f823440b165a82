#!/usr/bin/env bash
# Makes kernels.ptx of kernels.cu, where CUDA's compiler is; the driver of a GPU
# compiles it for the GPU there is. The file says which source it was made of, and
# a test compares.
set -euo pipefail
cd "$(dirname "$0")"
ptx=${1:-kernels.ptx}
# CUDA 13 knows no older GPU than 7.5.
arch=${ARCH:-compute_75}
nvcc -O3 -std=c++17 -arch="$arch" -ptx -o "$ptx.made" kernels.cu
{
  echo "// made by kernels.sh of kernels.cu, sha256 $(sha256sum kernels.cu | cut -d' ' -f1)"
  # The compiler writes its own version, which an older driver refuses; nothing
  # here needs more than 7.0, and the driver that compiles it would say so.
  sed 's/^\.version .*/.version 7.0/' "$ptx.made"
} >"$ptx"
rm "$ptx.made"
