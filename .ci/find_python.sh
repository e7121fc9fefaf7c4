#!/bin/sh
# Print a Python that is at least 3.10 and can make a virtual environment; say what to do where there is none.
# Usage: find_python.sh [PYTHON]
found=
for python in ${1:+"$1"} python3 python3.13 python3.12 python3.11 python3.10 python3.14 python; do
    # A name on PATH may still not run (pyenv's shims), so try it.
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1 || continue
    found=$python
    if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        "$python" -c 'import sys; print(sys.executable)'
        exit 0
    fi
done
if [ -n "$found" ]; then
    echo "sparsegen: $found cannot make a virtual environment (no venv or ensurepip)." >&2
    echo "remedy: install it (Debian, Ubuntu: apt install python3-venv), or name another: make PYTHON=/path/to/python ..." >&2
else
    echo "sparsegen: no Python 3.10 or newer found on PATH." >&2
    echo "remedy: install one, or name it: make PYTHON=/path/to/python ..." >&2
fi
exit 1
