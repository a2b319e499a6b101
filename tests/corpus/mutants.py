"""Break .npz files at random, and hold what ``fastgae diagnose`` says of them to its promise.

python tests/corpus/mutants.py                       # a minute with a new seed
python tests/corpus/mutants.py --seed 7 --only 1234  # one of them again
"""

import argparse
import contextlib
import io
import itertools
import random
import re
import struct
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from fastgae.cli.main import main

NAMES = ("rewards", "values", "terminated", "truncated", "last_values", "final_values", "mask", "gamma", "gae_lambda")


def rollout(dtype=np.float32, shape=(6, 3), **options):
    rng = np.random.default_rng(0)
    real = {name: rng.normal(size=shape).astype(dtype) for name in ("rewards", "values")}
    return {**real, "terminated": rng.random(shape) < 0.2, "last_values": np.ones(shape[1:], dtype), **options}


def saved(save, arrays):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


# Well-formed files: what is broken later. A correct rollout, and one with a mistake, are among them.
SOURCES = (
    saved(np.savez, rollout(shape=(32, 4), last_values=np.zeros(4))),
    saved(
        np.savez, rollout(truncated=np.eye(6, 3, dtype=bool), final_values=np.ones(3), gamma=0.9, mask=np.ones((6, 3)))
    ),
    saved(np.savez, rollout(np.float64, (7, 1, 3), gae_lambda=1)),
    saved(np.savez_compressed, rollout(np.float64, (40, 8))),
    saved(np.savez, rollout(shape=(0, 4))),
    saved(np.savez_compressed, rollout(">f8", mask=np.ones((6, 3), "u1"))),
)

# Where a field of each of the zip's records lies, and its format.
LOCAL = [(4, "H"), (6, "H"), (8, "H"), (14, "I"), (18, "I"), (22, "I"), (26, "H"), (28, "H")]
CENTRAL = [(6, "H"), (8, "H"), (10, "H"), (16, "I"), (20, "I"), (24, "I"), (28, "H"), (30, "H"), (32, "H"), (42, "I")]
END = [(4, "H"), (6, "H"), (8, "H"), (10, "H"), (12, "I"), (16, "I"), (20, "H")]
RECORDS = {b"PK\x03\x04": LOCAL, b"PK\x01\x02": CENTRAL, b"PK\x05\x06": END}
FIELDS = [0, 1, 2, 8, 12, 14, 20, 32, 63, 64, 65, 93, 99, 127, 128, 2**15, 2**16 - 1]
FIELDS += [2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1]

DESCRS = """
    '<f4' '>f8' '|b1' '|u1' '<i8' '<f2' '<f16' '<c8' '|O' '|S4' '<U4' '<M8[ns]' '<m8' '|V8' '|V0' '|S0' 'f' 'f3'
    '' '<' '?' 'O8' 'f4,f8' '(2,3)f4' '(1000000000,1000000000)f4' '2147483648f4' 'f4,(' 'object' 'float' 'void'
    'a5' '=f4' '\\d' '\\N{x}' '\\x00f4' [('a','<f4')] [('','<f4')] [('a','<f4'),('a','<f4')] ('<f4',(2,))
    ('<f4',{}) {'names':['a'],'formats':['<f4']} [] () {} None 1 f4 [('a','<f4',(2,))] [[['f4']]] ('f4',) b'f4'
    u'f4' f'f4' 1.5 -1 True ... lambda:0 __import__('os') '\udc80' 'ﬂoat'
"""
SHAPES = (
    "(6, 3);(3,);();(0,);(0, 10**18);(1000000000000000000,);(6, 1000000000000000000);(-6, -3);(-1,)"
    ";(0, 99999999999999999999);(0, -1);(4294967296, 4294967296);(True, 18);(6.0, 3);(6L, 3L);[6, 3];6;None"
    f";({'1, ' * 65});({'1, ' * 1300});{'(' * 90 + ')' * 90};{'(' * 10**4 + ')' * 10**4};{'[' * 10**4}"
    f";{'-' * 3000}1;({'9' * 5000},);(1 if 1else 2,);(0x12,);(1_8,);('6', 3);{{1}};(;);';\"\"\";\\;#;\n;\0;\t1"
    ";(6, 3)}{;{[]: 1};*(6, 3);(6, 3), 'shape': (3,);(6, 3), 1: 2;(6, 3), 'more': 1;1e999;0or 1;\x1b[31m"
).split(";")
STRANGE_NAMES = ["dones", "a/rewards", "../rewards", "rewards.npy", "", "\x1b[31mred", "a\nb", "é\u202e"]
STRANGE_NAMES += ["x" * 60_000, "/", "a\0b"]


def mutant(seed, number):
    """Return the bytes of one broken file, the same ones whenever it is asked for, and how it was broken."""
    rng = random.Random(f"{seed}:{number}")
    begin = rng.choice((source, source, with_header, with_arrays, with_members, with_claims))
    content, steps = bytearray(begin(rng)), [begin.__name__]
    for _ in range(rng.choice((0, 1, 1, 1, 2, 4)) if begin is not source else rng.choice((1, 1, 2, 8))):
        change = rng.choice((flipped, overwritten, cut, inserted, removed, spliced, edited, edited, edited))
        content = bytearray(change(rng, content))
        steps.append(change.__name__)
    return bytes(content), steps


def source(rng):
    return rng.choice(SOURCES)


def with_header(rng):
    """An array of a well-formed archive has the header of another kind."""
    arrays = [(f"{name}.npy", npy(array)) for name, array in rollout().items()]
    at = rng.randrange(len(arrays))
    text = (
        f"{{'descr': {rng.choice(DESCRS.split())}, 'fortran_order': {rng.choice(('False', 'True', '0', ''))}, 'shape': "
    )
    text = (text + rng.choice(SHAPES)).encode("utf-8", "surrogatepass") + rng.choice(
        (b"}", b", }", b"", b"}}", b"}" + b" " * 9000)
    )
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x00\x00", b"\xff\xff"))
    length = len(text) if rng.random() < 0.9 else rng.randrange(2**16)
    data = bytes(rng.choice((0, 3, 18, 72, 144, 4096)))
    packed = struct.pack("<H" if version[0] == 1 else "<I", length & (2**16 - 1))
    arrays[at] = (arrays[at][0], b"\x93NUMPY" + version + packed + text + data)
    return zipped(rng, arrays)


def with_arrays(rng):
    """A well-formed archive of arrays that are no rollout: any dtype, rank and shape, and some are missing."""
    shape = tuple(rng.choice((0, 1, 2, 3, 6)) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 5, 12))))
    names = [
        *NAMES[:3],
        *rng.sample(NAMES[3:], rng.randrange(4)),
        rng.choice(("last_values", "next_values", "prev_done")),
    ]
    arrays = []
    for name in names:
        dtype = rng.choice(
            ("f4", "f4", "f8", ">f4", "f2", "g", "?", "u1", "i8", ">u8", "c8", "O", "S3", "U2", "M8[s]", "f4,i2")
        )
        other = rng.choice((shape, shape, shape, shape[1:], shape[:-1], (*shape, 2), ()))
        array = np.zeros(other, dtype)
        if array.dtype.kind in "fiub" and array.size:
            array.flat[:] = rng.choice((0, 1, 0.5, 3))
            array.flat[rng.randrange(array.size)] = (
                rng.choice((0, 1, 2, np.nan, np.inf)) if array.dtype.kind == "f" else 1
            )
        arrays.append((f"{name}.npy", npy(array)))
    return zipped(rng, arrays)


def with_members(rng):
    """Arrays that are right, under other names, or compressed by other methods."""
    arrays = [(f"{name}.npy", npy(array)) for name, array in rollout().items()]
    at = rng.randrange(len(arrays))
    kind = rng.randrange(4)
    if kind == 0:
        arrays[at] = (rng.choice(STRANGE_NAMES), arrays[at][1])
    elif kind == 1:
        arrays.append((rng.choice((arrays[at][0], *STRANGE_NAMES)), arrays[at][1]))
    elif kind == 2:
        arrays += [(f"{rng.random()}", b"") for _ in range(rng.randrange(100))]
    else:
        del arrays[at]
    return zipped(rng, arrays, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA))


def with_claims(rng):
    """Arrays that are large by their headers and by the zip's directory, and are not there."""
    elements = rng.choice((2**20, 2**24, 2**27, 2**29))
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (elements,)})
    content = bytearray(zipped(rng, [(f"{name}.npy", header.getvalue()) for name in NAMES[:3]]))
    for at in places_of(b"PK\x01\x02", content):
        struct.pack_into("<I", content, at + 24, len(header.getvalue()) + 4 * elements)
    return content


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def zipped(rng, members, methods=(zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
    file = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(file, "w") as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, rng.choice(methods))
    return file.getvalue()


def flipped(rng, content):
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return content


def overwritten(rng, content):
    at = rng.randrange(len(content) + 1)
    content[at : at + 8] = rng.choice((bytes(8), b"\xff" * 8, rng.randbytes(8)))
    return content


def cut(rng, content):
    return content[: rng.randrange(len(content) + 1)]


def inserted(rng, content):
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.choice((1, 2, 4, 100))) + content[at:]


def removed(rng, content):
    at = rng.randrange(len(content) + 1)
    return content[:at] + content[at + rng.choice((1, 2, 4, 100)) :]


def spliced(rng, content):
    """A piece of another file lies over this one."""
    other = rng.choice(SOURCES)
    start, at = rng.randrange(len(other)), rng.randrange(len(content) + 1)
    piece = other[start : start + rng.choice((4, 30, 128, 1000))]
    return content[:at] + piece + content[at + len(piece) :]


def places_of(signature, content):
    return [found.start() for found in re.finditer(re.escape(signature), content)]


def edited(rng, content):
    """A field of the zip's own records has another value."""
    signature = rng.choice(list(RECORDS))
    places = places_of(signature, content)
    if places:
        offset, kind = rng.choice(RECORDS[signature])
        at = rng.choice(places) + offset
        if at + struct.calcsize(kind) <= len(content):
            struct.pack_into(f"<{kind}", content, at, rng.choice(FIELDS) % 256 ** struct.calcsize(kind))
    return content


def said_of(path):
    """Return the exit status and stderr of ``fastgae diagnose``."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        status = main(["diagnose", str(path)])
    return status, errors.getvalue()


def promise(status, errors):
    """What is wrong with an exit status and what came with it; None where nothing is."""
    if status not in (0, 1, 2):
        return f"the status is {status}"
    if status != 2:
        return f"the status is {status}, and stderr is not empty" if errors else None
    line = errors.removesuffix("\n")
    return None if line and line.isprintable() and len(line) < 2000 else "stderr is not one line of printable text"


def check(seed, number, path):
    """Diagnose a mutant and return the exit status; the AssertionError says how to see it again."""
    content, steps = mutant(seed, number)
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            status, errors = said_of(path)
        wrong = promise(status, errors)
    except BaseException as error:
        status, errors, wrong = None, traceback.format_exc(), f"{type(error).__name__} was not caught"
    if wrong:
        raise AssertionError(f"--seed {seed} --only {number} ({', '.join(steps)}): {wrong}\n{errors}")
    return status


def program():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(10**9))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", type=int, metavar="NUMBER")
    args = parser.parse_args()
    statuses, until = Counter(), time.monotonic() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutant.npz"
        if args.only is not None:
            check(args.seed, args.only, path)
            print(*said_of(path))
            return
        for number in itertools.takewhile(lambda _: time.monotonic() < until, itertools.count()):
            statuses[check(args.seed, number, path)] += 1
    print(f"seed {args.seed}: {statuses.total():,} files; by exit status: {dict(sorted(statuses.items()))}")


if __name__ == "__main__":
    program()
