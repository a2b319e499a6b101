"""Run the command line: ``python -m fastgae``."""

import sys

from fastgae.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
