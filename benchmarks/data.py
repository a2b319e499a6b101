"""Start the benchmark of recorded data: ``python benchmarks/data.py --help`` lists its options."""

import sys

from speed.data.command import main

if __name__ == "__main__":
    sys.exit(main())
