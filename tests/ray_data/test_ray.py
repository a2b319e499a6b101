"""``fastgae.ray.compute`` on a real cluster: the bits of one call in memory, whatever the blocks and accidents."""

import importlib
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.exceptions import RayTaskError

import fastgae.data
import fastgae.ray
from data.recorded import CHOICES, ROWS, write
from fastgae.data import DataError

# Ray's own settings use names that Ray has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:ray.data.context")

EXAMPLES = Path(__file__).parents[2] / "examples"
KEYS = [("episode", "ascending"), ("step", "ascending")]


def blocks_of(table, bounds):
    """Return a dataset with a block from each of the bounds to the next."""
    return ray.data.from_arrow([table.slice(begin, end - begin) for begin, end in pairwise([0, *bounds, len(table)])])


def table_of(dataset):
    """Return the rows of a dataset, sorted: blocks arrive in any order."""
    blocks = [block for block in ray.get(dataset.to_arrow_refs()) if block.num_rows]
    return pa.concat_tables(blocks, promote_options="permissive").sort_by(KEYS)


def assert_results(got, recorded, advantages=None, returns=None):
    assert got.select(recorded.table().column_names) == recorded.table()
    assert np.array_equal(got["advantages"], recorded.result.advantages if advantages is None else advantages)
    assert np.array_equal(got["returns"], recorded.result.returns if returns is None else returns)


def shuffled(table, seed=0):
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def normalized(advantages):
    return fastgae.moments(advantages).normalize(advantages)


def test_same_bits_in_blocks_of_every_size(recorded):
    for table, size in ((recorded.table(), 100), (shuffled(recorded.table()), 100), (recorded.table(), ROWS)):
        assert_results(table_of(fastgae.ray.compute(blocks_of(table, range(size, ROWS, size)))), recorded)


def test_names_of_another_type_in_each_block(recorded):
    """Ray hashes the same number differently as int32, int64 or float64, and both blocks have a part of an episode."""
    names = recorded.episode - 7
    for kind in (np.int32, np.float64):
        parts = [recorded.table(episode=names.astype(kind)).slice(0, 1000), recorded.table(episode=names).slice(1000)]
        got = table_of(fastgae.ray.compute(ray.data.from_arrow(parts)))
        assert np.array_equal(got["advantages"], recorded.result.advantages)


def lazy(parts):
    """Return a dataset with these blocks, of which Ray knows the types of the first."""
    return ray.data.from_arrow(parts).map_batches(lambda block: block, batch_format="pyarrow", batch_size=None)


def test_numbers_of_another_type_in_each_block(recorded):
    table, first = recorded.table(), recorded.first[3]

    def parts(kind, of=table, name="rewards"):
        others = of.set_column(of.column_names.index(name), name, of[name].cast(kind, safe=False))
        return others, [of.slice(0, first), others.slice(first)]

    doubles, mixed = parts(pa.float64())
    expected = fastgae.data.compute(doubles, progress=False)["advantages"]
    for whole_episodes in (False, True):
        results = fastgae.ray.compute(ray.data.from_arrow(mixed), whole_episodes=whole_episodes, label_quantile=0.5)
        assert table_of(results)["advantages"].equals(expected)
    success = table.rename_columns({"rewards": "success"})
    success = success.set_column(2, "success", pa.array(recorded.terminated))
    small, _ = parts(pa.int8())
    for whole_episodes, blocks, rewards in (
        (False, mixed, None),
        (True, mixed, None),
        (True, parts(pa.float64(), of=small)[1], None),
        (True, parts(pa.float64(), success, "values")[1], "success:-1:9"),
    ):
        with pytest.raises(RayTaskError, match=r"makes advantages float, and .* double: .* cast .*, values.* to one"):
            fastgae.ray.compute(lazy(blocks), whole_episodes=whole_episodes, rewards=rewards).materialize()
    decimals, _ = parts(pa.decimal128(12, 3))  # whose results are always float64
    expected = fastgae.data.compute(decimals, progress=False)
    for dataset in (ray.data.from_arrow(decimals), lazy([decimals.slice(0, first), decimals.slice(first)])):
        assert table_of(fastgae.ray.compute(dataset))["advantages"].equals(expected["advantages"])
    got = fastgae.ray.compute(lazy([decimals.slice(0, first), table.slice(first)]), whole_episodes=True)
    assert {block.schema.field("advantages").type for block in ray.get(got.to_arrow_refs())} == {pa.float64()}


def test_columns_that_only_some_blocks_have(recorded):
    """Without the check, flags that only later blocks have would not be read."""
    table, first = recorded.table(), recorded.first[3]
    parts = [table.slice(0, first).drop_columns(["truncated"]), table.slice(first)]
    for blocks, whole_episodes in ((parts, False), (parts, True), (parts[::-1], True)):
        with pytest.raises(RayTaskError, match="only some blocks of the dataset have the column 'truncated'"):
            fastgae.ray.compute(lazy(blocks), whole_episodes=whole_episodes).materialize()


def test_blocks_of_whole_episodes(recorded):
    """Blocks of a few episodes, of which the first is empty, stay as they are; a column holds images."""
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((ROWS, 2, 3), np.uint8))
    for bounds in ([0, *recorded.first[1::4]], recorded.first[[3]]):
        results = fastgae.ray.compute(blocks_of(recorded.table(image=images), bounds), whole_episodes=True)
        assert_results(table_of(results), recorded)
        sizes = sorted(block.num_rows for block in ray.get(results.to_arrow_refs()) if block.num_rows)
        assert sizes == sorted(size for size in np.diff([0, *bounds, ROWS]) if size)


def test_blocks_of_pandas_with_names_of_episodes(recorded):
    """Objects, as in version 2, are no type of Arrow."""
    names = [f"episode {number:05}" for number in recorded.episode]
    table = shuffled(recorded.table(episode=names))
    frames = [part.to_pandas().astype({"episode": object}) for part in (table.slice(0, 777), table.slice(777))]
    got = table_of(fastgae.ray.compute(ray.data.from_pandas(frames), values="values"))
    assert got["episode"].to_pylist() == names
    assert np.array_equal(got["advantages"], recorded.result.advantages)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
def test_every_estimator(recorded, choice):
    blocks = blocks_of(shuffled(recorded.table()), [100, 1500])
    got, expected = table_of(fastgae.ray.compute(blocks, normalize="global", **choice)), recorded.results(**choice)
    assert_results(got, recorded, normalized(expected.advantages), expected.returns)


def test_returns_without_values(recorded):
    blocks = blocks_of(recorded.table("episode", "step", "rewards"), [100, 1500])
    choice = {"ends": "terminated", "estimator": "discounted_returns"}
    got = table_of(fastgae.ray.compute(blocks, **choice))
    assert got.column_names == ["episode", "step", "rewards", "returns"]
    assert np.array_equal(got["returns"], fastgae.discounted_returns(recorded.rewards, recorded.last))
    with pytest.raises(ValueError, match=r"normalize=.global. is for advantages"):
        fastgae.ray.compute(blocks, normalize="global", **choice)


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_one_call_for_each_block(recorded, whole_episodes, tmp_path, monkeypatch):
    """Not one for each episode, and no second one to normalize: Ray computes a lazy dataset whenever it is used."""
    with_results = fastgae.ray.with_results

    def counted(block, **options):
        (tmp_path / f"{os.getpid()} {time.time_ns()}").touch()
        return with_results(block, **options)

    monkeypatch.setattr(fastgae.ray, "with_results", counted)
    blocks = blocks_of(recorded.table(), recorded.first[[2, 5]])
    got = table_of(fastgae.ray.compute(blocks, whole_episodes=whole_episodes, normalize="global"))
    assert_results(got, recorded, normalized(recorded.result.advantages))
    assert len(list(tmp_path.iterdir())) == 4  # one is of no rows, and shows the types


@pytest.fixture
def folder(recorded, tmp_path):
    """Four files of whole episodes, with row groups that cut them."""
    for number, (begin, end) in enumerate(pairwise([0, *recorded.first[[3, 5, 6]], ROWS])):
        write(recorded.table().slice(begin, end - begin), tmp_path / f"{number}.parquet", 50)
    write(recorded.table().slice(0, 0), tmp_path / "4.parquet", 50)
    return tmp_path


@pytest.mark.parametrize("whole_episodes", [False, True])
def test_files(recorded, folder, whole_episodes, monkeypatch):
    monkeypatch.chdir(folder.parent)
    for paths in (folder, f"{folder.name}/*.parquet", sorted(folder.iterdir())):
        assert_results(table_of(fastgae.ray.compute(paths, whole_episodes=whole_episodes)), recorded)


def test_names_of_columns_and_results(recorded, tmp_path):
    names = {"episode": "eps_id", "step": "t", "terminated": "terminateds", "truncated": "truncateds", "values": "v"}
    table = recorded.table("episode", "step", "terminated", "truncated", "values", "rewards", "next_values")
    write(table.rename_columns([names.get(name, name) for name in table.column_names]), tmp_path / "a.parquet", 500)
    chosen = {"values": "v", "columns": {"next_values": "next_values"}, "gamma": 0.9, "gae_lambda": 0.7}
    expected = fastgae.data.compute(tmp_path / "a.parquet", progress=False, **chosen)
    for source in (tmp_path / "a.parquet", ray.data.read_parquet(tmp_path / "a.parquet")):
        results = fastgae.ray.compute(source, **chosen)
        got = pa.concat_tables(ray.get(results.to_arrow_refs())).sort_by([("eps_id", "ascending"), ("t", "ascending")])
        computed = pq.read_table(expected.file)
        assert got.select(computed.column_names).columns == computed.columns


def test_errors_in_tasks(recorded, folder):
    rewards = recorded.rewards.copy()
    rewards[77] = np.nan
    place = f"episode {recorded.episode[77]}, step {recorded.step[77]}, row [0-9]+: rewards is NaN"
    table = recorded.table(rewards=rewards)
    with pytest.raises(RayTaskError, match=f"DataError: {place}") as caught:
        fastgae.ray.compute(ray.data.from_arrow(table)).materialize()
    assert isinstance(caught.value, DataError)
    assert len(str(caught.value)) < 600  # without the stack of the task
    with pytest.raises(RayTaskError, match="has a column '__key__episode', a name that fastgae needs: rename it"):
        fastgae.ray.compute(ray.data.from_arrow(recorded.table(__key__episode=rewards))).materialize()
    file = write(table, folder / "0.parquet", 100)
    with pytest.raises(RayTaskError, match=f"DataError: {file}: {place}"):
        fastgae.ray.compute(folder, whole_episodes=True).materialize()


def test_episodes_that_are_cut(recorded, tmp_path):
    """With whole_episodes, a flag must tell every end. A shuffle sees all rows, so that an end may lack one."""
    rows = recorded.table().slice(0, int(recorded.first[4]) + 1)  # the last episode was recorded only so far
    cut = int(recorded.first[3]) + 2
    for number, (begin, end) in enumerate(pairwise([0, cut, len(rows)])):
        write(rows.slice(begin, end - begin), tmp_path / f"{number}.parquet", 100)
    place = f"episode 3, step 1, row {cut - 1}: the episode ends without a flag"
    with pytest.raises(RayTaskError, match=place):
        fastgae.ray.compute(blocks_of(rows, [cut]), whole_episodes=True).materialize()
    with pytest.raises(RayTaskError, match=rf"0\.parquet: {place}"):
        fastgae.ray.compute(tmp_path, whole_episodes=True).materialize()
    expected = fastgae.data.compute(tmp_path, tmp_path.with_suffix(".parquet"), progress=False)
    assert table_of(fastgae.ray.compute(tmp_path))["returns"] == pq.read_table(expected.file)["returns"]


def test_errors_before_anything_is_read(recorded, tmp_path):
    for error, message, given in (
        (DataError, r"no column 'v' for values; there are episode, .*", {"values": "v"}),
        (TypeError, r"values must be the name of a column, got function: .*map_batches", {"values": lambda rows: rows}),
        (ValueError, r'normalize must be "global" or None, got \'all\'', {"normalize": "all"}),
        (ValueError, r"n must be a positive integer .* got None", {"estimator": "n_step_returns"}),
        (ValueError, r"gamma must be .* got 1\.5", {"gamma": 1.5}),
        (DataError, "there is no column 'taks' for label_per", {"label_quantile": 0.5, "label_per": "taks"}),
        (ValueError, r"format must be one of auto, table, .*, got 'csv'", {"format": "csv"}),
        (TypeError, r"got an unexpected keyword argument 'lam': pass gae_lambda", {"lam": 0.9}),
    ):
        with pytest.raises(error, match=message):
            fastgae.ray.compute(ray.data.from_arrow(recorded.table()), **given)
    twice = write(
        recorded.table().append_column("x", [recorded.step]).append_column("x", [recorded.step]),
        tmp_path / "a.parquet",
        100,
    )
    with pytest.raises(DataError, match="there are 2 columns 'x'; expected one"):
        fastgae.ray.compute(twice)
    shuffle = 'lose their order: name columns of "episode" and "step"'
    for blocks, message in (
        (ray.data.from_arrow(recorded.table("rewards", "values", "terminated", "truncated")), shuffle),
        (ray.data.from_arrow(recorded.table("episode", "rewards", "values", "terminated")), shuffle),
        (ray.data.from_items([]), "there are no rows in the dataset"),
    ):
        with pytest.raises(DataError, match=message):
            fastgae.ray.compute(blocks)


def test_a_worker_is_killed(recorded, tmp_path):
    """Ray runs a task again if its process dies: here before the computation, and after it."""

    def dying_once(block):
        try:
            (tmp_path / "killed").touch(exist_ok=False)
        except FileExistsError:
            return block
        return os.kill(os.getpid(), signal.SIGKILL)

    how = {"batch_size": None, "batch_format": "pyarrow"}
    blocks, expected = blocks_of(shuffled(recorded.table()), [500, 900]), normalized(recorded.result.advantages)
    before = fastgae.ray.compute(blocks.map_batches(dying_once, **how), normalize="global")
    assert_results(table_of(before), recorded, expected)
    (tmp_path / "killed").unlink()
    after = fastgae.ray.compute(blocks, normalize="global").map_batches(dying_once, **how)
    assert_results(table_of(after), recorded, expected)
    assert (tmp_path / "killed").exists()


@pytest.mark.parametrize("options", [[], ["--whole-episodes", "--normalize", "global"]])
def test_the_example(recorded, folder, options, tmp_path_factory, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    program = importlib.import_module("ray_offline")
    out = tmp_path_factory.mktemp("results") / "out"
    program.main(program.parse([str(folder), str(out), "--column", "rewards=rewards", *options]))
    assert_results(
        pq.read_table(out).sort_by(KEYS), recorded, normalized(recorded.result.advantages) if options else None
    )
    with pytest.raises(SystemExit, match="exists already"):
        program.main(program.parse([str(folder), str(out)]))


TWO_NODES = """
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.cluster_utils import Cluster

import fastgae.ray

source, out = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "resources": {"first": 1}})
cluster.add_node(num_cpus=1, resources={"second": 1})
cluster.wait_for_nodes()
ray.init(address=cluster.address)


@ray.remote(num_returns=2)
def half(begin):
    return pq.read_table(source).slice(begin, 1500), ray.get_runtime_context().get_node_id()


halves = [half.options(resources={name: 1}).remote(begin) for name, begin in (("first", 0), ("second", 1500))]
assert len({ray.get(node) for _, node in halves}) == 2
dataset = fastgae.ray.compute(ray.data.from_arrow_refs([rows for rows, _ in halves]), normalize="global")
pq.write_table(pa.concat_tables(ray.get(dataset.to_arrow_refs())), out)
ray.shutdown()
cluster.shutdown()
"""


def test_two_nodes(recorded, python, tmp_path):
    """Half of the rows lie in the memory of each, and the cut is in the middle of an episode."""
    write(recorded.table(), tmp_path / "source.parquet", 1000)
    python(TWO_NODES, str(tmp_path / "source.parquet"), str(tmp_path / "out.parquet"))
    advantages = recorded.result.advantages
    got = pq.read_table(tmp_path / "out.parquet").sort_by(KEYS)
    assert recorded.episode[1499] == recorded.episode[1500]
    assert_results(got, recorded, normalized(advantages))


@pytest.mark.parametrize("whole", [False, True])
def test_rewards_from_success_and_labels(recorded, tmp_path, whole):
    """As in files: the threshold is that of all advantages before they are normalized."""
    succeeded = pa.array(np.random.default_rng(1).random(ROWS) < 0.5)
    table = recorded.table("episode", "step", "values").append_column("success", succeeded)
    options = {"rewards": "success:-1:50", "ends": "terminated", "label_quantile": 0.7, "normalize": "global"}
    source = write(table, tmp_path / "a.parquet", 100)
    expected = pq.read_table(fastgae.data.compute(source, progress=False, **options).file)
    given = blocks_of(table, recorded.first[1::4])
    got = table_of(fastgae.ray.compute(given, whole_episodes=whole, **options))
    assert got.select(expected.column_names).to_pydict() == expected.to_pydict()
    source = write(
        pa.table({"success": [[0, 0, 1], [0, 0]], "values": [[0.0] * 3, [0.0] * 2]}), tmp_path / "b.parquet", 1
    )
    expected = pq.read_table(fastgae.data.compute(source, progress=False, **options).file)
    got = table_of(fastgae.ray.compute(source, whole_episodes=whole, **options)).sort_by(KEYS)
    assert got.select(expected.column_names).to_pydict() == expected.to_pydict()


def test_a_dataset_with_other_totals_than_it_says(tmp_path, recorded):
    """The same error as from ``fastgae.data.compute``."""
    for folder in ("data", "meta"):
        (tmp_path / "set" / folder).mkdir(parents=True)
    (tmp_path / "set" / "meta" / "info.json").write_text('{"total_frames": 3005}')
    names = {"episode": "episode_index", "step": "frame_index", "rewards": "next.reward", "terminated": "next.done"}
    table = recorded.table(*names, "truncated", "values", terminated=recorded.last)
    pq.write_table(table.rename_columns([*names.values(), "next.truncated", "values"]), tmp_path / "set/data/a.parquet")
    with pytest.raises(DataError, match=r"info\.json says that there are 3005 frames; there are 3000"):
        fastgae.ray.compute(tmp_path / "set", whole_episodes=True, ends="terminated")
