"""Damage to a file: bits, lengths, places, and tokens that parsers are known to stumble over."""

from __future__ import annotations

import io
import zipfile

import numpy as np

TOKENS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b'"', b"'", b",", b"\t", b"\r", b"\n\n",
    b"[" * 5000, b"{" * 5000, b"nan", b"-inf", b"1e999", b"-1", b"9" * 400, b"1_0", b"0x10",
    b"true", b"null", b"=cmd|'/c calc'!A0", b"../../etc/passwd", b"<script>1</script>", b"&a *a",
    b"!!python/object/apply:os.system [id]", b"A" * 100_000, "\u0661\u202e\u2028".encode(), b"%s%n",
)  # fmt: skip


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Return damaged content; of an archive often the members, with sums that are right again."""
    if content[:2] == b"PK" and rng.random() < 0.6:
        return _in_archive(content, rng)
    for _ in range(rng.integers(1, 4)):
        content = _once(content, rng)
    return content


def _once(content: bytes, rng: np.random.Generator) -> bytes:
    data, n = bytearray(content), len(content)
    start = int(rng.integers(n + 1))
    stop = min(n, start + int(rng.integers(1, max(2, min(n, 200)))))
    kind = rng.integers(8)
    if kind == 0 and n:
        for place in rng.integers(n, size=rng.integers(1, 8)):
            data[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        del data[start:]
    elif kind == 2:
        del data[start:stop]
    elif kind == 3:
        data[start:start] = data[start:stop] * int(rng.integers(1, 50))
    elif kind == 4:
        data[start:stop] = rng.bytes(stop - start)
    elif kind == 5:
        data[start:start] = TOKENS[rng.integers(len(TOKENS))]
    elif kind == 6:  # in place of a cell, a word or a line
        ends = [i for i, byte in enumerate(data[:20_000]) if byte in b',\n\t :;"[]{}()']
        if len(ends) > 1:
            i = int(rng.integers(len(ends) - 1))
            data[ends[i] + 1 : ends[i + 1]] = TOKENS[rng.integers(len(TOKENS))]
    else:
        lines = bytes(data).split(b"\n")
        rng.shuffle(lines)
        data = bytearray(b"\n".join(lines))
    return bytes(data)


def _in_archive(content: bytes, rng: np.random.Generator) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        hit = names[rng.integers(len(names))]
        with zipfile.ZipFile(out, "w") as copy:
            for name in names:
                inner = archive.read(name)
                action = rng.integers(6) if name == hit else 5
                if action == 0:
                    continue
                if action < 4:
                    inner = _once(inner, rng)
                # Of a name alone it would write down what time it is.
                copy.writestr(zipfile.ZipInfo("renamed" if action == 4 else name), inner)
    return out.getvalue()
