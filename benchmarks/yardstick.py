"""Start the yardstick: ``python benchmarks/yardstick.py --help`` lists its options."""

import sys

from speed.yardstick.command import main

if __name__ == "__main__":
    sys.exit(main())
