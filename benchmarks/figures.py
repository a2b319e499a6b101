"""Start the figures: ``python benchmarks/figures.py --help`` lists its sections."""

import sys

from speed.figures.command import main

if __name__ == "__main__":
    sys.exit(main())
