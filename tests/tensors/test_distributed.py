"""The recipe of docs/moments.md on two ranks of torch.distributed: the bits of one process with all advantages."""

import re
from pathlib import Path

import numpy as np
import pytest

import fastgae
from support.cases import assert_same_bits

pytest.importorskip("torch.distributed")

PAGE = Path(__file__).parents[2] / "docs" / "moments.md"
RECIPE = re.search(r"^def normalized_over_ranks.*?\n(?=\S)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
RANK = """
import sys
import fastgae, numpy as np, torch
import torch.distributed as dist

{recipe}

rank, folder, *cuts = sys.argv[1:]
dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=int(rank), world_size=2)
for cut in cuts:
    result = normalized_over_ranks(torch.from_numpy(np.load(f"{{folder}}/given{{cut}}{{rank}}.npy")))
    np.save(f"{{folder}}/result{{cut}}{{rank}}.npy", result.numpy())
dist.destroy_process_group()
"""


CUTS = (1, 700)


def test_two_ranks_give_the_bits_of_one_process(two_ranks, tmp_path):
    whole = np.random.default_rng(1).normal(0.3, 2.0, 3000).astype(np.float32)
    for cut in CUTS:
        for rank, part in enumerate(np.split(whole, [cut])):
            np.save(tmp_path / f"given{cut}{rank}.npy", part)
    two_ranks(RANK.format(recipe=RECIPE[0]), str(tmp_path), *map(str, CUTS))
    expected = fastgae.moments(whole).normalize(whole)
    for cut in CUTS:
        for rank, right in enumerate(np.split(expected, [cut])):
            assert_same_bits(np.load(tmp_path / f"result{cut}{rank}.npy"), right)
