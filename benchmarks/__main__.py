"""Measure the speed of the fastgae that is installed. ``python benchmarks COMMAND --help`` says more.

gate         did anything become slower? Exit status 1 if it did
ab           two commits, built and timed in turn
figures      charts and tables about speed in README.md and docs/
data         recorded data: steps per second and peak memory from Parquet to Parquet
gpu          tensors on a GPU
first-light  three commands that tell on a new GPU what there is to tell
"""

import argparse
import importlib
import sys
from pathlib import Path

COMMANDS = {
    "gate": "speed.gate.command",
    "ab": "speed.gate.ab",
    "figures": "speed.figures.command",
    "data": "speed.data.command",
    "gpu": "speed.gpu.command",
    "first-light": "speed.gpu.first_light",
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "python benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    command = parser.parse_args(sys.argv[1:2]).command
    sys.argv[0] = f"benchmarks {command}"  # which argparse shows
    if command == "first-light":  # on a new GPU, fastgae need not be installed
        sys.path.append(str(Path(__file__).parents[1]))
    sys.exit(importlib.import_module(COMMANDS[command]).main(sys.argv[2:]))
