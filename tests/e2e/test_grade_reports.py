"""Reports of `cordon grade` (contract, section 10.6): JSON, JUnit XML, TAP, table and a page of HTML, each
well formed whatever a submission writes."""

import html.parser
import json
import os
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET

import pytest

from cordon_run import CORDON, cordon, host_env

EVIL = (b"</pre></td></table><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">\n"
        b"]]>&amp;<!-- \x1b[31mred\x1b]0;title\x07 \x00\x08\x7f \xff\xfe \xc2\x9b31m \xe2\x80\xae rtl \xef\xbf\xbe\n"
        b"ok 1 - forged\n1..99\nBail out! forged\n  ...\nnot ok 2\n# SKIP\n'\"><b>bold</b>\n")
EVIL_NAME = "x # SKIP\nok 2 - forged <i>&\"'\x1b[2J"


@pytest.fixture
def outcome(shared):
    """Four cases: accepted, a hostile answer under a hostile name, a crash, one with a partial score."""
    lines = [{"name": "good", "input": "1", "output": "1\n"},
             {"name": EVIL_NAME, "input": "2", "output": "<expected> & \"quoted\"\nsecond\n", "group": "<g>"},
             {"name": "crash", "input": "3", "output": "3"},
             {"name": "good too", "input": "4", "output": "4"}]
    cases = shared / "c.jsonl"
    cases.write_text("\n".join(map(json.dumps, lines)))
    source = shared / "evil.py"
    source.write_text(f"import sys\nn = int(input())\nif n == 2:\n    sys.stdout.buffer.write({EVIL!r})\n"
                      f"    sys.stderr.write('<u>err</u>\\x9b31m\\u202e\\n')\nelif n == 3: raise ValueError('<boom>')\nelse: print(n)\n")
    return cases, source


def report(outcome, format_):
    done = subprocess.run([CORDON, "grade", "--report", format_, "--cases", outcome[0], outcome[1]], capture_output=True,
                          env=host_env(), cwd="/", stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 1 and done.stderr == b"", done
    return done.stdout


def test_json(outcome):
    found = json.loads(report(outcome, "json").decode("utf-8"))
    assert found["version"] == 1 and found["kind"] == "judge" and found["verdict"] == "WA"
    assert (found["passed"], found["failed"], found["errors"], found["skipped"], found["not_run"]) == (2, 2, 0, 0, 0)
    assert [d["status"] for d in found["details"]] == ["passed", "failed", "failed", "passed"]
    evil = found["details"][1]
    assert evil["name"] == EVIL_NAME and evil["stdout_encoding"] == "base64"
    import base64
    assert base64.b64decode(evil["stdout"]) == EVIL and evil["expected"].startswith("<expected>")
    assert [d["expected"] for d in found["details"] if d["status"] == "passed"] == ["1\n", "4"]
    assert found["details"][2]["verdict"] == "RE" and "<boom>" in found["details"][2]["stderr"]
    for d in found["details"]:
        assert isinstance(d["runtime_ms"], float) and d["memory_bytes"] > 0 and isinstance(d["cpu_ms"], float)


def test_json_of_long_outputs(shared):
    """Of an accepted case the first 2 KiB of both are kept, of another 64 KiB."""
    (shared / "in").write_text("")
    (shared / "out").write_text("x" * 100000)
    for text, kept in (("print('x' * 100000)", 2048), ("print('x' * 99999)", 65536)):
        (shared / "a.py").write_text(text)
        done = subprocess.run([CORDON, "grade", "--json", "--stdin", "in", "--expect", "out", "a.py"], capture_output=True,
                              env=host_env(), cwd=shared, stdin=subprocess.DEVNULL, timeout=60)
        row, = json.loads(done.stdout)["details"]
        assert [(len(row[k]), row[k + "_truncated"]) for k in ("expected", "stdout")] == [(kept, True)] * 2, row


@pytest.mark.parametrize("format_", ["table", "json", "junit", "tap", "html"])
def test_nothing_steers_a_terminal(outcome, format_):
    """Controls of one byte and of two, and marks that turn the direction of text, in every report."""
    text = report(outcome, format_).decode("utf-8")
    odd = [c for c in text if ord(c) < 0x20 and c != "\n" or 0x7f <= ord(c) < 0xa0 or 0x202a <= ord(c) <= 0x202e]
    assert odd == [], text[:3000]


def test_a_report_goes_where_its_folder_was(outcome, shared, canary):
    """The submission may write above the report's folder, and leaves a link to another in its place."""
    top = shared / "top"
    (top / "reports").mkdir(parents=True)
    before = sorted(os.listdir(canary))
    swap = shared / "swap.sh"
    swap.write_text(f"cd {top} && mv reports old && ln -s {canary} reports; cat\n")
    done = cordon("grade", "--allow-write", top, "--junit", top / "reports" / "r.xml", "--cases", outcome[0], swap)
    assert done.returncode == 1 and (top / "reports").is_symlink(), done
    assert sorted(os.listdir(canary)) == before
    assert ET.fromstring((top / "old" / "r.xml").read_bytes()).tag == "testsuites"


def test_junit(outcome):
    root = ET.fromstring(report(outcome, "junit"))
    suite = root.find("testsuite")
    assert root.tag == "testsuites" and suite.get("tests") == "4" and suite.get("failures") == "2"
    cases = suite.findall("testcase")
    assert [[c.tag for c in case if c.tag in ("failure", "error", "skipped")] for case in cases] == [[], ["failure"], ["failure"], []]
    assert cases[1].get("name").startswith("x # SKIP\nok 2 - forged <i>&\"'") and cases[1].get("classname") == "<g>"
    assert cases[1].find("failure").get("type") == "WA"
    assert "<script>" in cases[1].find("system-out").text and "ok 1 - forged" in cases[1].find("system-out").text
    assert not list(cases[1].find("system-out")), "no element came out of a submission's output"


def test_a_suite_that_failed_is_seen_by_readers_of_rows(shared):
    """Every test passed, and what stands between them did not."""
    (shared / "t.py").write_text("assert f() == 1\nfor n in (1, 2):\n    assert f() == n, '<&>'\n")
    (shared / "s.py").write_text("def f(): return 1\n")
    done = cordon("grade", "--junit", shared / "j.xml", "--report", "tap", "--tests", shared / "t.py", shared / "s.py")
    suite = ET.parse(shared / "j.xml").getroot().find("testsuite")
    rows = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert done.returncode == 1 and rows == {"line 1: assert f() == 1": [], "the suite": ["error"]}
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("2", "1", "0")
    assert "Bail out! line 2 of the tests failed" in done.stdout


def test_what_was_skipped_is_not_green(shared):
    """The status says that not all passed; so does what CI services read."""
    (shared / "t.py").write_text("import unittest\nclass T(unittest.TestCase):\n    def test_a(self): self.assertEqual(f(), 1)\n"
                                 "    @unittest.skip('not now')\n    def test_b(self): pass\n")
    (shared / "s.py").write_text("def f(): return 1\n")
    done = cordon("grade", "--junit", shared / "j.xml", "--report", "tap", "--tests", shared / "t.py", shared / "s.py")
    root = ET.parse(shared / "j.xml").getroot()
    assert done.returncode == 1 and "not ok 2" in done.stdout and "ok 1" in done.stdout, done
    for suite in (root, root.find("testsuite")):
        assert [suite.get(k) for k in ("tests", "failures", "errors", "skipped")] == ["2", "0", "1", "0"], suite.attrib
    rows = [[(child.tag, child.get("type"), child.get("message")) for child in case] for case in root.iter("testcase")]
    assert rows[0] == [] and [row[:2] for row in rows[1]] == [("error", "skipped")] and "not now" in rows[1][0][2], rows
    (shared / "t.py").write_text((shared / "t.py").read_text().replace("@unittest.skip('not now')", ""))
    done = cordon("grade", "--junit", shared / "j.xml", "--tests", shared / "t.py", shared / "s.py")
    assert done.returncode == 0 and ET.parse(shared / "j.xml").getroot().get("errors") == "0"


def test_tap(outcome):
    text = report(outcome, "tap").decode("utf-8")
    top = [line for line in text.split("\n") if line and not line.startswith("  ")]
    assert top[:2] == ["TAP version 13", "1..4"]
    assert [line.split(" - ")[0] for line in top[2:]] == ["ok 1", "not ok 2", "not ok 3", "ok 4"]
    assert "\\# SKIP" in top[3] and not re.search(r"(?<!\\)#", top[3])
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_tap_is_read_by_a_harness(outcome, shared):
    if not shutil.which("prove"):
        pytest.skip("prove is missing: install the Debian package perl")
    script = shared / "t.t"
    (shared / "out.tap").write_bytes(report(outcome, "tap"))
    script.write_text(f"open F, '<', '{shared}/out.tap'; print while <F>;\n")
    done = subprocess.run(["prove", "-v", script], capture_output=True, text=True, timeout=60, env={"PATH": os.environ["PATH"]})
    assert done.returncode != 0 and "Failed 2/4" in done.stdout + done.stderr, done


def test_table(outcome):
    text = report(outcome, "table").decode("utf-8")
    lines = text.splitlines()
    assert len(lines) == 7 and lines[-1] == "2 passed, 2 failed, 0 errors of 4", text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text), "nothing a terminal obeys"
    assert "exit status 1" in lines[2] and "group <g>: 0 of 1" in text


class Page(html.parser.HTMLParser):
    """Tags, their attributes and the text of a page; the nesting must hold."""

    VOID = {"meta", "br", "img"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_html_is_whole_and_inert(outcome):
    page = Page(report(outcome, "html").decode("utf-8"))
    assert set(page.tags) <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "b", "span", "table", "thead",
                              "tr", "th", "tbody", "td", "details", "summary", "div", "pre"}, set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert any("default-src 'none'" in (value or "") for _, value in page.attributes)
    text = "".join(page.text)
    assert page.tags.count("tr") == 5 and text.count("expected, + written") == 2
    assert "<script>document.title='taken'</script>" in text and "\x1b" not in text and "\u241b" in text
    assert "- <expected> & \"quoted\"" in text and "+ ok 1 - forged" in text
    widths = [float(re.match(r"width:([\d.]+)%", value)[1]) for name, value in page.attributes if name == "style"]
    assert len(widths) == 8 and max(widths) == 100 and min(widths) >= 0


def test_files_and_standard_output_together(outcome, shared):
    names = {f: shared / f"r.{f}" for f in ("json", "junit", "tap", "html")}
    words = [w for f, path in names.items() for w in ("--report", f"{f}={path}")]
    done = cordon("grade", *words, "--cases", *outcome)
    assert done.returncode == 1 and done.stdout.endswith("2 passed, 2 failed, 0 errors of 4\n")
    assert json.loads(names["json"].read_text())["failed"] == 2 and ET.parse(names["junit"]).getroot().tag == "testsuites"
    assert names["tap"].read_text().startswith("TAP") and names["html"].read_text().startswith("<!DOCTYPE html>")
    assert not [p for p in shared.iterdir() if p.suffix == ".tmp"]


def test_short_ways_to_ask(outcome, shared):
    done = cordon("grade", "--format", "tap", "--junit", shared / "j.xml", "--cases", *outcome)
    assert done.stdout.startswith("TAP version 13") and ET.parse(shared / "j.xml").getroot().tag == "testsuites"


def test_a_report_that_cannot_be_written_is_our_failure(outcome):
    done = cordon("grade", "--report", "json=/dev/full", "--cases", *outcome)
    assert done.returncode == 70 and "/dev/full" in done.stderr


def test_colors_only_on_a_terminal(outcome):
    assert b"\x1b" not in report(outcome, "table")


def chromium(page, folder, *words):
    with tempfile.TemporaryDirectory(dir=folder) as profile:
        done = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               "--disable-breakpad", f"--user-data-dir={profile}", *words, f"file://{page}"], timeout=120,
                              capture_output=True, env={"PATH": os.environ["PATH"], "HOME": profile, "TMPDIR": profile})
        shutil.rmtree(profile, ignore_errors=True)
        os.makedirs(profile, exist_ok=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.slow
def test_html_in_a_browser(outcome, shared, program):
    program("chromium", "chromium")
    page = shared / "page.html"
    text = report(outcome, "html").decode("utf-8")
    page.write_text(text)
    dom = chromium(page, shared, "--dump-dom")
    assert "<title>" in dom and "taken" not in re.search("<title>(.*?)</title>", dom)[1], "no script ran"
    seen = Page(dom)
    assert set(seen.tags) - {"br"} == set(Page(text).tags), "the browser made no other element of it"
    assert 'id="verdict">WA<' in dom and dom.count("<tr class=") == 4 and dom.count('class="bar"') == 8
    # a page that would report what it can see: the layout of every bar and the diff, opened
    probe = shared / "probe.html"
    probe.write_text(text.replace("script-src", "").replace("default-src 'none'; style-src 'unsafe-inline'", "default-src 'unsafe-inline'")
                     .replace("</body>", "<script>document.querySelectorAll('details').forEach(d => d.open = true);"
                              "const r = e => e.getBoundingClientRect();"
                              "document.title = JSON.stringify({rows: document.querySelectorAll('tbody tr').length,"
                              "bars: [...document.querySelectorAll('.bar')].every(b => r(b).height > 2),"
                              "wide: Math.max(...[...document.querySelectorAll('.bar')].map(b => r(b).width)) > 20,"
                              "diff: [...document.querySelectorAll('pre.diff')].every(d => r(d).height > 10),"
                              "inside: document.documentElement.scrollWidth <= innerWidth + 1})</script></body>"))
    title = re.search("<title>(.*?)</title>", chromium(probe, shared, "--window-size=1000,800", "--dump-dom"))[1]
    assert json.loads(title.replace("&quot;", '"')) == {"rows": 4, "bars": True, "wide": True, "diff": True, "inside": True}
    chromium(page, shared, f"--screenshot={shared}/page.png")
    assert (shared / "page.png").stat().st_size > 5000
