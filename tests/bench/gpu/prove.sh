#!/usr/bin/env bash
# Proves the program on a GPU machine without a network: `tests/bench/gpu/prove.sh OUTPUT [ARGUMENTS]`.
#
# Makes an environment of what `pack.sh` has packed over the packages of PYTHON (python3), whose frameworks are used as
# they are, and runs `python -m tests.bench.gpu --output OUTPUT ARGUMENTS` there. OUTPUT/pack.tar.gz is what to keep.
set -euo pipefail
output=$(realpath --canonicalize-missing "${1:?an output directory}")
shift
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
environment=$(mktemp -d)/env
# Read from the disk while the rest is installed.
"$python" -c 'import torch' > /dev/null 2>&1 &
"$python" -c 'import jax, flax, optax' > /dev/null 2>&1 &
"$python" -m venv --system-site-packages "$environment"
# Where PYTHON is of a virtual environment itself, the new one would see its base alone.
"$python" -c 'import site; print("\n".join(site.getsitepackages()))' \
    > "$(echo "$environment"/lib/python3.*/site-packages)/outer.pth"
install=("$environment/bin/python" -m pip install --quiet --no-index --find-links .gpu/wheels --no-deps)
"${install[@]}" --ignore-installed .gpu/wheels/*.whl
"${install[@]}" --no-build-isolation --editable .
wait
exec "$environment/bin/python" -m tests.bench.gpu --output "$output" "$@"
