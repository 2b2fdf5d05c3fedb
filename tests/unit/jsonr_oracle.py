"""Random JSON documents and what Python's reader makes of them, for test_jsonr.c.

Two lines per document: its text, with U+001E in place of line ends, and its value in the notation
of dump() there, or "refused". About half of the documents have been damaged. Python takes a little
more than RFC 8259 allows (NaN, halves of surrogate pairs, infinite numbers, any depth); that is
refused here by hand. Usage: jsonr_oracle.py COUNT [SEED]
"""

import json
import random
import struct
import sys

DEPTH_MAX = 64


class Refused(Exception):
    pass


def real(value):
    if value in (float("inf"), float("-inf")):
        raise Refused
    return "r" + struct.pack(">d", value).hex()


def integer(text):
    value = int(text)
    if -(2**63) <= value < 2**64:
        return str(value)
    return "big" + ("-" if value < 0 else "+") + real(float(text))


def pairs(items):
    keys = [key for key, _ in items]
    if len(set(keys)) != len(keys):
        raise Refused
    return ("object", items)


def refuse(_):
    raise Refused


def dump(value, depth=0):
    if depth > DEPTH_MAX:
        raise Refused
    if value is None:
        return "null"
    if value is True or value is False:
        return str(value).lower()
    if isinstance(value, Number):
        return value.text
    if isinstance(value, str):
        return "s" + value.encode().hex()
    if isinstance(value, list):
        if depth == DEPTH_MAX:
            raise Refused
        return "[" + "".join(dump(item, depth + 1) + "," for item in value) + "]"
    if depth == DEPTH_MAX:
        raise Refused
    return "{" + "".join(
        key.encode().hex() + ":" + dump(item, depth + 1) + "," for key, item in value[1]) + "}"


class Number:
    def __init__(self, text):
        self.text = text


def expected(data):
    try:
        value = json.loads(
            data.decode(),  # from bytes Python would accept UTF-16 and UTF-32, too
            parse_int=lambda text: Number(integer(text)),
            parse_float=lambda text: Number(real(float(text))),
            parse_constant=refuse,
            object_pairs_hook=pairs)
        return dump(value)
    except (ValueError, Refused, OverflowError, RecursionError):
        return "refused"


def random_number(rng):
    kind = rng.randrange(7)
    if kind == 0:
        return str(rng.randint(-10, 10))
    if kind == 1:
        return str(rng.choice([2**63, 2**64, 2**53, 10**19]) + rng.randint(-2, 2))
    if kind == 2:
        return str(-rng.choice([2**63, 2**64, 2**53]) + rng.randint(-2, 2))
    if kind == 3:
        return repr(struct.unpack("<d", rng.randbytes(8))[0])
    if kind == 4:  # halfway between two doubles, or next to it
        value = rng.randint(2**52, 2**53 - 1) * 2 + 1
        shift = rng.randint(-1120, 960)
        if shift >= 0:
            return str(value << shift) + rng.choice(["", ".0", ".000001", "e0"])
        return "%de%d" % (value * 5**-shift + rng.choice([0, 0, 1, -1]), shift)
    if kind == 5:
        return "%s%d.%0*de%d" % (rng.choice(["", "-"]), rng.randint(0, 9), rng.randint(1, 25),
                                 rng.randint(0, 10**rng.randint(1, 20)), rng.randint(-330, 320))
    return "%d%s%s%d" % (rng.randint(0, 99), rng.choice("eE"), rng.choice(["", "+", "-"]),
                         rng.randint(0, 30))


def random_char(rng):
    code = rng.choice([rng.randint(0, 0x7f), rng.randint(0x20, 0x7e), rng.randint(0x80, 0x7ff),
                       rng.randint(0x800, 0xffff), rng.randint(0x10000, 0x10ffff)])
    return "x" if 0xd800 <= code <= 0xdfff else chr(code)


def random_string(rng):
    text = "".join(random_char(rng) for _ in range(rng.choice([0, 1, 3, 8, 20])))
    text += "a" * rng.choice([0, 0, 7, 40])
    out = json.dumps(text, ensure_ascii=rng.random() < 0.5)
    return out.replace("/", rng.choice(["/", "\\/"])).replace("\x7f", rng.choice(["\x7f", "\\u007F"]))


def blank(rng):
    return rng.choice(["", "", "", " ", "\n", "\t", "\r\n", "   "])


def random_value(rng, depth):
    kind = rng.randrange(8 if depth > 0 else 5)
    if kind == 0:
        return rng.choice(["null", "true", "false"])
    if kind in (1, 2):
        return random_number(rng)
    if kind in (3, 4):
        return random_string(rng)
    items = [random_value(rng, depth - 1) for _ in range(rng.choice([0, 1, 2, 5, 20]))]
    if kind == 5:
        open_, close = "[", "]"
    else:
        open_, close = "{", "}"
        prefix = rng.choice([True, True, False])
        items = [(json.dumps(str(i)) if prefix else random_string(rng)) + blank(rng) + ":" +
                 blank(rng) + item for i, item in enumerate(items)]
    return open_ + ",".join(blank(rng) + item + blank(rng) for item in items) + close


def damage(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            del data[at:at + rng.randint(1, 3)]
        elif kind == 1:
            data[at:at] = rng.choice([b",", b"\"", b"\\", b"{", b"]", b"0", b"-", b".", b"e", b"\\u",
                                      b"\\ud800", b"\\udc00", b"NaN", b"\xff", b"\xed\xa0\x80", b":"])
        elif kind == 2 and at < len(data):
            data[at] = rng.randrange(256)
        else:
            data[at:at] = data[at:at + 6]
    return bytes(data)


def main():
    count = int(sys.argv[1])
    rng = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 8259)
    sys.set_int_max_str_digits(0)
    out = sys.stdout.buffer
    for i in range(count):
        if i % 200 == 0:
            n = rng.randint(DEPTH_MAX - 1, DEPTH_MAX + 1)
            data = (b"[" * n) + (b"]" * n)
        else:
            data = (blank(rng) + random_value(rng, rng.randint(0, 5)) + blank(rng)).encode()
        if rng.random() < 0.5:
            data = damage(rng, data)
        data = data.replace(b"\x1e", b"?") + b"\n"
        out.write(data[:-1].replace(b"\n", b"\x1e") + b"\n" + expected(data).encode() + b"\n")


main()
