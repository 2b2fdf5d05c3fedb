"""Differences between two snapshots as a patch that `git apply` takes. Pure."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from typing import Iterator, List, Optional, Tuple

from ._tree import Entry, Snapshot

CONTEXT = 3
MAX_EDITS = 600  # beyond that a stretch is replaced as a whole: the cost stays bounded whatever a guest writes
_ZERO = "0" * 40


def changes(old: Snapshot, new: Snapshot) -> Tuple[str, List[str]]:
    """The patch and the paths that changed, sorted."""
    paths = sorted(path for path in {**old.entries, **new.entries}
                   if old.entries.get(path) != new.entries.get(path))
    return "".join(_file(path, old.entries.get(path), new.entries.get(path)) for path in paths), paths


def _file(path: str, old: Optional[Entry], new: Optional[Entry]) -> str:
    if any(part.lower() in (".git", "git~1") for part in path.split("/")):
        return ""  # git refuses such names in patches
    sides = [side for side in (old, new) if side is not None]
    if any(side.kind == "other" or side.content is None for side in sides):
        return ""  # listed, not shown: no file, or too large
    if old is not None and new is not None and old.kind != new.kind:
        return _file(path, old, None) + _file(path, None, new)
    a, b = _quoted("a/" + path), _quoted("b/" + path)
    text = [f"diff --git {a} {b}\n"]
    if old is None and new is not None:
        text.append(f"new file mode {_mode(new)}\n")
    elif new is None and old is not None:
        text.append(f"deleted file mode {_mode(old)}\n")
    elif old is not None and new is not None and _mode(old) != _mode(new):
        text.append(f"old mode {_mode(old)}\nnew mode {_mode(new)}\n")
    before, after = (b"" if side is None or side.content is None else side.content for side in (old, new))
    if old is None or new is None or before != after:
        same_mode = f" {_mode(old)}" if old and new and _mode(old) == _mode(new) else ""
        text.append(f"index {_ZERO if old is None else _blob(before)}.."
                    f"{_ZERO if new is None else _blob(after)}{same_mode}\n")
        text.append(_content(a if old else "/dev/null", b if new else "/dev/null", before, after))
    return "".join(text)


def _mode(entry: Entry) -> str:
    return "120000" if entry.kind == "link" else "100755" if entry.executable else "100644"


def _blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _quoted(path: str) -> str:
    """As git writes a name: in quotes when it has something special in it."""
    out, special = [], False
    for byte in os.fsencode(path):
        known = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
        if byte in known or byte < 32 or byte > 126:
            out.append(known.get(byte) or f"\\{byte:03o}")
            special = True
        else:
            out.append(chr(byte))
    return f'"{"".join(out)}"' if special else "".join(out)


def _content(a: str, b: str, before: bytes, after: bytes) -> str:
    if before == after:
        return ""
    try:
        if b"\0" in before or b"\0" in after:
            raise ValueError
        old, new = before.decode(), after.decode()
    except ValueError:
        return f"GIT binary patch\n{_literal(after)}\n{_literal(before)}\n"
    a, b = (name + "\t" if " " in name and name[0] != '"' else name for name in (a, b))
    return f"--- {a}\n+++ {b}\n" + "".join(_hunks(_lines(old), _lines(new)))


def _literal(data: bytes) -> str:
    packed = zlib.compress(data)
    text = [f"literal {len(data)}\n"]
    for i in range(0, len(packed), 52):
        part = packed[i:i + 52]
        size = chr(64 + len(part)) if len(part) <= 26 else chr(96 + len(part) - 26)
        text.append(size + base64.b85encode(part, pad=True).decode() + "\n")
    return "".join(text)


def _lines(text: str) -> List[str]:
    """Only a line feed ends a line."""
    lines = text.split("\n")
    found = [line + "\n" for line in lines[:-1]]
    return found + [lines[-1]] if lines[-1] else found


def _hunks(old: List[str], new: List[str]) -> Iterator[str]:
    edits = list(_edits(old, new))
    start = 0
    while start < len(edits):
        end = start
        while end + 1 < len(edits) and edits[end + 1][0] - edits[end][1] <= 2 * CONTEXT:
            end += 1
        yield _hunk(old, new, edits[start:end + 1])
        start = end + 1


def _hunk(old: List[str], new: List[str], edits: List[Tuple[int, int, int, int]]) -> str:
    first, last = edits[0], edits[-1]
    lead, tail = min(CONTEXT, first[0]), min(CONTEXT, len(old) - last[1])
    a, b = first[0] - lead, first[2] - lead
    a_end, b_end = last[1] + tail, last[3] + tail
    body, at = [], a
    for old_from, old_to, new_from, new_to in edits:
        body += [" " + line for line in old[at:old_from]]
        body += ["-" + line for line in old[old_from:old_to]]
        body += ["+" + line for line in new[new_from:new_to]]
        at = old_to
    body += [" " + line for line in old[at:a_end]]
    shown = [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in body]
    return f"@@ -{_span(a, a_end)} +{_span(b, b_end)} @@\n" + "".join(shown)


def _span(start: int, end: int) -> str:
    count = end - start
    return f"{start + 1}" if count == 1 else f"{start + 1 if count else start},{count}"


def _edits(old: List[str], new: List[str]) -> Iterator[Tuple[int, int, int, int]]:
    """(old from, old to, new from, new to) of every stretch that differs, in order."""
    head = 0
    while head < len(old) and head < len(new) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < len(old) - head and tail < len(new) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    n, m = len(old) - tail, len(new) - tail
    if head == n and head == m:
        return
    at_old, at_new = head, head
    for x, y, length in [*_matches(old[head:n], new[head:m]), (n - head, m - head, 0)]:
        if x + head > at_old or y + head > at_new:
            yield at_old, x + head, at_new, y + head
        at_old, at_new = x + head + length, y + head + length


def _matches(a: List[str], b: List[str]) -> List[Tuple[int, int, int]]:
    """Runs of equal lines (Myers' greedy algorithm); none when there are too many edits."""
    n, m = len(a), len(b)
    if not n or not m:
        return []
    furthest = {1: 0}
    trace = []
    for d in range(min(MAX_EDITS, n + m) + 1):
        trace.append(dict(furthest))
        for k in range(-d, d + 1, 2):
            down = k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < n and 0 <= x - k < m and a[x] == b[x - k]:
                x += 1
            furthest[k] = x
            if x >= n and x - k >= m:
                return _walk_back(trace, n, m)
    return []


def _walk_back(trace: List[dict], x: int, y: int) -> List[Tuple[int, int, int]]:
    found: List[Tuple[int, int, int]] = []
    for d in range(len(trace) - 1, -1, -1):
        furthest, k = trace[d], x - y
        down = k == -d or (k != d and furthest.get(k - 1, -1) < furthest.get(k + 1, -1))
        before = k + 1 if down else k - 1
        px = furthest[before]
        start = px if down else px + 1
        if d == 0:
            start = 0
        if x > start:
            found.append((start, start - k, x - start))
        x, y = px, px - before
    return found[::-1]
