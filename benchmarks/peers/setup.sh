#!/bin/sh
# Makes what the peers need: a virtual environment, and the model in the forms that they read.
#
#   benchmarks/peers/setup.sh [FOLDER] [MODEL]     FOLDER: build/peers, MODEL: coder-0.5b (a name from the catalogue)
#
# PYTHON makes the environment, VIVACE is the command that knows where the model's file is. Some 2 GB and a few minutes.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-build/peers}
model=${2:-coder-0.5b}
vivace=${VIVACE:-vivace}

test -x "$folder/bin/python" || "${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --requirement "$here/requirements.txt"
# optimum-intel's exporters import torchvision when it is there, and the index's build of it wants another PyTorch.
"$folder/bin/python" -m pip uninstall --quiet --yes torchvision 2>/dev/null || true

"$vivace" models pull "$model"
"$folder/bin/python" "$here/convert.py" "$("$vivace" models path "$model")" "$folder/models" "$model"
echo "ready: vivace bench speed --model $model --peers $here --peers-data $folder"
