#!/bin/sh
# Makes an environment of its own for LiteLLM's proxy, which `python -m benchmarks.serving gateway` compares with.
#
#   benchmarks/serving/setup.sh [FOLDER]     FOLDER: build/litellm
#
# PYTHON makes the environment. Some 300 MB and two minutes.
set -eu

folder=${1:-build/litellm}
test -x "$folder/bin/python" || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet 'litellm[proxy]'
"$folder/bin/python" -m pip show litellm | sed -n '1,2p'
