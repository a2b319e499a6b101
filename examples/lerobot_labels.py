"""From robot episodes that only say whether they succeeded to labels of good and bad actions, as in RECAP (pi*0.6).

Rewards follow from success: -1 for every step, 0 at the end of a success, -FAILURE at the end of a failure. A critic
learns the returns, which count the steps that are left, and the best actions get the label "positive". A policy is
then trained on all episodes, with the label as a part of its prompt. DATASET is a LeRobot dataset with a column of
success and a state of two numbers, position and velocity: for another task, write another critic in ``powers``. If
there is no dataset, this program records a simulated task, with LeRobot if it is installed, or in its layout.
"""

import argparse
import importlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import fastgae.data

EXAMPLES = """\
examples:
  python lerobot_labels.py reach                    record 200 episodes, and label their steps
  python lerobot_labels.py reach --plot labels.svg
"""
STATE, SUCCESS = "observation.state", "next.success"
LONGEST = 60  # steps after which an episode has failed

Floats = NDArray[np.float32]
Frames = dict[str, Any]


def episodes(count: int, seed: int) -> Iterator[Frames]:
    """Yield episodes of a point that has to come to rest at 0, pushed by an unreliable hand."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        position, velocity, clumsy = rng.uniform(-2, 2), 0.0, rng.uniform(0.2, 1.6)
        states: list[list[float]] = []
        actions: list[list[float]] = []
        reached = False
        while not reached and len(states) < LONGEST:
            states.append([position, velocity])
            actions.append([float(np.clip(-2 * position - 2 * velocity + clumsy * rng.normal(), -2, 2))])
            velocity += 0.1 * actions[-1][0]
            position += 0.1 * velocity
            reached = abs(position) < 0.05 and abs(velocity) < 0.2
        done = np.arange(len(states)) == len(states) - 1
        frames = {STATE: np.array(states, np.float32), "action": np.array(actions, np.float32)}
        yield {**frames, "next.done": done, SUCCESS: done & reached}


def record(folder: Path, count: int, seed: int) -> None:
    """Write a LeRobot dataset."""
    shapes = {STATE: 2, "action": 1}
    features = {name: {"dtype": "float32", "shape": (size,), "names": None} for name, size in shapes.items()}
    features |= {name: {"dtype": "bool", "shape": (1,), "names": None} for name in ("next.done", SUCCESS)}
    try:
        lerobot = importlib.import_module("lerobot.datasets.lerobot_dataset")
    except ImportError:
        write_layout(folder, list(episodes(count, seed)), features)
        return
    dataset = lerobot.LeRobotDataset.create("fastgae/reach", fps=10, root=folder, features=features, use_videos=False)
    for episode in episodes(count, seed):
        for step in range(len(episode[STATE])):
            frame = {name: np.atleast_1d(numbers[step]) for name, numbers in episode.items()}
            dataset.add_frame({**frame, "task": "come to rest at 0"})
        dataset.save_episode()
    dataset.finalize()


def write_layout(folder: Path, recorded: list[Frames], features: dict[str, Any]) -> None:
    """Write the files of a LeRobot dataset that this program reads: a row group for each episode, and info.json."""
    data = folder / "data" / "chunk-000" / "file-000.parquet"
    data.parent.mkdir(parents=True)
    (folder / "meta").mkdir()
    writer = None
    for number, episode in enumerate(recorded):
        columns = {name: pa.array(list(numbers)) for name, numbers in episode.items()}
        steps = np.arange(len(episode[STATE]))
        table = pa.table({**columns, "frame_index": steps, "episode_index": np.full_like(steps, number)})
        writer = writer or pq.ParquetWriter(data, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()
    frames = sum(len(episode[STATE]) for episode in recorded)
    info = {"codebase_version": "v3.0", "total_episodes": len(recorded), "total_frames": frames, "features": features}
    (folder / "meta" / "info.json").write_text(json.dumps(info, indent=1))


def powers(states: Floats) -> Floats:
    """Return what the critic multiplies by its weights: the powers of position and velocity up to the fourth."""
    position, velocity = states.T
    terms = [position**n * velocity**m for n in range(5) for m in range(5 - n)]
    return np.stack(terms, axis=1)


def label(dataset: Path, failure: float, quantile: float) -> fastgae.data.Report:
    """Write the labels of all steps to ``meta/advantages.parquet`` in the dataset."""
    task: dict[str, Any] = {"rewards": f"{SUCCESS}:-1:{failure}", "gamma": 1.0, "ends": "terminated"}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "with_returns.parquet")
        fastgae.data.compute(dataset, into=copy, estimator="discounted_returns", progress=False, **task)
        seen = pq.read_table(copy, columns=[STATE, "returns"])
    states = np.array(seen[STATE].to_pylist(), np.float32)
    weights = np.linalg.lstsq(powers(states), seen["returns"].to_numpy(), rcond=None)[0]
    critic = fastgae.data.Critic(lambda batch: powers(batch[STATE]) @ weights, columns=[STATE])
    return fastgae.data.compute(dataset, values=critic, label_quantile=quantile, overwrite=True, **task)


def labelled(dataset: Path) -> dict[str, Any]:
    """Return the frames with their labels, which are in the order of the frames and also name them."""
    keys = ["episode_index", "frame_index"]
    frames = pa.concat_tables(pq.read_table(file) for file in sorted((dataset / "data").rglob("*.parquet")))
    labels = pq.read_table(dataset / "meta" / "advantages.parquet")
    assert all(frames[key].equals(labels[key]) for key in keys)
    table = frames.append_column("positive", labels["positive"])
    return {name: np.array(table[name].to_pylist()) for name in (*keys, STATE, SUCCESS, "positive")}


def draw(picture: Path, frames: dict[str, Any], shown: int) -> None:
    """Draw the first episodes that succeed and that fail, with the steps whose actions are labelled positive."""
    episode, step = frames["episode_index"], frames["frame_index"]
    succeeded = np.isin(episode, episode[frames[SUCCESS]])
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharex=True, sharey=True, layout="constrained")
    for panel, chosen, title in zip(panels, (succeeded, ~succeeded), ("successes", "failures"), strict=True):
        for number in np.unique(episode[chosen])[:shown]:
            position = frames[STATE][episode == number, 0]
            panel.plot(position, color="#999999", linewidth=0.8, zorder=1)
        among = chosen & np.isin(episode, np.unique(episode[chosen])[:shown])
        for positive, color, name in ((False, "#d55e00", "negative"), (True, "#0072b2", "positive")):
            rows = among & (frames["positive"] == positive)
            panel.scatter(step[rows], frames[STATE][rows, 0], s=9, color=color, label=name, zorder=2)
        share = frames["positive"][chosen].mean() if chosen.any() else 0
        labels = f"{share:.0%} of all their actions are labelled positive"
        panel.set_title(f"{title}: {labels if chosen.any() else 'none'}", fontsize=10)
        panel.set_xlabel("step")
    panels[0].set_ylabel("position (the goal is 0)")
    panels[0].legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None} if picture.suffix == ".svg" else None)
    plt.close(figure)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("dataset", type=Path, help="the folder of a LeRobot dataset")
    add("--episodes", type=int, default=200, help="to record if there is no dataset (default: %(default)s)")
    add("--failure", type=float, default=100.0, help="what a failure costs (default: %(default)s)")
    add("--quantile", type=float, default=0.7, help="of the advantages, above which is positive (default: %(default)s)")
    add("--plot", type=Path, metavar="PICTURE", help="draw some episodes with their labels")
    add("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if given.episodes < 1:
        parser.error("--episodes must be at least 1")
    if given.plot and not given.plot.parent.is_dir():
        parser.error(f"--plot: there is no folder {given.plot.parent}")
    return given


def main(settings: argparse.Namespace) -> fastgae.data.Report:
    if not settings.dataset.exists():
        new = settings.dataset.with_name(f"{settings.dataset.name}.unfinished")
        shutil.rmtree(new, ignore_errors=True)
        record(new, settings.episodes, settings.seed)
        new.rename(settings.dataset)
    report = label(settings.dataset, settings.failure, settings.quantile)
    frames = labelled(settings.dataset)
    for row in (0, len(frames["positive"]) - 1):
        prompt = f"come to rest at 0. Advantage: {'positive' if frames['positive'][row] else 'negative'}"
        print(f"episode {frames['episode_index'][row]}, frame {frames['frame_index'][row]}: {prompt!r}")
    if settings.plot:
        draw(settings.plot, frames, shown=6)
    return report


if __name__ == "__main__":
    try:
        print(main(parse()))
    except fastgae.data.DataError as error:
        raise SystemExit(f"error: {error}") from error
