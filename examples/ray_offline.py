"""Compute the advantages of recorded episodes with Ray: from a folder of files to a folder of Parquet.

Without more, Ray starts on this machine and uses all of its CPUs. On a cluster, install fastgae with its extra "ray" on
every machine, and start Ray there:

  ray start --head                     on the first one, which prints its address
  ray start --address=ADDRESS:6379     on every other one

Then run this program on one of them with --address auto. Every machine must see SOURCE and OUT at the same path. From
elsewhere, `ray job submit --address http://ADDRESS:8265 --working-dir examples -- python ray_offline.py ...` sends it.
"""

import argparse
from pathlib import Path

import ray

import fastgae.ray

EXAMPLES = """\
examples:
  python ray_offline.py episodes advantages                          rows of an episode may lie in any file
  python ray_offline.py episodes advantages --whole-episodes         no file shares an episode with another: no shuffle
  python ray_offline.py lerobot_dataset advantages --ends terminated --normalize global
  python ray_offline.py /shared/episodes /shared/advantages --column rewards=reward --address auto
"""


def column(text: str) -> tuple[str, str]:
    role, separator, name = text.partition("=")
    if not (role and separator and name):
        raise argparse.ArgumentTypeError(f"expected ROLE=NAME, such as rewards=reward, got {text!r}")
    return role, name


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("source", type=Path, help="a folder of recorded episodes, with values in a column")
    add("out", type=Path, help="the folder to write: every row of the source, with two columns more")
    add("--whole-episodes", action="store_true", help="every file has all rows of its episodes")
    add("--column", action="append", default=[], type=column, metavar="ROLE=NAME", help="the column of a role")
    add("--ends", choices=("terminated",), help="every episode ends for good, whatever its flag")
    add("--gamma", type=float, default=0.99, help="discount per step (default: %(default)s)")
    add("--gae-lambda", type=float, default=0.95, help="trace decay (default: %(default)s)")
    add("--normalize", choices=("global",), help="advantages of mean 0 and standard deviation 1 over all data")
    add("--address", help='of a cluster; "auto": the one that this machine belongs to (default: start Ray here)')
    return parser.parse_args(arguments)


def main(settings: argparse.Namespace) -> None:
    if settings.out.exists():
        raise SystemExit(f"{settings.out} exists already: remove it, or name another folder")
    ray.init(address=settings.address, ignore_reinit_error=True)
    dataset = fastgae.ray.compute(
        settings.source,
        whole_episodes=settings.whole_episodes,
        columns=dict(settings.column),
        ends=settings.ends,
        gamma=settings.gamma,
        gae_lambda=settings.gae_lambda,
        normalize=settings.normalize,
    )
    dataset.write_parquet(settings.out.absolute())


if __name__ == "__main__":
    main(parse())
