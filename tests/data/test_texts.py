"""Text: the types of columns, the rows of JSON, and the delimiter of CSV."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fastgae.data import compute, tables

from .recorded import refused

ONES = {"ends": "terminated", "gamma": 1.0, "gae_lambda": 1.0}


def advantages(source):
    """Return the advantages in the file of results beside a source."""
    return pq.read_table(compute(source, progress=False, overwrite=True, **ONES).file)["advantages"].to_pylist()


def written(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_what_only_some_rows_have_is_missing_in_the_others(tmp_path):
    rows = [{"rewards": 1.0, "values": 0.0, "terminated": each == 2} for each in range(3)]
    rows[1]["truncated"] = True
    for text in (json.dumps(rows), "\n".join(map(json.dumps, rows))):
        refused("row 0: truncated is missing", written(tmp_path / "a.json", text))


def test_a_list_of_rows(tmp_path):
    rows = [{"episode": each // 2, "rewards": each, "values": 0.0} for each in range(4)]
    text = b"\xef\xbb\xbf" + json.dumps(rows).encode()  # with a byte order mark, as editors on Windows write it
    assert advantages(written(tmp_path / "a.json", text)) == [1, 1, 5, 3]
    refused("b.json .* a list of rows holds 7; expected objects", written(tmp_path / "b.json", json.dumps([*rows, 7])))


def test_objects_over_several_lines_and_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 64)
    rows = [
        {"episode": each // 3, "inner": [{"a": 1}, {"a": 2}], "rewards": float(each), "values": 0.5}
        for each in range(9)
    ]
    expected = np.array([3, 3, 2, 12, 9, 5, 21, 15, 8]) - 0.5
    one_by_one = ((None, "\n"), (2, "\n"), (0, "\r\n"), (2, "\n\n"))
    texts = [end.join(json.dumps(row, indent=indent) for row in rows) for indent, end in one_by_one]
    for text in (*texts, json.dumps(rows), json.dumps(rows, indent=2)):
        for end in ("", "\n"):
            assert advantages(written(tmp_path / "a.json", text + end)) == expected.tolist()
    for block in (64, 2**24):
        monkeypatch.setattr(tables, "BLOCK", block)
        assert advantages(written(tmp_path / "a.json", json.dumps(rows[0], indent=1))) == [-0.5]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_dates_name_episodes_as_they_are_written(tmp_path, suffix):
    times = ["2024-01-01 00:00:00", "2024-01-01T00:00:00"]
    for days in (["2024-01-01", "2024-01-02"], times, ["10:00:00", "11:00:00"]):
        rows = [{"episode": day, "rewards": 1, "values": 0.0} for day in days for _ in range(2)]
        lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
        text = "\n".join(lines if suffix == ".csv" else map(json.dumps, rows))
        assert advantages(written(tmp_path / f"a{suffix}", text)) == [2, 1, 2, 1]
        results = pq.read_table(tmp_path / "a.advantages.parquet")
        assert results["episode"].to_pylist() == [row["episode"] for row in rows]


def test_dates_in_the_first_block_and_text_in_another(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK", 100)
    rows = [{"episode": day, "rewards": 1, "values": 0.0} for day in ("2024-01-01", "2024-01-01b") for _ in range(4)]
    assert advantages(written(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))) == [4, 3, 2, 1] * 2
    for last in ("2,0,True", "2.0,0,1"):
        text = "rewards,values,terminated\n" + "2,0,0\n" * 20 + last
        assert advantages(written(tmp_path / "a.csv", text)) == [*range(42, 0, -2)]


def test_quotes_spaces_after_commas_and_nan(tmp_path, monkeypatch):
    """A block may end within quotes. NaN is a number, which is never read behind an end for good."""
    monkeypatch.setattr(tables, "BLOCK", 64)
    lines = (
        'episode, rewards, values, terminated, next_values,"a;b;c;d;e"',
        '0, 1, 0.0, 0, 0.5,"x\n\ny"',
        "0, 2, 0.5, 1,NaN,z",
    )
    assert advantages(written(tmp_path / "a.csv", "\n".join(lines))) == [3, 1.5]


def test_other_encodings_are_named(tmp_path, monkeypatch):
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        text = "\ufeff" * (encoding != "utf-16") + "rewards\tvalues\n1\t0\n"
        refused(
            "a.tsv is UTF-16, as Excel saves it: save it as UTF-8", written(tmp_path / "a.tsv", text.encode(encoding))
        )
    monkeypatch.setattr(tables, "BLOCK", 64)
    text = "episode,rewards,values\n" + "1,1,0\n" * 20 + "é,1,0\n"
    refused("a.csv cannot be read: .* invalid UTF8", written(tmp_path / "a.csv", text.encode("latin-1")))


def test_a_missing_name_is_no_name(tmp_path):
    """A text in quotes may be empty."""
    text = "episode,rewards,values\na,1,0\n,1,0\nb,1,0\n"
    refused("episode None, row 1: episode is missing", written(tmp_path / "a.csv", text), **ONES)
    assert advantages(written(tmp_path / "a.csv", text.replace("\n,", '\n"",'))) == [1, 1, 1]


def test_names_that_a_float_cannot_hold(tmp_path):
    """Two integers may be one float. In a type that holds them, they are two episodes."""
    names = [2**53, 2**53 + 1]
    table = pa.table({"episode": names, "rewards": [1.0, 1.0], "values": [0.0, 0.0]})
    pq.write_table(table, tmp_path / "a.parquet")
    assert advantages(tmp_path / "a.parquet") == [1, 1]
    for kind, name in ((pa.float64(), 2**53), (pa.float32(), 2**24)):
        pq.write_table(table.set_column(0, "episode", pa.array([5.0, name], kind)), tmp_path / "b.parquet")
        refused(f"row 1: episode is not exact in {kind}: write it as integers or text", tmp_path / "b.parquet", **ONES)
    cell = r"c\.csv: row 1: the column of values holds string; .* integers, and this row holds 'abc'"
    refused(cell, written(tmp_path / "c.csv", "rewards,values,terminated\n1,,0\n1,abc,0\n1,nan,1\n"), **ONES)
    text = "episode,rewards,values\n9007199254740992,1,0\n9007199254740993,1,0\n5.0,1,0\n"
    refused("episode is not exact in double", written(tmp_path / "c.csv", text), **ONES)


def test_folders_of_two_spellings_are_two_episodes(tmp_path):
    """They may hold a row for each episode, too."""
    for name, number in itertools.product(("01", "1"), (1.0, [1.0])):
        (folder := tmp_path / f"{np.ndim(number)}/episode={name}").mkdir(parents=True)
        pq.write_table(pa.table({"rewards": [number], "values": [number]}), folder / "a.parquet")
    for folder in ("0", "1"):
        assert advantages(tmp_path / folder) == [0, 0]


def test_columns_that_differ_only_in_case(tmp_path):
    """Rows in order need no database, which tells no case. Scattered ones are refused."""
    table = pa.table({"episode": [0, 0, 1, 1], "step": [0, 1, 0, 1], "rewards": [1.0] * 4, "Rewards": [0.0] * 4})
    asked = {**ONES, "values": "Rewards"}
    for order in ([0, 1, 2, 3], [0, 2, 1, 3]):
        pq.write_table(table.take(order), tmp_path / "a.parquet")
        if order[1] == 1:
            assert compute(tmp_path / "a.parquet", progress=False, **asked).steps == 4
        else:
            refused("'rewards' and 'Rewards' differ only in case", tmp_path / "a.parquet", overwrite=True, **asked)
    unnamed = table.rename_columns({"step": ""})
    assert compute(unnamed, columns={"step": ""}, progress=False, **asked).num_rows == 4
    refused("a column has an empty name, so", unnamed.take([0, 2, 1, 3]), columns={"step": ""}, **asked)
