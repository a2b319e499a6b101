"""Minari's datasets, as Minari writes them: the same bits as one call of fastgae.gae for each episode."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

import fastgae
import fastgae.data

gym = pytest.importorskip("gymnasium")
h5py = pytest.importorskip("h5py")
from .minari_datasets import EpisodeBuffer, write_buffers, write_dataset  # noqa: E402
from .recorded import computed, limit, names, put, read, refused, write  # noqa: E402

FORMATS = ("hdf5", "arrow", "parquet")
# The episodes of Pendulum end by the limit of time.
DATASETS = [("CartPole-v1", "hdf5"), *(("Pendulum-v1", form) for form in FORMATS)]


def critic(batch):
    """V of every row by itself, whatever the batch."""
    observations = batch["observations"].astype(np.float64)
    return observations[:, 0] * 3 - observations[:, 1] ** 2


@pytest.fixture(scope="session")
def datasets(tmp_path_factory):
    return {pair: write_dataset(tmp_path_factory.mktemp("-".join(pair)), *pair) for pair in DATASETS}


@pytest.fixture
def dataset(datasets, tmp_path):
    """Return a function that copies a dataset."""

    def copied(env="Pendulum-v1", form="hdf5"):
        folder, episodes = datasets[env, form]
        return shutil.copytree(folder, tmp_path / "dataset", dirs_exist_ok=True), episodes

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


@pytest.mark.parametrize(("env", "form"), DATASETS)
def test_same_bits(dataset, tmp_path, env, form, monkeypatch):
    """By the name of the dataset or of its data, in any memory, with a critic or a table of values of all states."""
    folder, episodes = dataset(env, form)
    out = folder / "advantages.parquet"
    for source in (folder, folder / "data", *folder.glob("data/*.hdf5")):
        assert_results(computed(source, out, values=critic), episodes)
    values = np.concatenate([critic({"observations": each.observations}) for each in episodes])
    keys = [(number, step) for number, each in enumerate(episodes) for step in range(len(each.rewards) + 1)]
    number, step = zip(*keys, strict=True)
    write(pa.table({"episode_id": number, "step": step, "values": values}), tmp_path / "v.parquet", 70)
    write(pa.table({"episode_id": number, "step": step, "values": values + step}), tmp_path / "timed.parquet", 70)
    timed = fastgae.data.Critic(lambda batch: critic(batch) + batch["step"], ("observations", "step"))
    assert computed(folder, out, values=timed).equals(computed(folder, out, values=str(tmp_path / "timed.parquet")))
    for module in ("plan", "stored"):
        monkeypatch.setattr(f"fastgae.data.{module}.SLICE", 64)  # an episode is longer
    for rows in (70, 10**6):
        assert_results(computed(folder, out, values=str(tmp_path / "v.parquet"), memory=limit(rows)), episodes)
        assert_results(computed(folder, out, values=critic, memory=limit(3 * rows)), episodes)
    write(read(tmp_path / "v.parquet")[::-1], tmp_path / "v.parquet", 70)
    message = (
        "v.parquet has other rows than the source, in episode_id or step, or has them in another order, .*: sort it"
    )
    refused(message, folder, tmp_path / "out.parquet", values=str(tmp_path / "v.parquet"))


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_of_a_value_for_each_row(dataset, tmp_path, form):
    folder, episodes = dataset(form=form)
    rows, values = sum(len(each.rewards) for each in episodes), tmp_path / "v.npy"
    np.save(values, np.zeros(rows))
    refused("the episode is truncated, and there is no value of the state after it", folder, values=str(values))
    got = computed(folder, tmp_path / "a.parquet", values=str(values), ends="terminated", gae_lambda=0.0)
    assert np.array_equal(got["advantages"], np.concatenate([each.rewards for each in episodes]))
    np.save(values, np.zeros(rows + 1))
    states = f"or {rows + len(episodes):,}, one more for each of {len(episodes)} episodes"
    message = rf"v.npy has {rows + 1:,} values; expected {rows:,}, one for each row of the source, {states}"
    refused(message, folder, values=str(values))


def test_states_behind_ends_for_good(dataset, tmp_path):
    """Nobody needs them: a column may lack them, and a NaN there is never read."""
    folder, episodes = dataset()
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        for group in file.values():
            group["values"] = np.zeros(len(group["rewards"]))
    got = computed(folder, tmp_path / "out.parquet", ends="terminated")["advantages"].to_numpy()
    last = np.cumsum([len(each.rewards) for each in episodes]) - 1
    assert np.array_equal(got[last], [each.rewards[-1] for each in episodes])
    folder, episodes = dataset("CartPole-v1")
    assert episodes[0].terminations[-1]
    with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
        file["episode_0"]["observations"][-1] = np.nan
    assert_results(computed(folder, tmp_path / "out.parquet", values=critic), episodes)


# An array of one episode, its change (in all other episodes the array is of float64), and the error.
BROKEN = [
    ("rewards", lambda _: None, r"main_data.hdf5: episode_2 has no rewards; there are"),
    (
        "observations",
        lambda array: array[:-1].astype(np.float64),
        r"main_data.hdf5: episode_2: observations has 200 rows; expected 201, for 200 rewards",
    ),
    ("observations", put(7, np.nan), r"episode 2, step 7, row 407: the value from the critic is NaN$"),
    (
        "observations",
        put(200, np.nan),
        "2, step 199, row 599: the value from the critic is NaN in the state after this",
    ),
    (
        "rewards",
        lambda array: array.astype("S8"),
        r"main_data.hdf5: episode_2: rewards cannot be read: an array of dtype \|S8 holds no numbers",
    ),
    ("truncations", lambda array: array[0], "episode_2: truncations has no rows; expected 200, for 200 rewards"),
    ("truncations", put(9, 1), "episode 2, step 9, row 409: the episode is truncated, and there is no value of the"),
    (
        "rewards",
        lambda array: array.astype(np.float32),
        "main_data.hdf5: episode_2: rewards holds float; expected double, as in the first episode$",
    ),
    (
        "observations",
        lambda array: array[:, :2].astype(np.float64),
        r"main_data.hdf5: episode_2: observations holds .*shape=\[2\].*; expected .*shape=\[3\]",
    ),
]


def test_bad_files(dataset):
    """HDF5 opens no file to write that is open to read; the frames of an error keep what they have read."""
    for name, change, message in BROKEN:
        folder, _ = dataset()
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            for episode, group in file.items():
                array = group[name][()]
                del group[name]
                if (new := change(array) if episode == "episode_2" else array.astype(np.float64)) is not None:
                    group[name] = new
        for rows in (150, 10**6):
            error = refused(message, folder, values=critic, memory=limit(rows))
            with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
                file.attrs["after"] = str(error)
        assert names(folder) == ["data"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_episode_or_step(dataset, form):
    folder, _ = dataset(form=form)
    part = folder / "data" / "2" / f"part-0.{form}"
    if form == "hdf5":
        with h5py.File(folder / "data" / "main_data.hdf5", "a") as file:
            del file["episode_2"]
    else:
        table = read(part)
        write(table.take([*range(len(table) - 2), len(table) - 1]), part, 10**6)
        refused(r"metadata.json says that there are 617 steps; there are 616", folder, values=critic)
        part.parent.rename(folder / "data" / "2nd")  # no episode has such a name
    for source in (folder, folder / "data"):
        message = r"metadata.json says that there are 4 episodes; there are 3$"
        refused(message, source, values=critic)
    assert names(folder) == ["data"]


def test_attributes_of_a_file_say_how_many_episodes(dataset, tmp_path):
    """Older Minari wrote them there. The folder around a dataset is none."""
    folder, episodes = dataset()
    refused(r"main_data\.hdf5: no array .*; pass this file, or the folder of the Minari dataset", folder.parent)
    main = folder / "data" / "main_data.hdf5"
    (folder / "data" / "metadata.json").unlink()
    with h5py.File(main, "a") as file:
        file.attrs.update(total_episodes=5, total_steps=617)
    refused(r"main_data.hdf5 says that there are 5 episodes; there are 4$", main, values=critic)
    with h5py.File(main, "a") as file:
        file.attrs["total_episodes"] = 4
    assert_results(computed(main, tmp_path / "out.parquet", values=critic), episodes)
    with h5py.File(main, "w") as file:
        file["rewards"] = [1.0]
    refused(r"main_data.hdf5 has no groups episode_0, episode_1 …, which Minari writes", folder, values=critic)


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_text_of_observations_is_left_out(tmp_path, form):
    spaces = {"place": gym.spaces.Box(-9, 9, (2,), np.float64), "mission": gym.spaces.Text(9)}
    spaces["inner"] = gym.spaces.Dict({"word": gym.spaces.Text(9)})
    place = np.arange(10.0).reshape(5, 2)
    texts = {"mission": ["go"] * 5, "inner": {"word": ["left"] * 5}}
    flags = {"terminations": np.zeros(4, bool), "truncations": np.arange(4) == 3, "infos": {}}
    buffer = {"observations": {"place": place, **texts}, "actions": np.zeros(4, int), "rewards": np.ones(4), **flags}
    episodes = [EpisodeBuffer(id=number, **buffer) for number in range(2)]
    options = {"observation_space": gym.spaces.Dict(spaces), "action_space": gym.spaces.Discrete(2)}
    folder = write_buffers(tmp_path, episodes, data_format=form, **options)
    seen = []

    def value(batch):
        seen.append({name: list(part) for name, part in batch.items()})
        return batch["observations"]["place"][:, 0]

    got = computed(folder, tmp_path / "out.parquet", values=value)["advantages"]
    assert seen[0] == {"observations": ["place"]}
    expected = fastgae.gae(np.ones(4), place[:-1, 0], np.zeros(4), np.arange(4) == 3, next_values=place[1:, 0])
    assert np.array_equal(got, np.tile(expected.advantages, 2))
