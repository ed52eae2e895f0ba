#!/usr/bin/env bash
# test_wheel.sh WHEEL: install it where no source is, and run the tests that need none.
set -euo pipefail
wheel=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
alone=$(mktemp -d)
trap 'rm -rf "$alone"' EXIT
# The tests come along, the package and its data do not.
cp -R "$root/tests" "$alone/tests"
cp "$root/pyproject.toml" "$alone/"
cd "$alone"
"${PYTHON:-python}" -m venv venv
if [ -d venv/Scripts ]; then bin=$alone/venv/Scripts; else bin=$alone/venv/bin; fi
"$bin/python" -m pip install --quiet --disable-pip-version-check "$wheel" "pytest>=8.3" "pytest-xdist>=3.6" "hypothesis>=6.120"
"$bin/python" -I -c "import kvplan, pathlib, sys
home = pathlib.Path(kvplan.__file__).resolve()
sys.exit(0 if 'site-packages' in home.parts else f'kvplan comes from {home}')"
"$bin/kvplan" --version
"$bin/kvplan" size qwen3-32b --gpu h200 --tokens 32768
"$bin/kvplan" list gpus > gpus.txt
"$bin/kvplan" list models > models.txt
"$bin/kvplan" doctor || test $? -eq 1
"$bin/python" -m pytest -q -n 2 -p no:cacheprovider tests/core tests/test_known_cases.py tests/test_published_configs.py \
  tests/engines/test_vllm_recorded.py tests/files/test_strict_yaml.py tests/files/test_json_input.py
