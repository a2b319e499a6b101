"""The formats of recorded data: the names of their columns, their files, and the place of their results."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from fastgae._canonical.arguments import shown
from fastgae._support.misnamed import COLUMN_ROLES
from fastgae.data.errors import DataError, argument, column_argument, is_remote, reading
from fastgae.data.files import (
    HDF5,
    HIDDEN,
    KINDS,
    NPY,
    NPZ,
    by_suffix,
    data_files,
    description,
    files_of,
    found_sources,
    kind_of,
    npy_files,
    without_query,
)
from fastgae.data.nested import unnested
from fastgae.data.rows import Made, Part, Rows
from fastgae.data.steps import Success
from fastgae.data.stored import Groups, arrays_in, flat, keys_of
from fastgae.data.tables import READERS, THE_TABLE, is_table, tabular

NAMING = ("file", "env", "episode")  # together they name an episode
FILE = "file"  # the column of this role that holds the names of files


def beside(source: Path) -> Path:
    """Return ``name.advantages.parquet`` next to a file or folder."""
    source = source if is_remote(source) or source.name.strip(".") else source.resolve()
    return source.with_name(f"{source.stem if by_suffix(source) else source.name}.advantages.parquet")


def parts_in(path: Path) -> list[Part]:
    """Return the rows of a file of tables or arrays, or of a Delta table."""
    kind = kind_of(path)
    if kind == NPY and path != npy_files(path)[0]:  # all arrays in a folder are the columns of one table
        return []
    with reading(path):
        return flat(path) if kind in (HDF5, NPZ, NPY) else READERS[kind](path)


@dataclass(frozen=True)
class Format:
    """One format."""

    name: str
    columns: Mapping[str, str]  # by role
    sidecar: Callable[[Path], Path] = beside
    results: Mapping[str, str] = field(default_factory=lambda: {"advantages": "advantages", "returns": "returns"})
    files: Callable[[Path], list[Path]] = data_files
    parts: Callable[[Path], list[Part]] = parts_in
    # The columns of the state, which a critic reads unless it names others. None: all columns without a role.
    state: tuple[str, ...] | None = None
    # The columns of the state after a row, by the names of the columns of the state in the row.
    next_state: Mapping[str, str] = field(default_factory=dict)
    # Raises if the source says that it has other episodes than its files, or other rows.
    check: Callable[[Path, Sequence[Path], int], None] = lambda source, files, rows: None


def check_totals(path: Path, said: Mapping[str, Any], **totals: int) -> None:
    """Check the totals of a description, where it has them."""
    for name, total in totals.items():
        if said.get(name) not in (None, total):
            raise DataError(f"{path} says that there are {said[name]} {name.removeprefix('total_')}; there are {total}")


def check_lerobot(source: Path, files: Sequence[Path], rows: int) -> None:
    info = source / "meta" / "info.json"
    check_totals(info, description(info), total_frames=rows)


EPISODES = Groups("episode_", "episode_id", ("observations", "infos", "values"), "Minari")
DEMOS = Groups("data/demo_", "demo", (), "robomimic")


def _episode(path: Path) -> int:
    """Return the number of the episode of a Minari file, which is in the name of its folder."""
    return int(path.parent.name)


def minari_files(source: Path) -> list[Path]:
    """Return the files of a Minari dataset, or of its folder ``data``, in the order of the episodes."""
    if source.is_file():
        return [source]
    data = source / "data" if (source / "data").is_dir() else source
    if (main := data / "main_data.hdf5").is_file():
        return [main]
    found = (path for suffix in ("arrow", "parquet") for path in data.glob(f"*/*.{suffix}"))
    visible = (path for path in found if path.parent.name.isdecimal() and not path.name.startswith(HIDDEN))
    return sorted(visible, key=lambda path: (_episode(path), path.name))


def is_minari(source: Path) -> bool:
    """Return whether a path is a Minari dataset."""
    if source.is_file():
        return kind_of(source) == HDF5 and bool(EPISODES.numbers(source))
    folders = (source, source / "data")
    described = ("data_format" in description(folder / "metadata.json") for folder in folders)
    return any((folder / "main_data.hdf5").is_file() for folder in folders) or any(described)


def check_minari(source: Path, files: Sequence[Path], rows: int) -> None:
    if len(files) == 1 and kind_of(main := files[0]) == HDF5:
        total, said = len(EPISODES.numbers(main)), main.with_name("metadata.json")
        check_totals(main, dict(arrays_in(main).attrs), total_episodes=total, total_steps=rows)
    elif source.is_dir() and files:
        total, said = len({*map(_episode, files)}), files[0].parents[1] / "metadata.json"
    else:
        return
    check_totals(said, description(said), total_episodes=total, total_steps=rows)


def minari_parts(path: Path) -> list[Part]:
    """Return the rows of a file of a Minari dataset. In a table, the last row pads the end: it holds the last state."""
    if kind_of(path) == HDF5:
        return EPISODES.parts(path)

    def made(name: str) -> Made:
        return lambda start, stop: pa.array(keys_of("episode_id", _episode(path), start, stop)[name])

    with reading(path):
        padded = Rows(READERS[kind_of(path)](path), {name: made(name) for name in ("episode_id", "step")})
    last = padded.count - 1
    rows, state = partial(padded.batches, 0, last), partial(padded.read, last, last + 1)
    return [Part(path, 0, last, padded.schema, rows, state)] if last > 0 else []


def _named(text: str) -> dict[str, str]:
    """Return the columns of roles from words such as "step=t"; a column may be named like its role."""
    return {role: name or role for role, _, name in (word.partition("=") for word in text.split())}


PLAIN = Format(
    "table",
    {role: role for role in COLUMN_ROLES if role != FILE},
    next_state={"observations": "next_observations", "obs": "next_obs"},
)
RLLIB = Format(
    "rllib",
    _named("episode=eps_id step=t rewards values=vf_preds next_values terminated=terminateds truncated=truncateds"),
    results={"advantages": "advantages", "returns": "value_targets"},
    next_state={"obs": "new_obs"},
)
LEROBOT = Format(
    "lerobot",
    _named("episode=episode_index step=frame_index rewards=next.reward values next_values")
    | _named("done=next.done truncated=next.truncated"),
    lambda source: source / "meta" / "advantages.parquet" if (source / "data").is_dir() else beside(source),
    files=lambda source: data_files(source / "data" if (source / "data").is_dir() else source),
    check=check_lerobot,
)
MINARI = Format(
    "minari",
    _named("episode=episode_id step rewards values terminated=terminations truncated=truncations"),
    lambda source: source / "advantages.parquet" if (source / "data").is_dir() else beside(source),
    files=minari_files,
    parts=minari_parts,
    state=("observations",),
    check=check_minari,
)
D4RL = replace(PLAIN, name="d4rl", columns={**PLAIN.columns, **_named("terminated=terminals truncated=timeouts")})
ROBOMIMIC = Format(
    "robomimic",
    _named("episode=demo step rewards values next_values done=dones"),
    parts=DEMOS.parts,
    state=("obs",),
    next_state={"obs": "next_obs"},
)
FORMATS = {each.name: each for each in (PLAIN, RLLIB, LEROBOT, MINARI, D4RL, ROBOMIMIC)}


def format_named(name: str, columns: Collection[str] = ()) -> Format:
    """Return the format of this name, or, for "auto", the format that the names of the columns show."""
    if not isinstance(name, str) or name not in ("auto", *FORMATS):
        raise ValueError(f"{argument('format')} must be one of auto, {', '.join(FORMATS)}, got {shown(name)}")
    marks = {"rllib": {"eps_id", "terminateds"}, "d4rl": {"rewards", "terminals"}}
    found = next((each for each, mark in marks.items() if mark <= {*columns}), PLAIN.name)
    return FORMATS[found if name == "auto" else name]


def format_of(name: str, source: Path) -> Format:
    """Return the format of this name, or, for "auto", the format that the layout of the files shows."""
    if name != "auto":
        return format_named(name)
    if (source / "meta" / "info.json").is_file() and (source / "data").is_dir():
        return LEROBOT
    if is_minari(source):
        return MINARI
    if not (files := data_files(source)):
        raise DataError(f"{source} holds no file of a known format: {', '.join(KINDS)}, or a LeRobot or Minari dataset")
    return ROBOMIMIC if kind_of(files[0]) == HDF5 and DEMOS.numbers(files[0]) else PLAIN


class Found(NamedTuple):
    """A source: its format, its paths and the files there, which a table in memory has not, and its rows."""

    format: Format
    paths: Sequence[Path]
    patterns: Sequence[Path]  # those of the paths that are patterns
    files: Sequence[Path]
    rows: Rows


def found_in(
    source: Any, name: str, columns: Mapping[str, str | None] | None, rewards: str | None, by_file: bool = False
) -> Found:
    """Return what a source holds.

    ``name``: of its format, or "auto"; ``columns`` and ``rewards``: as the caller gives them; ``by_file``: with a
    column FILE.
    """
    known, paths, patterns, files, seen = format_named(name), list[Path](), list[Path](), list[Path](), set[Path]()
    if is_table(source):
        if by_file:
            raise ValueError(
                f"{argument('episode_is', FILE)} needs a source of files, and this one is a table in memory"
            )
        found = tabular(source)
    else:
        paths, patterns = found_sources(source)
        with reading(paths[0]):
            known, found = format_of(name, paths[0]), []
        for path in paths:  # which may overlap: each .npy file stands for its whole folder
            own = [file for file in known.files(path) if file.absolute() not in seen]
            seen.update(file.absolute() for file in own)
            parts = [part for file in own for part in known.parts(file)]
            known.check(path, own, sum(part.rows for part in parts))
            found += parts
            files += [file for each in own for file in files_of(each)]
    rows = Rows(found)
    in_folders = _with_folders(rows, paths, by_file)
    if name == "auto" and known is PLAIN:
        known = format_named(name, in_folders.schema.names)
    roles = {**known.columns, **(columns or {})} | ({} if rewards is None else {"rewards": Success.named(rewards)[0]})
    # So that no row for an episode makes the columns of folders itself.
    roles = {role: name for role, name in roles.items() if name not in in_folders.made}
    rows = _with_folders(unnested(rows, roles, known.next_state), paths, by_file)
    if not rows.count:
        raise DataError(f"there are no rows in {', '.join(map(str, paths)) or THE_TABLE}")
    return Found(known, paths, patterns, files, rows)


def _with_folders(rows: Rows, paths: Sequence[Path], by_file: bool) -> Rows:
    """Return rows with the keys of Hive folders such as worker=0, and with the names of the files, if asked for."""
    folders = [path if path.is_dir() else path.parent for path in paths]
    levels = zip(*(folder.absolute().parts for folder in folders), strict=False)
    depth = sum(1 for _ in takewhile(lambda names: len({*names}) == 1, levels))
    below = [rows.place(row)[0].absolute().parts[depth:] for row in rows.files.tolist()] if paths else []
    keys = [dict(re.findall(r"(.+?)=(.*)", "\n".join(parts[:-1]))) for parts in below] or [{}]
    names = [key for key in keys[0] if key not in rows.schema.names and all(key in own for own in keys)]
    columns: dict[str, list[Any]] = {key: [unquote(own[key]) for own in keys] for key in names}
    for key, items in columns.items():
        if all(re.fullmatch(r"0|-?[1-9]\d{0,17}", item, re.ASCII) for item in items):
            columns[key] = list(map(int, items))
    if by_file:
        if FILE in rows.schema.names:
            raise DataError(
                f"{rows.place(0)[0]} has a column {FILE!r} itself: pass {column_argument(FILE, FILE)} instead"
            )
        columns[FILE] = [without_query("/".join(parts)) for parts in below]

    def made(items: list[Any]) -> Made:
        of_files = pa.array(items)
        return lambda start, stop: of_files.take(pa.array(rows.file_of(np.arange(start, stop))))

    try:
        return rows.also({key: made(items) for key, items in columns.items()}) if columns else rows
    except UnicodeEncodeError as error:
        raise DataError(f"a name in {paths[0]} is not UTF-8, as a column of names needs: rename it") from error
