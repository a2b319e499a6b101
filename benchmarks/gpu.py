"""Start the benchmark of tensors on a GPU: ``python benchmarks/gpu.py --help`` lists its options."""

import sys

from speed.gpu.command import main

if __name__ == "__main__":
    sys.exit(main())
