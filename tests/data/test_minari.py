"""Minari's datasets, as Minari writes them: the same bits as one call of fastgae.gae for each episode."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fastgae
from fastgae.data import DataError, compute

gym = pytest.importorskip("gymnasium")
h5py = pytest.importorskip("h5py")
from .minari_datasets import write_buffers, write_dataset  # noqa: E402
from .recorded import limit, put, read, write  # noqa: E402

FORMATS = ("hdf5", "arrow", "parquet")
ENVS = ("CartPole-v1", "Pendulum-v1")  # the episodes of the second end by the limit of time


def critic(batch):
    """V of every row by itself, whatever the batch."""
    observations = batch["observations"].astype(np.float64)
    return observations[:, 0] * 3 - observations[:, 1] ** 2


@pytest.fixture(scope="session")
def datasets(tmp_path_factory):
    return {
        (env, form): write_dataset(tmp_path_factory.mktemp(f"{env}-{form}"), env, form)
        for env in ENVS
        for form in FORMATS
    }


@pytest.fixture
def dataset(datasets, tmp_path):
    """Return a function that copies a dataset."""

    def copied(env="Pendulum-v1", form="hdf5"):
        folder, episodes = datasets[env, form]
        shutil.copytree(folder, tmp_path / "dataset")
        return tmp_path / "dataset", episodes

    return copied


def expected(episodes):
    """Return the results of all episodes, each from one call in memory."""
    results = []
    for each in episodes:
        values = critic({"observations": each.observations})
        results.append(
            fastgae.gae(each.rewards, values[:-1], each.terminations, each.truncations, next_values=values[1:])
        )
    return [np.concatenate(arrays) for arrays in zip(*results, strict=True)]


def assert_results(got, episodes):
    lengths = [len(each.rewards) for each in episodes]
    assert got.column_names == ["episode_id", "step", "advantages", "returns"]
    assert np.array_equal(got["episode_id"], np.repeat(np.arange(len(episodes)), lengths))
    assert np.array_equal(got["step"], np.concatenate([np.arange(length) for length in lengths]))
    for name, answer in zip(("advantages", "returns"), expected(episodes), strict=True):
        assert got[name].to_numpy().tobytes() == answer.tobytes()


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [20, 10**6])
def test_same_bits_in_every_format_and_memory(dataset, env, form, rows):
    folder, episodes = dataset(env, form)
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    observations = episodes[0].observations.itemsize * episodes[0].observations.shape[1]
    report = compute(folder, values=critic, memory=f"{rows * (200 + 2 * observations)}B", progress=False)
    assert_results(pq.read_table(folder / "advantages.parquet"), episodes)
    assert (report.episodes, report.steps) == (len(episodes), sum(len(each.rewards) for each in episodes))
    (folder / "advantages.parquet").unlink()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize("form", FORMATS)
def test_the_dataset_may_be_named_by_its_data(dataset, tmp_path, form):
    folder, episodes = dataset("CartPole-v1", form)
    sources = [folder / "data", *folder.glob("data/*.hdf5")]
    for number, source in enumerate(sources):
        compute(source, tmp_path / f"{number}.parquet", values=critic, progress=False)
        assert_results(pq.read_table(tmp_path / f"{number}.parquet"), episodes)


def test_an_episode_longer_than_a_slice(dataset, monkeypatch):
    monkeypatch.setattr("fastgae.data.stored.SLICE", 64)
    folder, episodes = dataset()
    compute(folder, values=critic, progress=False)
    assert_results(pq.read_table(folder / "advantages.parquet"), episodes)


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [20, 10**6])
@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_a_file_of_values_has_the_states_after_the_episodes(dataset, tmp_path, env, form, rows, suffix):
    folder, episodes = dataset(env, form)
    values = np.concatenate([critic({"observations": each.observations}) for each in episodes])
    states = [(number, step) for number, each in enumerate(episodes) for step in range(len(each.rewards) + 1)]
    path = tmp_path / f"v{suffix}"
    if suffix == ".npy":
        np.save(path, values)
    else:
        number, step = zip(*states, strict=True)
        write(pa.table({"episode_id": number, "step": step, "values": values}), path, 70)
    compute(folder, values=str(path), memory=limit(rows), progress=False)
    assert_results(pq.read_table(folder / "advantages.parquet"), episodes)


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_a_value_for_each_row(dataset, tmp_path, form):
    folder, episodes = dataset(form=form)
    rows = sum(len(each.rewards) for each in episodes)
    np.save(tmp_path / "v.npy", np.zeros(rows))
    with pytest.raises(DataError, match="the episode is truncated, and there is no value of the state after it"):
        compute(folder, values=str(tmp_path / "v.npy"), progress=False)
    compute(folder, values=str(tmp_path / "v.npy"), ends="terminated", gae_lambda=0.0, progress=False)
    got = pq.read_table(folder / "advantages.parquet")["advantages"]
    assert np.array_equal(got, np.concatenate([each.rewards for each in episodes]))
    np.save(tmp_path / "v.npy", np.zeros(rows + 1))
    with pytest.raises(
        DataError,
        match=rf"v.npy has {rows + 1:,} values; expected {rows:,}, one for each row of the source, or "
        rf"{rows + len(episodes):,}, one more for each of {len(episodes)} episodes",
    ):
        compute(folder, tmp_path / "out.parquet", values=str(tmp_path / "v.npy"), progress=False)


def test_ends_for_good_need_no_last_observation(dataset):
    folder, episodes = dataset()
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for group in file.values():
            group["values"] = np.zeros(len(group["rewards"]))
    compute(folder, ends="terminated", progress=False)
    got = pq.read_table(folder / "advantages.parquet")["advantages"].to_numpy()
    last = np.cumsum([len(each.rewards) for each in episodes]) - 1
    assert np.array_equal(got[last], [each.rewards[-1] for each in episodes])


def broken_hdf5(change):
    def broken(folder):
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            change(file["episode_2"])

    return broken


def replaced(name, change, everywhere=lambda array: array):
    """Return a function that changes an array of one episode, and in another way those of all others."""

    def replace(folder):
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            for episode, group in file.items():
                array = group[name][()]
                del group[name]
                group[name] = (change if episode == "episode_2" else everywhere)(array)

    return replace


def as_numbers(array):
    """Give an array the dtype that ``put`` gives it."""
    return array.astype(np.float64)


BROKEN = {
    "no flags": (
        broken_hdf5(lambda group: group.pop("truncations")),
        r"main_data.hdf5: episode_2 has no truncations; there",
    ),
    "no rewards": (
        broken_hdf5(lambda group: group.pop("rewards")),
        r"main_data.hdf5: episode_2 has no rewards; there are",
    ),
    "short flags": (
        replaced("terminations", lambda array: array[:-1]),
        r"main_data.hdf5: episode_2: terminations has 199 rows; expected 200, for 200 rewards",
    ),
    "no last observation": (
        replaced("observations", lambda array: array[:-1]),
        r"main_data.hdf5: episode_2: observations has 200 rows; expected 201, for 200 rewards",
    ),
    "NaN in the critic": (
        replaced("observations", put(7, np.nan), as_numbers),
        r"episode 2, step 7, row 407: the value from the critic is NaN$",
    ),
    "NaN behind": (
        replaced("observations", put(200, np.nan), as_numbers),
        r"episode 2, step 199, row 599: the value from the critic is NaN in the state after this step",
    ),
    "text": (
        replaced("rewards", lambda array: array.astype("S8")),
        r"main_data.hdf5: episode_2: rewards cannot be read: an array of dtype \|S8 holds no numbers",
    ),
    "matrix": (
        replaced("rewards", lambda array: array[:, None]),
        r"main_data.hdf5: episode_2: rewards holds extension<.*shape=\[1\].*, and in episode_0 double$",
    ),
    "end in the middle": (
        replaced("truncations", put(9, 1), as_numbers),
        r"episode 2, step 9, row 409: the episode is truncated, and there is no value of the state after it",
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_bad_files(dataset, fault):
    folder, _ = dataset()
    broken, message = BROKEN[fault]
    broken(folder)
    with pytest.raises(DataError, match=message):
        compute(folder, values=critic, memory=limit(300), progress=False)
    assert sorted(path.name for path in folder.iterdir()) == ["data"]


def test_the_state_behind_an_end_for_good_is_never_read(dataset):
    folder, episodes = dataset("CartPole-v1")
    assert episodes[0].terminations[-1]
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"]["observations"][-1] = np.nan
    compute(folder, values=critic, progress=False)
    assert_results(pq.read_table(folder / "advantages.parquet"), episodes)


def test_an_error_leaves_no_file_open(dataset):
    """HDF5 opens no file to write that is open to read; the frames of an error keep what they have read."""
    folder, _ = dataset()
    broken, _ = BROKEN["short flags"]
    broken(folder)
    with pytest.raises(DataError) as caught:
        compute(folder, values=critic, progress=False)
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["more"] = [1]
    assert "expected 200" in str(caught.value)


@pytest.mark.parametrize("rows", [150, 10**6])
@pytest.mark.parametrize(
    ("name", "change", "kinds"),
    [
        ("rewards", lambda array: array.astype(np.float32), "float, and in episode_0 double"),
        ("observations", lambda array: array[:, :2], r".*shape=\[2\].*, and in episode_0 .*shape=\[3\].*"),
    ],
)
def test_episodes_of_different_kinds(dataset, rows, name, change, kinds):
    folder, _ = dataset()
    replaced(name, change)(folder)
    with pytest.raises(DataError, match=rf"main_data.hdf5: episode_2: {name} holds {kinds}$"):
        compute(folder, values=critic, memory=limit(rows), progress=False)


def without_group(folder):
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        del file["episode_2"]


def without_folder(folder):
    shutil.rmtree(folder / "data" / "2")


def shorter(path):
    """Take the last row but one from an Arrow or Parquet file of an episode."""
    table = read(path)
    write(table.take([*range(len(table) - 2), len(table) - 1]), path, 10**6)


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_episode(dataset, form):
    folder, _ = dataset(form=form)
    (without_group if form == "hdf5" else without_folder)(folder)
    with pytest.raises(DataError, match=r"metadata.json says that there are 6 episodes; there are 5, without 2$"):
        compute(folder, values=critic, progress=False)
    with pytest.raises(DataError, match=r"metadata.json says that there are 6 episodes; there are 5, without 2$"):
        compute(folder / "data", values=critic, progress=False)
    assert [path.name for path in folder.iterdir()] == ["data"]


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_a_missing_step(dataset, form):
    folder, _ = dataset(form=form)
    shorter(folder / "data" / "2" / f"part-0.{form}")
    with pytest.raises(DataError, match=r"metadata.json says that there are 1017 steps; the episodes have 1016"):
        compute(folder, values=critic, progress=False)


def test_attributes_of_a_file_say_how_many_episodes(dataset, tmp_path):
    """Older Minari wrote them there."""
    folder, episodes = dataset()
    main = folder / "data" / "main_data.hdf5"
    (folder / "data" / "metadata.json").unlink()
    with h5py.File(main, "a") as file:
        file.attrs["total_episodes"] = 7
        file.attrs["total_steps"] = 1017
    with pytest.raises(DataError, match=r"main_data.hdf5 says that there are 7 episodes; there are 6, without 6$"):
        compute(main, values=critic, progress=False)
    with h5py.File(main, "a") as file:
        file.attrs["total_episodes"] = 6
    compute(main, tmp_path / "out.parquet", values=critic, progress=False)
    assert_results(pq.read_table(tmp_path / "out.parquet"), episodes)


def test_a_file_without_episodes(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with h5py.File(folder / "main_data.hdf5", "w") as file:
        file["rewards"] = [1.0]
    with pytest.raises(DataError, match=r"main_data.hdf5 has no groups episode_0, episode_1 …, which Minari writes"):
        compute(tmp_path, values=critic, progress=False)


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_text_of_observations_is_left_out(tmp_path, form):
    spaces = {"place": gym.spaces.Box(-9, 9, (2,), np.float64), "mission": gym.spaces.Text(9)}
    spaces["inner"] = gym.spaces.Dict({"word": gym.spaces.Text(9)})
    place = np.arange(10.0).reshape(5, 2)
    texts = {"mission": ["go"] * 5, "inner": {"word": ["left"] * 5}}
    write_buffers(tmp_path, form, [{"place": place, **texts}] * 2, gym.spaces.Dict(spaces))
    seen = []

    def value(batch):
        seen.append({name: list(part) for name, part in batch.items()})
        return batch["observations"]["place"][:, 0]

    compute(tmp_path / "test" / "text-v0", values=value, progress=False)
    assert seen[0] == {"observations": ["place"]}
    expected = fastgae.gae(np.ones(4), place[:-1, 0], np.zeros(4), np.arange(4) == 3, next_values=place[1:, 0])
    got = pq.read_table(tmp_path / "test" / "text-v0" / "advantages.parquet")["advantages"]
    assert np.array_equal(got, np.tile(expected.advantages, 2))
