#!/usr/bin/env bash
# Packs what a GPU machine without a network lacks: `tests/bench/gpu/pack.sh [PYTHON_VERSION]`, by default 3.12.
#
# Makes .gpu/ in the project's root, which travels with the checkout: wheels of what tuiapp and its proof need beside
# PyTorch, JAX, Flax, Optax and NumPy, which such a machine has. `prove.sh` installs them there.
set -euo pipefail
cd "$(dirname "$0")/../../.."
version=${1:-3.12}
rm -rf .gpu
mkdir -p .gpu/wheels
platforms=()
for platform in manylinux_2_28_x86_64 manylinux_2_17_x86_64 manylinux2014_x86_64 manylinux_2_12_x86_64 any; do
    platforms+=(--platform "$platform")
done
# What they need in turn is named, too: of Keras and Flax that would be frameworks.
python3 -m pip download --quiet --dest .gpu/wheels --no-deps --only-binary=:all: \
    --python-version "$version" --implementation cp "${platforms[@]}" \
    'textual~=8.2.8' msgspec psutil nvidia-ml-py pooch tomlkit \
    rich markdown-it-py mdurl mdit-py-plugins linkify-it-py uc-micro-py typing-extensions platformdirs packaging \
    pygments requests urllib3 idna certifi charset-normalizer 'keras>=3.15,<4' absl-py namex h5py optree \
    'pytest>=8.3,<9' pytest-timeout iniconfig pluggy pexpect ptyprocess pyte wcwidth pillow \
    hatchling pathspec trove-classifiers editables filelock
du -sh .gpu
