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

rank, folder = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=2)
result = normalized_over_ranks(torch.from_numpy(np.load(f"{{folder}}/given{{rank}}.npy")))
np.save(f"{{folder}}/result{{rank}}.npy", result.numpy())
dist.destroy_process_group()
"""


@pytest.mark.parametrize("cut", [1, 700])
def test_two_ranks_give_the_bits_of_one_process(two_ranks, tmp_path, cut):
    whole = np.random.default_rng(cut).normal(0.3, 2.0, 3000).astype(np.float32)
    parts = np.split(whole, [cut])
    for rank, part in enumerate(parts):
        np.save(tmp_path / f"given{rank}.npy", part)
    two_ranks(RANK.format(recipe=RECIPE[0]), str(tmp_path))
    expected = fastgae.moments(whole).normalize(whole)
    for rank, right in enumerate(np.split(expected, [cut])):
        assert_same_bits(np.load(tmp_path / f"result{rank}.npy"), right)
