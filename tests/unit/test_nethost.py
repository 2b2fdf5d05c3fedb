"""Hosts against every row of the URL standard's own test data: nothing the standard rejects is accepted, and
what is accepted is read as the standard reads it, IPv4 spellings above all."""

import ipaddress
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROWS = ROOT.parent / "shared" / "data" / "url" / "urltestdata.json"
TOOL = pathlib.Path(os.environ.get("CORDON_BUILD") or ROOT / "build") / "tests" / "unit" / "nethost_tool"
SPECIAL = ("http", "https", "ws", "wss", "ftp")


def read(hosts):
    text = "".join(h.encode("utf-8", "surrogatepass").hex() + "\n" for h in hosts)
    done = subprocess.run([TOOL], input=text, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def authority(row):
    """Scheme and HOST[:PORT] of a row whose input is absolute, else None."""
    text = re.sub(r"[\t\n\r]", "", row["input"].strip("".join(map(chr, range(0x21)))))
    match = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", text, re.S)
    if not match:
        return None
    scheme, rest = match[1].lower(), match[2]
    if scheme in SPECIAL:
        if not re.match(r"[/\\]{2}", rest):
            return None
        return scheme, re.split(r"[/\\?#]", rest.lstrip("/\\"))[0].rpartition("@")[2]
    if not rest.startswith("//") or scheme == "file" and re.search(r":\d", rest):  # files have no port
        return None
    return scheme, re.split(r"[/?#]", rest[2:])[0].rpartition("@")[2]


def same(ours, hostname):
    kind, _, value = ours.partition(" ")
    if kind == "name":
        return value == hostname.removesuffix(".")
    expected = ipaddress.ip_address(hostname.strip("[]"))
    mapped = getattr(expected, "ipv4_mapped", None)
    return ipaddress.ip_address(value) == (mapped or expected)


@pytest.mark.skipif(not ROWS.exists(), reason="../shared/data/url/urltestdata.json is not there")
def test_every_row_of_the_standard():
    rows = [r for r in json.loads(ROWS.read_text()) if isinstance(r, dict)]
    cases = [(r, *a) for r in rows if (a := authority(r))]
    answers = read([host for _, _, host in cases])
    wrong, accepted, refused = [], 0, 0
    for (row, scheme, host), ours in zip(cases, answers, strict=True):
        if row.get("failure"):
            refused += ours == "-"
            if ours != "-":
                wrong.append(f"{row['input']!r}: the standard fails, ours reads {ours}")
        elif ours != "-" and scheme in SPECIAL:
            accepted += 1
            if not same(ours, row["hostname"]):
                wrong.append(f"{row['input']!r}: {row['hostname']} in the standard, ours reads {ours}")
    assert not wrong, "\n".join(wrong)
    assert accepted > 140 and refused > 200, (accepted, refused)


ADDRESSES = {
    "2130706433": "127.0.0.1", "0x7f000001": "127.0.0.1", "0X7F.1": "127.0.0.1", "017700000001": "127.0.0.1",
    "127.1": "127.0.0.1", "127.0.1": "127.0.0.1", "0": "0.0.0.0", "0x": "0.0.0.0", "0300.0250.1": "192.168.0.1",
    "1.2.3.4.": "1.2.3.4", "[::ffff:127.0.0.1]": "127.0.0.1", "[::FFFF:7f00:1]": "127.0.0.1", "[::1]": "::1",
    "255.255.255.255": "255.255.255.255", "4294967295": "255.255.255.255", "169.254.43518": "169.254.169.254",
}


def test_spellings_of_addresses():
    assert dict(zip(ADDRESSES, read(ADDRESSES))) == {k: "addr " + v for k, v in ADDRESSES.items()}


@pytest.mark.parametrize("host", [
    "", ".", "..", "a..b", ".a", "a.1", "a.0x", "1.2.3.4.5", "256.1.1.1", "4294967296", "1.2.3.08", "1..2",
    "a b", "a\0b", "ok.com\0.evil.com", "ok.com\r\nX: y", "ok.com\n", "a%2eb", "a_b.com", "-a.com", "a-.com", "a@b",
    "é.com", "ｅvil.com", "１２７.0.0.1", "a/b", "a\\b", "a#b", "[::1", "::1", "[::1%25lo]", "[fe80::1%eth0]",
    "[1.2.3.4]", "[::1]x", "ok.com:", "ok.com:0", "ok.com:65536", "ok.com:80:80", "ok.com:+80", "xn--", "xn--a",
    "xn--a-", "xn--pokxncvks.com", "a" * 64 + ".com", ".".join(["a" * 49] * 6), "xn--xn---epa.com",
])
def test_not_a_host(host):
    assert read([host]) == ["-"]


@pytest.mark.parametrize("host, name", [
    ("OK.Com", "ok.com"), ("ok.com.", "ok.com"), ("ok.com:443", "ok.com"), ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ("XN--BCHER-KVA.example", "xn--bcher-kva.example"), ("1a.com", "1a.com"), ("1.2.3.a", "1.2.3.a"), ("xn--fiqs8s", "xn--fiqs8s"),
    ("a" * 63 + ".com", "a" * 63 + ".com"), ("xn--p1ai", "xn--p1ai"),
])
def test_names(host, name):
    assert read([host]) == ["name " + name]
