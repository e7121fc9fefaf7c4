"""``python -m sparsegen``: the command line."""

import sys

from sparsegen.cli import main

if __name__ == "__main__":
    sys.exit(main())
