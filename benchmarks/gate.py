"""Start the gate: ``python benchmarks/gate.py --help`` lists its checks."""

import sys

from speed.gate.command import main

if __name__ == "__main__":
    sys.exit(main())
