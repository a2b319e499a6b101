"""Run the fuzzer: ``python -m fuzz``."""

import sys

from .run import main

sys.exit(main())
