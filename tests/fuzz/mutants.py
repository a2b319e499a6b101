"""Plant mistakes in the kernels, one at a time, and say how soon the fuzzer finds each: ``python -m fuzz.mutants``.

Every mutant is compiled with the smallest thresholds, and under a sanitizer if its results are the same bits.
Exit status 1: one was not found within so many calls.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from variants import BUILDS, ROOT, compiled, run_on


@dataclass(frozen=True)
class Mutant:
    """A mistake: a text in a file, and the wrong text that takes its place."""

    what: str
    file: str
    old: str
    new: str
    build: str = "tiny"  # of variants.py
    backend: str = "cpp"  # the one that has the mistake

    @classmethod
    def read(cls, block: str) -> "Mutant":
        head, *lines = block.split("\n")
        what, file, *options = head.split(" | ")
        old, new = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        return cls(what, file, old, new, **dict(option.split("=") for option in options))


# What is wrong, and the file; after "-", the text, and after "+", what takes its place.
TABLE = r"""
off by one at the end of a rollout | csrc/lanes.inl
- ends = t == last_begin
+ ends = false
a gate that ignores truncation | csrc/recursion.inl
- V::both(bootstrap_open, continues)
+ bootstrap_open
final values the wrong way round | csrc/recursion.inl
- V::select(continues, next, V::load(at.final_values + i))
+ V::select(continues, V::load(at.final_values + i), next)
float16 infinity and NaN widened as large numbers | csrc/narrow_float.hpp
- + (special & kRebias)
+ + 0
n-step returns from a step that does not exist | csrc/n_step_returns.inl
- V::store(to, V::select(skipped, V::load(to), here));
+ V::store(to, here);
Retrace with the ratio of a skipped step | csrc/rows.inl
- trace = V::select(V::zero_flags(mask + n), following, trace)
+ trace = trace
Retrace that loses c between tiles | csrc/lanes.inl
- tile.traces[i] = traces[first];
upgo that always follows the next step | csrc/step.inl
- V::at_least(delta, V::all(0)), V::all(1), V::all(0)
+ V::at_least(delta, V::all(0)), V::all(1), V::all(1)
a lost carry between blocks | csrc/lanes.inl
- carries[c] = chain(
+ chain(
a vector remainder left out, time-major | csrc/rows.inl
- while (n > first) row_vectors<Single<Real>
+ while (n > first + 1) row_vectors<Single<Real>
a vector remainder left out, env-major | csrc/lanes.inl
- Index k = tile.first[i];
+ Index k = tile.first[i] + (tile.first[i] > 0);
row 0 of one vector left out | csrc/rows.inl
- * V::width; i >= 0;
+ * V::width; i > 0;
the first line of rows in one array left out | csrc/rows.inl
- for_each_vector<Real>(0, last_line, run)
+ for_each_vector<Real>(kLine<Real>, last_line, run)
a read past the end of narrow rows | csrc/rows.inl
- rollout.steps - reach
+ rollout.steps - 1
pieces of few envs passed on to the wrong env | csrc/parallel.hpp
- env = (first + lane * cut.steps + k + j) % distance
+ env = (lane * cut.steps + k + j) % distance
the end of a shifted run not written | csrc/flat.inl
- if (s == bottom) std::copy_n
+ if (s < 0) std::copy_n
nothing carried over, time-major | csrc/rows.inl
- if (options.blanks())
+ if (options.mask)
nothing carried over, env-major | csrc/lanes.inl
- which, options.blanks()
+ which, options.mask
V' not passed on over two skipped steps | csrc/rows.inl
- V::store(passed, value);
sparse final values in the wrong order | csrc/call_reader.hpp
- rollout_.env_major ? envs_first : steps_first
+ rollout_.env_major ? steps_first : envs_first
byte-swapped numbers read as they are | csrc/conversion.hpp
- if constexpr (swapped) bits = reversed(bits)
+ if constexpr (false) bits = reversed(bits)
n-step returns that run past the end of an episode | csrc/n_step_returns.inl
- V::both(V::zero_flags(at.terminated + i), V::zero_flags(at.truncated + i))
+ V::zero_flags(at.terminated + i)
the end of a streamed run not written | csrc/memory.inl
- for (; first < last; ++first) single(first);
- }
+ }
flags that must be 1 | csrc/flags.hpp
- return ((((eight & low) + low) | eight) >> 7) & kOnes;
+ return eight & kOnes;
moments without the last step of a block | csrc/moments.inl
- rest < at[i].steps;
+ rest + 1 < at[i].steps;
exact sums that take a mask with gaps for one without | csrc/exact_sums.hpp
- stride == length && (!of.mask || mask_stride == length)
+ stride == length
a thread that begins with the wrong piece | csrc/parallel.hpp
- Lane lane = lane_at(first);
+ Lane lane = lane_at(first - first % cut.pieces);
envs of one array that end with the value of another env | csrc/flat.inl
- *last_values.at(0, end.env); };
+ *last_values.at(0, 0); };
envs of one array that go on in the next env | csrc/flat.inl
- others = ~(typename V::Bits(1) << k % V::width);
+ others = ~typename V::Bits(0);
the last step of an env left out of one array | csrc/flat.inl
- if (runs.ends[runs.next].element >= s) end_envs
+ if (runs.ends[runs.next].element > s) end_envs
skipped last steps that pass on V of another env | csrc/flat.inl
- runs.passed[lane][after - 1] = *rollout.last_values.at(0, env);
a run that begins as if its next step existed | csrc/flat.inl
- exists_after[lane] = mask[lane * stride + top] != 0,
+ exists_after[lane] = 1,
flags of one row taken for none | csrc/pieces.hpp
- return repeats_terminated(rollout) && !count_trues(rollout.terminated.data, length);
+ return repeats_terminated(rollout) && length;
envs with gaps read as one array | csrc/kernels.hpp
- (env_major ? view.env : view.step) == length;
+ (env_major ? view.env : view.step) >= length;
a block of memory handed out twice | csrc/recycled.hpp
- return removed(i);
+ return blocks_[i].data;
outputs whose time runs backwards | csrc/call_reader.hpp
- !fit(array, rollout_.steps, view)) return false;
+ !fit(array, rollout_.steps, view)) return false;
+         view.step = std::abs(view.step);
two threads that compute the same environment | csrc/threads.hpp | build=thread
- i * spans.length, (i + 1) * spans.length);
+ i * spans.length, (i + 1) * spans.length + 1);
working memory without its alignment | csrc/threads.hpp | build=address
- threads * stride_ + kLine]
+ threads * stride_]
small packed sequences that end at a masked step | csrc/packed.hpp
- while (last >= begin && mask.given && !mask.data[last]) --last;
packed sequences that end at a masked step | fastgae/_canonical/packed.py
- _look_back(exists, firsts, last_steps, left)
a short cut that looks at no dtype | fastgae/_backends/numba/__init__.py | backend=numba
- and array.dtype is dtype
+ and array.dtype.kind == dtype.kind
"""
MUTANTS = [Mutant.read(block) for block in re.split(r"\n(?![-+] )", TABLE.strip())]


def planted(mutant: Mutant, folder: Path) -> Path:
    """Copy the sources into the folder with the mistake in them."""
    for each in ("csrc", "fastgae"):
        shutil.copytree(ROOT / each, folder / each)
    places = [path for path in folder.glob(mutant.file) if mutant.old in path.read_text(encoding="utf-8")]
    if len(places) != 1:
        raise SystemExit(
            f"{mutant.what}: {mutant.file} has the text in {len(places)} files: bring the table up to date"
        )
    text = places[0].read_text(encoding="utf-8")
    places[0].write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return folder


def found(mutant: Mutant, calls: int, seed: int) -> tuple[bool, str]:
    """Compile the mutant, fuzz it, and say what was found after how many calls and seconds."""
    with tempfile.TemporaryDirectory() as made:
        sources, begun = planted(mutant, Path(made, "sources")), time.monotonic()
        build = compiled([*BUILDS[mutant.build][0], "-w"], Path(made, "build"), sources, sources / "fastgae")
        command = [sys.executable, "-m", "fuzz", "--calls", str(calls), "--seed", str(seed), "--most", "1"]
        command += ["--as-found", "--backend", mutant.backend, "--backend", "numpy"]
        built = time.monotonic()
        done = run_on(mutant.build, build, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        first = re.search(r"^FOUND (.*)", done.stdout, re.MULTILINE)
        made_calls = re.search(r"^(\d+ calls)", done.stdout, re.MULTILINE)
        seconds = f"{built - begun:4.0f} s to build, {time.monotonic() - built:4.0f} s"
        return first is not None, f"{seconds}, {made_calls[1]}  {first[1][:90] if first else 'NOT FOUND'}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m fuzz.mutants", description=__doc__)
    parser.add_argument("--calls", type=int, default=60_000, help="at most, for each mutant (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the fuzzer (default: %(default)s)")
    parser.add_argument("--only", type=int, help="the number of one mutant")
    args = parser.parse_args(argv)
    missed = 0
    for number, mutant in enumerate(MUTANTS):
        if args.only not in (None, number):
            continue
        caught, said = found(mutant, args.calls, args.seed)
        missed += not caught
        print(f"{number:2} {mutant.what:50} {said}", flush=True)
    print(f"{missed} not found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
