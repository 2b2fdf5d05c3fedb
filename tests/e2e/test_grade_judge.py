"""Judge mode of `cordon grade` (contract, section 10.2): every verdict in every language, ways to compare,
checkers, interactors, scores, and what a submission must not reach."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from cordon_run import CORDON, cordon, host_env
import judge_submissions as subs

SOURCES = subs.sources()
LIMITS = ("--time-limit", "2s", "--memory-limit", "128M", "--max-output", "1M", "--processes", "40")
# The Java machine and Node ask for more before they begin.
ROOMY = {"java": ("--time-limit", "6s", "--memory-limit", "400M", "--max-output", "1M"),
         "javascript": ("--time-limit", "4s", "--memory-limit", "256M", "--max-output", "1M"),
         "go": ("--time-limit", "3s", "--memory-limit", "128M", "--max-output", "1M")}


ENV = {}


@pytest.fixture(scope="module", autouse=True)
def cache(world):
    """Compiled programs are kept in a folder of this file's own."""
    parent = os.environ.get("CORDON_E2E_DIR")
    with tempfile.TemporaryDirectory(prefix="e2e-", dir=parent if parent and os.access(parent, os.W_OK) else "/var/tmp") as top:
        ENV["XDG_CACHE_HOME"] = top
        yield


@pytest.fixture
def cases(shared):
    """Two cases of the sum."""
    folder = shared / "cases"
    folder.mkdir()
    for name, text, answer in (("1", "1 2\n", "3\n"), ("2", "40 2\n", "42\n")):
        (folder / f"{name}.in").write_text(text)
        (folder / f"{name}.out").write_text(answer)
    return folder


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def grade(*words, timeout=120, **kw):
    return cordon("grade", *words, timeout=timeout, env=ENV, **kw)


def report(*words, **kw):
    done = grade("--json", *words, **kw)
    assert done.stdout, f"exit {done.returncode}: {done.stderr}"
    outcome = json.loads(done.stdout)
    accepted = outcome["verdict"] == "AC"
    if outcome["verdict"] != "CE":
        assert outcome["enforcement"]["tier"] in ("full", "landlock")
    assert done.returncode == (0 if accepted else 70 if outcome["verdict"] == "SE" else 1), done.stderr
    return outcome


def verdicts(outcome):
    return [d["verdict"] for d in outcome["details"]]


def need_tool(language):
    binary, package = subs.TOOL[language]
    if not os.path.exists(f"/usr/bin/{binary}"):
        pytest.skip(f"{binary} is missing: install the Debian package {package}")


# ---- verdicts ----

QUICK = [(language, act) for language, act in sorted(SOURCES)
         if language in ("c", "python") or act == "right" or (language, act) == ("java", "broken")]
SLOW = [key for key in sorted(SOURCES) if key not in QUICK]


def check_verdict(language, act, cases, shared):
    need_tool(language)
    path = write(shared, "Main." + subs.SUFFIX[language], SOURCES[language, act])
    limits = ROOMY.get(language, LIMITS)
    if act in ("slow", "asleep") and limits is LIMITS:
        limits = ("--time-limit", "1s", *LIMITS[2:])  # nothing shorter would be accepted either
    if act == "forking" and limits is not LIMITS:
        limits = (*limits, "--processes", "100")
    how = ("--compare", "exact") if act == "spaced" else ()
    outcome = report(*limits, *how, "--cases", cases, "--stop-on-fail", path)
    expected = subs.VERDICTS[act]
    assert outcome["verdict"] == expected, json.dumps(outcome, indent=1)
    if expected == "AC":
        assert verdicts(outcome) == ["AC", "AC"] and outcome["score"] == 2
    else:
        assert outcome["score"] == 0 and outcome["passed"] == 0


@pytest.mark.parametrize("language,act", QUICK)
def test_verdict(language, act, cases, shared):
    check_verdict(language, act, cases, shared)


@pytest.mark.slow
@pytest.mark.parametrize("language,act", SLOW)
def test_verdict_more(language, act, cases, shared):
    check_verdict(language, act, cases, shared)


@pytest.mark.slow
def test_twenty_times_the_same(cases, shared):
    """The same submissions, judged 20 times, two cases at once: the same verdicts."""
    for act in ("right", "wrong", "leaking", "crashing", "flooding", "forking", "failing", "asleep"):
        path = write(shared, f"{act}.c", SOURCES["c", act])
        limits = ("--time-limit", "1s", *LIMITS[2:]) if act == "asleep" else LIMITS
        seen = {tuple(verdicts(report(*limits, "-j", "2", "--cases", cases, path))) for _ in range(20)}
        assert seen == {(subs.VERDICTS[act],) * 2}, (act, seen)


def test_three_times_the_same(cases, shared):
    for act in ("right", "wrong", "crashing", "flooding", "failing"):
        path = write(shared, f"{act}.py", SOURCES["python", act])
        seen = {tuple(verdicts(report(*LIMITS, "-j", "2", "--cases", cases, path))) for _ in range(3)}
        assert seen == {(subs.VERDICTS[act],) * 2}, (act, seen)


def test_a_compiler_that_fails_is_shown_and_nothing_runs(cases, shared):
    path = write(shared, "a.c", SOURCES["c", "broken"])
    outcome = report("--cases", cases, path)
    assert outcome["verdict"] == "CE" and "nothing_like_this" in outcome["error"]
    assert [d["status"] for d in outcome["details"]] == ["not_run", "not_run"] and outcome["not_run"] == 2
    assert verdicts(outcome) == ["CE", "CE"]


@pytest.mark.parametrize("name,text,says", [
    ("a.py", "print(input())\ndef f(:\n", 'File "a.py", line 2'), ("a.py", "return 1\n", "'return' outside function"),
    ("a.py", "if 1:\nx = 1\n", "IndentationError"), ("a.js", "let x = ;\n", "a.js:1")])
def test_a_source_that_does_not_parse_is_a_compile_error(cases, shared, name, text, says):
    need_tool("javascript" if name == "a.js" else "python")
    path = write(shared, name, text)
    for more in (("-j", "2"), ("--stop-on-fail",), ("--block-import", "ssl")):
        if name == "a.py" or more[0] != "--block-import":  # which is heard by Python alone
            outcome = report(*more, "--cases", cases, path)
            assert (outcome["verdict"], outcome["not_run"], verdicts(outcome)) == ("CE", 2, ["CE", "CE"]), outcome
            assert says in outcome["error"] and "Traceback" not in outcome["error"], outcome
    talk = write(shared, "talk.py", "import sys\nprint(1, 2, flush=True)\nsys.exit(0 if input() == '3' else 1)\n")
    assert report("--interactor", talk, "--cases", cases, path)["verdict"] == "CE"


@pytest.mark.parametrize("name,text", [
    ("a.py", "raise SyntaxError('invalid syntax')"), ("a.py", "compile('def f(:', 'a.py', 'exec')"), ("a.py", "raise SystemExit(1)"),
    ("a.py", "import sys\nsys.stderr.write('  File \"a.py\", line 1\\nSyntaxError: invalid syntax\\n')\nsys.exit(1)"),
    ("a.py", "import sys\nopen(sys.argv[0], 'w').write('def f(:')\nsys.exit(1)"), ("a.py", "import beside"),
    ("a.py", "raise SystemExit(77)"), ("a.py", "# \0\n\nraise SystemExit(1)"), ("a.py", f"x = {'-' * 2998}1\nraise SystemExit(1)"), ("a.js", "JSON.parse('{')"), ("a.js", "process.exit(1)")])
def test_a_source_that_parses_is_no_compile_error(cases, shared, name, text):
    """Whatever it says or does when it runs; the last case is accepted, and stays so."""
    need_tool("javascript" if name == "a.js" else "python")
    (cases / "1.in").write_text("40 2\n")
    (cases / "1.out").write_text("42\n")
    (cases / "2.in").write_text("no numbers\n")
    begin = ("try:\n    print(sum(map(int, input().split())))\n    import os\n    os._exit(0)\nexcept ValueError:\n    pass\n"
             if name == "a.py" else "const n = require('fs').readFileSync(0, 'utf8').split(' ').map(Number);\n"
             "if (n[0] > 0) { console.log(n[0] + n[1]); process.exit(0); }\n")
    if name == "a.py":
        begin = begin.replace("    import os\n    os._exit(0)", "    import os, sys\n    sys.stdout.flush()\n    os._exit(0)")
    beside = write(shared, "beside.py", "def f(:\n")
    outcome = report("--file", f"beside.py={beside}", "--cases", cases, write(shared, name, begin + text))
    assert (outcome["verdict"], verdicts(outcome), outcome["score"]) == ("RE", ["AC", "RE"], 1), outcome


@pytest.mark.parametrize("first", [True, False])
def test_what_a_run_began_is_no_compile_error(cases, shared, first):
    """A program that some case ran cannot become none in another one, whatever a parser says of its text."""
    (cases / ("1" if first else "2")).with_suffix(".in").write_text("quiet\n")
    text = "# \0\n\nline = input()\nif line == 'quiet':\n    raise SystemExit(1)\nprint(sum(map(int, line.split())))\n"
    outcome = report("-j", "1", "--cases", cases, write(shared, "a.py", text))
    assert (verdicts(outcome), outcome["score"]) == (["RE", "AC"] if first else ["AC", "RE"], 1), outcome


def test_a_submission_without_a_suffix(cases, shared):
    need_tool("c")
    assert report("--language", "c", "--cases", cases, write(shared, "sub", SOURCES["c", "right"]))["verdict"] == "AC"


def test_compiled_once_for_all_cases(shared):
    """Twenty cases of a compiled program cost one compiler run: far less than twenty."""
    need_tool("c")
    path = write(shared, "a.c", SOURCES["c", "right"])
    lines = [json.dumps({"input": f"{i} 1\n", "output": f"{i + 1}\n"}) for i in range(20)]
    file = write(shared, "cases.jsonl", "\n".join(lines) + "\n")
    begin = time.monotonic()
    once = report("--no-cache", "--cases", write(shared, "one.jsonl", lines[0]), path)
    one = time.monotonic() - begin
    begin = time.monotonic()
    outcome = report("--no-cache", "--cases", file, path)
    assert once["passed"] == 1 and outcome["passed"] == 20
    assert time.monotonic() - begin < 8 * one + 5


def test_commands_and_executables_and_text(cases, shared):
    done = subprocess.run(["gcc", "-o", shared / "prog", "-x", "c", "-"], input=SOURCES["c", "right"], text=True)
    if done.returncode:
        pytest.skip("gcc is missing: install the Debian package gcc")
    assert report("--cases", cases, shared / "prog")["verdict"] == "AC"
    awk = report("--cases", cases, "--", "awk", "{ print $1 + $2 }")
    assert awk["verdict"] == "AC" and awk["language"] is None
    text = subprocess.run([CORDON, "grade", "--json", "--cases", cases, "--language", "python", "-"],
                          input=SOURCES["python", "right"], text=True, capture_output=True, env=host_env(ENV), timeout=60)
    assert json.loads(text.stdout)["verdict"] == "AC"


# ---- cases ----

def test_pairs_of_flags(cases, shared):
    path = write(shared, "a.py", SOURCES["python", "right"])
    pair = ("--stdin", cases / "1.in", "--expect", cases / "1.out")
    assert report(*pair, path)["passed"] == 1
    assert report(*pair, "--stdin", cases / "2.in", "--expect", cases / "2.out", path)["passed"] == 2
    done = grade("--stdin", cases / "1.in", path)
    assert done.returncode == 64 and "--expect" in done.stderr
    hello = write(shared, "b.py", "print('hello')")
    assert report("--expect", write(shared, "hello.out", "hello\n"), hello)["verdict"] == "AC"


def test_folder_order_answers_and_subtasks(shared):
    folder = shared / "c"
    for name in ("10", "9", "2"):
        (folder / "big").mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.in").write_text(f"{name} 0\n")
        (folder / f"{name}.ans").write_text(f"{name}\n")
        (folder / "big" / f"{name}.in").write_text(f"{name} 100\n")
        (folder / "big" / f"{name}.out").write_text(f"{int(name) + 100}\n")
    (folder / "README.md").write_text("no case")
    path = write(shared, "a.py", "a, b = map(int, input().split())\nprint(a + b if a + b != 109 else 0)")
    outcome = report("--cases", folder, path)
    assert [d["name"] for d in outcome["details"]] == ["2", "9", "10", "big/2", "big/9", "big/10"]
    assert outcome["groups"] == [{"name": "big", "score": 0, "points": 3}]
    assert outcome["score"] == 3 and outcome["points"] == 6 and outcome["passed"] == 5


def test_json_document_with_points_groups_and_limits(shared):
    document = {"groups": [{"name": "small", "points": 30}, {"name": "large", "points": 70}], "time_limit": "5s",
                "compare": "token",
                "cases": [{"name": "a", "input": "1 1", "output": "2", "group": "small"},
                          {"name": "b", "input": "2 2", "output": "4", "group": "small"},
                          {"name": "c", "input": "7 7", "output": "14", "group": "large", "time_limit": "700ms"},
                          {"name": "d", "input": "3 3", "output": "6", "points": 5}]}
    file = write(shared, "c.json", json.dumps(document, indent=1))
    path = write(shared, "a.py", "import time\na, b = map(int, input().split())\nif a == 7: time.sleep(30)\nprint(' ', a + b)")
    outcome = report("--cases", file, path)
    assert verdicts(outcome) == ["AC", "AC", "TLE", "AC"] and "700ms" in outcome["details"][2]["message"]
    assert (outcome["score"], outcome["points"]) == (35, 105)
    assert [g["score"] for g in outcome["groups"]] == [30, 0]


def test_a_group_without_cases_gives_no_points(shared):
    path = write(shared, "a.py", "print(1)")
    rows = [{"group": "small", "output": "1"}]
    groups = [{"name": "small", "points": 30}, {"name": "large", "points": 70}]
    done = grade("--cases", write(shared, "c.json", json.dumps({"groups": groups, "cases": rows})), path)
    assert done.returncode == 78 and "'large' has no case" in done.stderr and not done.stdout, done
    rows.append({"group": "large", "output": "2"})
    outcome = report("--cases", write(shared, "c.json", json.dumps({"groups": groups, "cases": rows})), path)
    assert outcome["score"] == 30 and outcome["points"] == 100, outcome


def test_a_memory_limit_of_a_case(shared):
    lines = [{"input": "x", "output": "ok", "memory_limit": "48M"}, {"input": "x", "output": "ok", "memory_limit": 300 << 20}]
    file = write(shared, "c.jsonl", "\n".join(map(json.dumps, lines)))
    path = write(shared, "a.py", "b = bytearray(100 << 20)\nfor i in range(0, len(b), 4096): b[i] = 1\nprint('ok')")
    assert verdicts(report("--cases", file, path)) == ["MLE", "AC"]


BAD = [
    ("c.json", '{"cases": [{"input": "1", "ouput": "2"}]}', "c.json:1:27", 'did you mean "output"'),
    ("c.json", '{"cases": [\n  {"input": 5, "output": "2"}]}', "c.json:2:13", "a string"),
    ("c.json", '{"cases": [{"input": "1", "output": "2"}', "c.json:1:", ""),
    ("c.json", '{"case": []}', "c.json:1:1", "cases"),
    ("c.json", "[]", "no case", ""),
    ("c.jsonl", '{"input": "1", "output": "2"}\n{"input": "1", "output": }\n', "c.jsonl:2:26", ""),
    ("c.jsonl", '{"input": "1", "output": "2", "time_limit": "fast"}', "c.jsonl:1:45", "2s"),
    ("c.jsonl", '{"input": "1", "output": "2", "name": "a"}\n{"input": "1", "output": "2", "name": "a"}', "stands twice", ""),
    ("c.jsonl", '{"input": "1"}', "c.jsonl:1: no expected output", "output_file"),
    ("c.jsonl", '{"input": "1", "output": "2"}\n{"input": "1", "output_file": "nowhere"}', "c.jsonl:2: ", "nowhere"),
    ("c.jsonl", '{"input": "1", "output": "2"}\n{"input": "1", "output_file": "../c.jsonl"}',
     'c.jsonl:2:31: "output_file": ../c.jsonl is not below', "put the file there"),
    ("c.json", '[{"input_file": "/etc/hostname", "output": "1"}]', 'c.json:1:17: "input_file": /etc/hostname', "without a leading /"),
    ("c.json", '[{"input_file": "a/../../x", "output": "1"}]', 'c.json:1:17: "input_file": a/../../x', "put the file there"),
    ("c.json", '[{"input_file": "..", "output": "1"}]', 'c.json:1:17: "input_file": ..', "put the file there"),
    ("c.jsonl", '{"input_file": ".", "output": "1"}', "c.jsonl:1: ", "not a regular file"),
]


def test_files_below_the_folder_of_the_cases(shared):
    (shared / "in..put").mkdir()
    write(shared / "in..put", "..1", "7")
    rows = [{"input_file": "in..put/..1", "output": "7"}, {"input_file": "./in..put//..1", "output_file": "in..put/..1"}]
    assert report("--cases", write(shared, "c.json", json.dumps(rows)), write(shared, "a.py", "print(input())"))["passed"] == 2


@pytest.mark.parametrize("form", ["json", "folder"])
@pytest.mark.parametrize("link", ["file", "folder"])
def test_links_do_not_lead_out_of_the_cases(shared, form, link):
    """Somebody else's cases show nothing of whoever runs them. The twin: links within them are followed."""
    for top in ("outside", "c", "c/own"):
        (shared / top).mkdir()
        write(shared / top, "1.in", "7")
        write(shared / top, "1.out", "7")
    (shared / "c/1.in").unlink()
    (shared / "c/1.out").unlink()
    cases = shared / "c" if form == "folder" else write(shared / "c", "c.json", json.dumps([{"input_file": "l/1.in", "output_file": "l/1.out"}]))

    def put(target):
        if link == "folder":
            (shared / "c/l").symlink_to(target, target_is_directory=True)
        else:
            (shared / "c/l").mkdir()
            for name in ("1.in", "1.out"):
                (shared / "c/l" / name).symlink_to(("../" if not target.startswith("/") else "") + target + "/" + name)

    program = write(shared, "a.py", "print(input())")
    put(str(shared / "outside"))
    done = grade("--cases", cases, program)
    assert (done.returncode, done.stdout) == (78, "") and "leads out of" in done.stderr and "put the file itself there" in done.stderr, done
    shutil.rmtree(shared / "c/l") if link == "file" else (shared / "c/l").unlink()
    put("own")
    assert report("--cases", cases, program)["failed"] == 0


@pytest.mark.parametrize("name,text,where,hint", BAD)
def test_bad_cases_are_told_with_their_place(shared, name, text, where, hint):
    path = write(shared, "a.py", "print(1)")
    done = grade("--cases", write(shared, name, text), path, cwd=str(shared))
    assert done.returncode in (64, 78) and done.stdout == "", done
    assert where in done.stderr and hint in done.stderr, done.stderr


def test_bad_folders(shared):
    path = write(shared, "a.py", "print(1)")
    folder = shared / "c"
    folder.mkdir()
    for setup, said in (((), "no case"), (("1.in",), "1.in: no expected output"), (("2.out",), "2.out has no input")):
        for name in setup:
            (folder / name).write_text("")
        done = grade("--cases", folder, path)
        assert done.returncode == 64 and said in done.stderr, done.stderr
        for name in setup:
            (folder / name).unlink()


def test_two_expected_outputs_of_one_case(shared):
    path = write(shared, "a.py", "print(1)")
    folder = shared / "c"
    folder.mkdir()
    for name in ("a.in", "a.out", "b.in", "b.ans", "a.ans"):
        (folder / name).write_text("1")
    done = grade("--cases", folder, path)
    assert done.returncode == 78 and f"{folder}/a.out" in done.stderr and f"{folder}/a.ans" in done.stderr, done
    (folder / "a.ans").unlink()
    assert verdicts(report("--cases", folder, path)) == ["AC", "AC"]


@pytest.mark.parametrize("words,said", [
    ((), "nothing to grade against"), (("--cases", "CASES"), "no submission"),
    (("--cases", "/nonexistent", "x.py"), "/nonexistent"), (("--cases", "CASES", "--compare", "tokn", "x.py"), "did you mean 'token'"),
    (("--cases", "CASES", "--compare", "float:-1", "x.py"), "tolerance"), (("--cases", "CASES", "-j", "0", "x.py"), "1 to 256"),
    (("--cases", "CASES", "a.py", "b.py"), "one submission"), (("--cases", "CASES", "/nonexistent.py"), "/nonexistent.py"),
    (("--cases", "CASES", "--report", "pdf", "x.py"), "no such format"),
    (("--cases", "CASES", "--report", "html=/nonexistent/x", "x.py"), "/nonexistent/x"),
    (("--cases", "CASES", "--json", "--report", "tap", "x.py"), "standard output"),
    (("--cases", "CASES", "--expect", "x", "x.py"), "exclude each other"),
    (("--cases", "CASES", "-"), "--language"),
])
def test_wrong_lines(cases, words, said):
    done = grade(*[cases if w == "CASES" else w for w in words])
    assert done.returncode == 64 and said in done.stderr and done.stdout == "", done


# ---- comparing ----

@pytest.mark.parametrize("how,output,expected,verdict", [
    ("trimmed", "1 2 \n3\n\n\n", "1 2\n3", "AC"), ("trimmed", "1  2\n3\n", "1 2\n3\n", "PE"), ("trimmed", "1 2\n4\n", "1 2\n3\n", "WA"),
    ("exact", "1\n", "1\n", "AC"), ("exact", "1", "1\n", "PE"), ("exact", "2\n", "1\n", "WA"),
    ("token", " 1\n\n2", "1 2\n", "AC"), ("token", "12", "1 2", "WA"),
    ("float", "0.3333333333 2", "0.33333334 2.0", "AC"), ("float", "0.33", "0.34", "WA"), ("float:0.1", "0.33", "0.34", "AC"),
    ("float", "nan", "1.0", "WA"), ("float:1e300", "inf", "1.0", "WA"),
    ("unordered", "b\na\nb\n", "a\nb\nb", "AC"), ("unordered", "b\na\na\n", "a\nb\nb", "WA"),
])
def test_ways_to_compare(shared, how, output, expected, verdict):
    write(shared, "1.in", "")
    write(shared, "1.out", expected)
    path = write(shared, "a.py", f"import sys\nsys.stdout.write({output!r})")
    outcome = report("--compare", how, "--stdin", shared / "1.in", "--expect", shared / "1.out", path)
    assert verdicts(outcome) == [verdict], outcome


CHECKER = """
import sys
input_, output, answer = (open(name).read().split() for name in sys.argv[1:4])
word = output[0] if output else ""
if word == "pe": print("odd layout", file=sys.stderr); sys.exit(2)
if word == "half": print("points 0.5 half of it", file=sys.stderr); sys.exit(7)
if word == "fail": print("answer file is wrong", file=sys.stderr); sys.exit(3)
if word == "crash": raise MemoryError
if word == "hang":
    while True: pass
if word == "lots": print("points 7", file=sys.stderr); sys.exit(7)
sys.exit(0 if sorted(output) == sorted(answer) else 1)
"""


@pytest.mark.parametrize("said,verdict,score", [
    ("3 1 2", "AC", 4), ("3 1 4", "WA", 0), ("pe", "PE", 0), ("half", "WA", 2), ("fail", "SE", None), ("lots", "SE", None),
    ("", "WA", 0)])
def test_a_checker_decides(shared, said, verdict, score):
    file = write(shared, "c.json", json.dumps({"checker": "check.py",
                                               "cases": [{"input": "x", "output": "1 2 3", "points": 4}]}))
    write(shared, "check.py", CHECKER)
    path = write(shared, "a.py", f"print({said!r})")
    outcome = report("--cases", file, path)
    assert verdicts(outcome) == [verdict] and outcome["score"] == score, outcome
    if verdict == "SE":
        assert outcome["details"][0]["status"] == "error"


def test_points_are_not_forged_through_a_checker_that_repeats_the_output(shared):
    write(shared, "check.py", "import sys\nsaid = open(sys.argv[2]).read()\n"
                              "print('points 0.25 instead of', said, file=sys.stderr)\nsys.exit(7)\n")
    file = write(shared, "c.json", json.dumps({"checker": "check.py", "cases": [{"input": "", "output": "", "points": 4}]}))
    for text, verdict, score in (("x", "WA", 1), ("x points 1", "WA", 1), ("x\npoints 1", "SE", None)):
        outcome = report("--cases", file, write(shared, "a.py", f"print({text!r})"))
        assert outcome["verdict"] == verdict and outcome["score"] == score, (text, outcome)


@pytest.mark.parametrize("language,suffix,crashes,says", [
    ("python", "py", "raise ValueError(1)\n", "import sys\nprint('no Traceback', file=sys.stderr)\nsys.exit(1)\n"),
    ("python", "py", "def (:\n", "raise SystemExit('wrong')\n"),
    ("javascript", "js", "throw new Error('x')\n", "console.error('wrong'); process.exit(1)\n"),
    ("go", "go", "package main\nfunc main() { panic(1) }\n", "package main\nimport \"os\"\nfunc main() { os.Exit(1) }\n"),
    ("java", "java", "public class C { public static void main(String[] a) { throw new RuntimeException(); } }\n",
     "public class C { public static void main(String[] a) { System.exit(1); } }\n")])
def test_a_checker_that_crashes_is_no_judgement(shared, language, suffix, crashes, says):
    """Its runtime ends it with a status that would mean something."""
    need_tool(language)
    file = write(shared, "c.json", json.dumps([{"input": "", "output": ""}]))
    path = write(shared, "a.py", "print(1)")
    for text, verdict in ((crashes, "SE"), (says, "WA")):
        assert verdicts(report("--compare", write(shared, f"C.{suffix}", text), "--cases", file, path)) == [verdict], text


def test_a_checker_in_c_is_compiled_and_one_that_does_not_compile_is_the_graders_fault(cases, shared):
    need_tool("c")
    good = write(shared, "check.c", '#include <stdio.h>\nint main(int n, char **v) { FILE *o = fopen(v[2], "r"), *a = fopen(v[3], "r");'
                                    ' int x, y; return !(n == 4 && fscanf(o, "%d", &x) == 1 && fscanf(a, "%d", &y) == 1 && x == y); }')
    assert report("--compare", good, "--cases", cases, write(shared, "a.py", SOURCES["python", "right"]))["verdict"] == "AC"
    assert report("--compare", good, "--cases", cases, write(shared, "b.py", SOURCES["python", "wrong"]))["verdict"] == "WA"
    bad = write(shared, "bad.c", "int main(void) { return nothing; }")
    done = grade("--compare", bad, "--cases", cases, shared / "a.py")
    assert done.returncode == 64 and "does not compile" in done.stderr and "nothing" in done.stderr


def test_rules_for_the_submission_are_not_the_checkers(cases, shared, full):
    """Module control, allowed binaries and the workspace are about the submission."""
    folder = shared / "w"
    folder.mkdir()
    (folder / "data.txt").write_text("3")
    check = write(shared, "check.py", CHECKER)
    reads = write(folder, "a.py", "print(open('data.txt').read())")
    outcome = report("--workspace", folder, "--compare", check, "--cases", cases, reads)
    assert verdicts(outcome) == ["AC", "WA"], outcome
    assert not (folder / "input.txt").exists()
    plain = write(shared, "b.py", SOURCES["python", "right"])
    assert report("--block-import", "sys", "--compare", check, "--cases", cases, plain)["verdict"] == "AC"
    need_tool("c")
    check = write(shared, "check.c", "int main(void) { return 0; }")
    assert report("--allow-binary", "python3", "--compare", check, "--cases", cases, plain)["verdict"] == "AC"


def test_a_checker_is_behind_the_wall_too(cases, shared, canary):
    check = write(shared, "check.py", f"""
import os, socket, sys
assert os.getuid() != 0
for act in (lambda: open({str(canary / 'secret.txt')!r}), lambda: open({str(cases / '1.out')!r}),
            lambda: socket.create_connection(("127.0.0.1", 22), 1), lambda: open("/usr/x", "w")):
    try: act()
    except OSError: continue
    sys.exit(3)
sys.exit(0)
""")
    assert report("--compare", check, "--cases", cases, write(shared, "a.py", "print(0)"))["verdict"] == "AC"


# ---- interactive problems ----

INTERACTOR = """
import sys
secret = int(open(sys.argv[1]).read())
for turn in range(12):
    line = sys.stdin.readline()
    if not line: print("early end", file=sys.stderr); sys.exit(1)
    try: guess = int(line)
    except ValueError: print("not a number", file=sys.stderr); sys.exit(2)
    if guess == secret: print("yes", flush=True); sys.exit(0)
    print("more" if guess < secret else "less", flush=True)
print("too many questions", file=sys.stderr); sys.exit(1)
"""
GUESS = """
import sys
low, high = 1, 1000
while True:
    middle = (low + high) // 2
    sys.stdout.write(str(middle) + "\\n"); {flush}
    answer = sys.stdin.readline().strip()
    if answer == "yes": break
    if answer == "more": low = middle + 1
    else: high = middle - 1
"""
TALKS = {
    "right": (GUESS.format(flush="sys.stdout.flush()"), "AC"),
    "noflush": (GUESS.format(flush="pass"), "TLE"),
    "wrong": ("while True: print(1000, flush=True); input()", "WA"),
    "crash": ("print(1, flush=True); input(); raise ValueError", "RE"),
    "silent": ("pass", "WA"),
    "closed": ("import os, time\nos.close(1)\ntime.sleep(60)", "TLE"),
    "layout": ("print('many words', flush=True); input()", "PE"),
    "flood": ("while True: print('9' * 100000)", None),
}


@pytest.mark.parametrize("name", sorted(TALKS))
def test_interactive(shared, name):
    source, verdict = TALKS[name]
    folder = shared / "c"
    folder.mkdir()
    (folder / "1.in").write_text("321\n")
    inter = write(shared, "interactor.py", INTERACTOR)
    path = write(shared, "a.py", source)
    outcome = report("--interactor", inter, "--time-limit", "1500ms" if verdict == "TLE" else "10s", "--max-output", "1M", "--cases", folder, path)
    assert verdicts(outcome) == [verdict] if verdict else outcome["verdict"] in ("OLE", "WA", "PE"), outcome


DOUBLE = """
import sys
number = open(sys.argv[1]).read().strip()
print(number, flush=True)
sys.exit(0 if sys.stdin.readline().strip() == str(2 * int(number)) else 1)
"""


@pytest.mark.parametrize("language,flushes", [pytest.param(language, flushes, marks=[] if language == "c" else pytest.mark.slow)
                                              for language in sorted(subs.TALKS) for flushes in (True, False)])
def test_who_does_not_flush_is_not_heard(shared, language, flushes):
    need_tool(language)
    source, flush, nothing = subs.TALKS[language]
    folder = shared / "c"
    folder.mkdir()
    (folder / "1.in").write_text("321\n")
    path = write(shared, "Main." + subs.SUFFIX[language], source.replace("FLUSH", flush if flushes else nothing))
    outcome = report(*ROOMY.get(language, LIMITS), "--interactor", write(shared, "interactor.py", DOUBLE), "--cases", folder, path)
    assert verdicts(outcome) == ["AC" if flushes else "TLE"], outcome


@pytest.mark.slow
def test_talks_end_the_same_way_twenty_times(shared):
    folder = shared / "c"
    folder.mkdir()
    for name in ("1", "2"):
        (folder / f"{name}.in").write_text("321\n")
    inter = write(shared, "interactor.py", INTERACTOR)
    for name in ("crash", "right", "wrong", "silent", "layout"):
        source, verdict = TALKS[name]
        path = write(shared, f"{name}.py", source)
        seen = {tuple(verdicts(report("-j", "2", "--interactor", inter, "--cases", folder, path))) for _ in range(20)}
        assert seen == {(verdict, verdict)}, (name, seen)


def test_an_interactor_without_a_judgement_is_our_failure(shared):
    folder = shared / "c"
    folder.mkdir()
    (folder / "1.in").write_text("1\n")
    inter = write(shared, "interactor.py", "import sys\nsys.exit(9)")
    outcome = report("--interactor", inter, "--cases", folder, write(shared, "a.py", "input()"))
    assert outcome["verdict"] == "SE" and outcome["score"] is None


def test_a_command_that_is_not_in_the_guest_is_our_failure(shared):
    folder = shared / "c"
    folder.mkdir()
    (folder / "1.in").write_text("1\n")
    (folder / "1.out").write_text("1\n")
    outcome = report("--cases", folder, "--", "./run.sh")
    assert outcome["verdict"] == "SE" and outcome["score"] is None and "not found" in outcome["details"][0]["message"]
    assert verdicts(report("--cases", folder, "--", "sh", "-c", "exit 127")) == ["RE"]
    assert verdicts(report("--cases", folder, "--", "cat")) == ["AC"]


def test_a_program_without_its_interpreter_is_the_submissions_failure(shared):
    """It is there, and names what is not: that is no failure of the judge's."""
    folder, here = shared / "c", shared / "w"
    folder.mkdir()
    here.mkdir()
    (folder / "1.in").write_text("1\n")
    (folder / "1.out").write_text("1\n")
    run = write(here, "run.sh", "#!/nonexistent/sh\ncat\n")
    run.chmod(0o755)
    for words in (("--file", f"run.sh={run}", "--", "./run.sh"), ("--allow-read", here, "--", run)):
        outcome = report("--cases", folder, *words)
        assert outcome["verdict"] == "RE" and "interpreter" in outcome["details"][0]["message"], outcome
    write(here, "run.sh", "#!/bin/sh\ncat\n")
    assert verdicts(report("--allow-read", here, "--cases", folder, "--", run)) == ["AC"]
    need_tool("c")
    source = write(shared, "a.c", "int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-Wl,--dynamic-linker=/nonexistent/ld.so", "-o", shared / "a", source], check=True, timeout=60)
    outcome = report("--cases", folder, shared / "a")
    assert outcome["verdict"] == "RE" and "interpreter" in outcome["details"][0]["message"], outcome


def test_an_interactor_in_another_language(shared):
    need_tool("c")
    folder = shared / "c"
    folder.mkdir()
    (folder / "1.in").write_text("5\n")
    inter = write(shared, "i.c", '#include <stdio.h>\nint main(int n, char **v) { int s, x; FILE *f = fopen(v[1], "r"); '
                                 'if (n < 3 || fscanf(f, "%d", &s) != 1) return 3; printf("%d\\n", s); fflush(stdout); '
                                 'return scanf("%d", &x) == 1 && x == 2 * s ? 0 : 1; }')
    assert report("--interactor", inter, "--cases", folder, write(shared, "a.py", "print(2 * int(input()))"))["verdict"] == "AC"
    assert report("--interactor", inter, "--cases", folder, write(shared, "b.py", "print(3 * int(input()))"))["verdict"] == "WA"


# ---- schedule ----

def test_stop_on_fail_is_the_same_however_many_run_at_once(shared):
    lines = [json.dumps({"input": str(i), "output": str(i)}) for i in range(8)]
    file = write(shared, "c.jsonl", "\n".join(lines))
    path = write(shared, "a.py", "import time\nn = int(input())\nif n == 3: time.sleep(.3); n = 99\nprint(n)")
    for jobs in ("1", "4"):
        outcome = report("-j", jobs, "--stop-on-fail", "--cases", file, path)
        assert verdicts(outcome) == ["AC"] * 3 + ["WA"] + [None] * 4 and outcome["not_run"] == 4


def test_cases_run_at_once(shared):
    lines = [json.dumps({"input": "", "output": "ok"}) for i in range(8)]
    file = write(shared, "c.jsonl", "\n".join(lines))
    path = write(shared, "a.py", "import time\ntime.sleep(1)\nprint('ok')")
    begin = time.monotonic()
    assert report("-j", "8", "--cases", file, path)["passed"] == 8
    assert time.monotonic() - begin < 6


def on_a_terminal(*words):
    """What `cordon grade` shows on a standard error that is a terminal."""
    master, slave = pty.openpty()
    done = subprocess.run([CORDON, "grade", *words], stdout=subprocess.PIPE, stderr=slave, stdin=subprocess.DEVNULL,
                          env=host_env(ENV), timeout=60)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 0.2)[0]:
        try:
            shown += os.read(master, 4096)
        except OSError:
            break
    os.close(master)
    assert done.returncode == 0 and shown.endswith(b"\r\x1b[K"), (done, shown)
    return shown


def test_progress_on_a_terminal_only(cases, shared):
    path = write(shared, "a.py", SOURCES["python", "right"])
    quiet = grade("--cases", cases, path)
    assert quiet.returncode == 0 and quiet.stderr == "" and "2 passed, 0 failed, 0 errors of 2" in quiet.stdout
    assert b"[2/2]" in on_a_terminal("--cases", cases, path)
    tests = write(shared, "t.py", "assert f() == 1\ndef test_f(): assert f() == 1\n")
    assert b"[2/2] test_f" in on_a_terminal("--tests", tests, write(shared, "s.py", "def f(): return 1\n"))
    task = {"id": "the-task", "code": "def f(): return 1", "tests": "assert f() == 1"}
    assert b"[1] the-task" in on_a_terminal("--jsonl", write(shared, "t.jsonl", json.dumps(task)))


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_cancelled(cases, shared, sig):
    path = write(shared, "a.py", SOURCES["python", "asleep"])
    p = subprocess.Popen([CORDON, "grade", "-j", "2", "--cases", cases, path], stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=host_env(ENV))
    time.sleep(1)
    p.send_signal(sig)
    out, err = p.communicate(timeout=20)
    assert p.returncode == 130 and b"cancelled" in err and out == b""


# ---- what a submission must not gain ----

def test_expected_outputs_are_out_of_reach(cases, shared):
    """The folder is looked for everywhere a guest can look; and granting it is refused."""
    spy = write(shared, "a.py", f"""
import os, sys
found = []
for place in ({str(cases)!r}, {str(shared)!r}, "/proc/1/root{cases}", "/workspace", ".", "..", "/tmp", "/proc/self/cwd"):
    for at, dirs, files in os.walk(place):
        found += [os.path.join(at, f) for f in files if f.endswith((".out", ".ans")) or "answer" in f]
for fd in range(3, 256):
    try: os.fstat(fd); found.append(fd)
    except OSError: pass
open("spied", "w").write(str(found))
print(found)
""")
    outcome = report("--cases", cases, "--compare", "exact", spy)
    assert [d["stdout"] for d in outcome["details"]] == ["[]\n", "[]\n"]
    right = write(shared, "b.py", SOURCES["python", "right"])
    for words in (("--allow-read", cases), ("--allow-read", shared), ("--workspace", f"{shared}:ro"),
                  ("--mount", f"{cases}:/data"), ("--file", f"answer={cases / '1.out'}")):
        done = grade(*words, "--cases", cases, right)
        assert done.returncode == 64 and "could read this expected output" in done.stderr, (words, done)


def test_inline_outputs_and_the_graders_programs_are_out_of_reach(shared, full):
    secret, other = shared / "secret", shared / "other"
    secret.mkdir()
    other.mkdir()
    (other / "data.txt").write_text("3")
    file = write(secret, "c.json", json.dumps([{"input": "", "output": "3"}]))
    loose = write(shared, "c.json", json.dumps([{"input": "", "output": "3"}]))
    check = write(secret, "check.py", CHECKER)
    talk = write(secret, "talk.py", "import sys\nsys.exit(input() != '3')")
    path = write(shared, "a.py", f"print(open({str(other / 'data.txt')!r}).read())")
    for words, named, what in ((("--cases", file), file, "file of cases"), (("--cases", loose, "--compare", check), check, "checker"),
                               (("--cases", loose, "--interactor", talk), talk, "interactor")):
        for grant in (("--allow-read", secret), ("--allow-write", secret), ("--mount", f"{secret}:/x"), ("--workspace", secret),
                      ("--file", f"a={named}")):
            done = grade(*grant, *words, path)
            assert done.returncode == 64 and f"{named}: the submission could read this {what}" in done.stderr, done
            assert grant[0] in done.stderr and str(secret) in done.stderr, done
        assert report("--allow-read", other, *words, path)["verdict"] == "AC"


def test_tests_are_out_of_reach(shared, full):
    """Whatever would show them to the submission, or let it write them."""
    secret, other = shared / "secret", shared / "other"
    secret.mkdir()
    other.mkdir()
    (other / "data.txt").write_text("3")
    tests = write(secret, "t.py", "assert f() == '3'\n")
    (other / "t.py").symlink_to(tests)  # a name that leads nowhere in the guest
    (shared / "link").symlink_to(secret)
    os.link(tests, shared / "second.py")
    path = write(shared, "a.py", f"def f(): return open({str(other / 'data.txt')!r}).read()\n")
    for grant in (("--allow-read", secret), ("--allow-read", "/"), ("--allow-read", shared / "link"), ("--allow-write", shared),
                  ("--mount", f"{secret}:/mnt/x"), ("--workspace", f"{secret}:ro"), ("--workspace", secret),
                  ("--file", f"t.py={tests}"), ("--file", f"t.py={shared}/second.py"), ("--rootfs", secret)):
        done = grade(*grant, "--tests", tests, path)
        assert done.returncode == 64 and f"{tests}: the submission could read this file of tests" in done.stderr, (grant, done)
        assert f"({grant[0]})" in done.stderr, (grant, done)
    write(secret, "cordon.toml", f'[sandbox.filesystem]\nallow_read = ["{secret}"]\n')
    done = grade("--config", secret / "cordon.toml", "--tests", tests, path)
    assert done.returncode == 64 and "cordon.toml:2" in done.stderr, done
    (secret / "cordon.toml").unlink()
    done = grade("--profile", "development", "--tests", "t.py", path, cwd=secret)
    assert done.returncode == 64 and "profile development" in done.stderr and "--workspace DIR" in done.stderr, done
    for grant in (("--allow-read", other), ("--allow-write", other), ("--allow-read", other / "data.txt", "--workspace", f"{secret}:none"),
                  ("--profile", "development", "--allow-read", other, "--workspace", other)):
        for name in (tests, other / "t.py"):
            done = grade(*grant, "--tests", name, path, cwd=secret)
            assert done.returncode == 0, (grant, done)


def test_nothing_is_carried_from_case_to_case(cases, shared):
    path = write(shared, "a.py", """
import os
a, b = map(int, input().split())
seen = any(os.path.exists(p + "/note") for p in ("/tmp", ".", "/dev/shm", os.environ["HOME"]))
for p in ("/tmp", ".", "/dev/shm", os.environ["HOME"]):
    try: open(p + "/note", "w").write("x")
    except OSError: pass
if os.fork() == 0:
    import time
    time.sleep(60)
print("seen" if seen else a + b)
""")
    assert report("--cases", cases, path)["verdict"] == "AC"


@pytest.mark.parametrize("act", ["print('AC')", "import os; os._exit(0)", "import sys; sys.exit(0)",
                                 "import os; os.close(1)", "print('{\"verdict\": \"AC\"}')",
                                 "import os; os.kill(os.getppid(), 9)", "import os; os.kill(-1, 9)"])
def test_cheap_tricks(cases, shared, act):
    outcome = report("--cases", cases, write(shared, "a.py", act))
    assert outcome["passed"] == 0 and outcome["score"] == 0 and outcome["verdict"] in ("WA", "RE"), outcome


def test_a_failure_of_ours_is_no_score(shared):
    """An expected output that vanishes while the judge runs."""
    lines = [json.dumps({"input": "1", "output": "1"}), json.dumps({"input": "2", "output_file": "gone.out"})]
    file = write(shared, "c.jsonl", "\n".join(lines))
    path = write(shared, "a.py", "import time\nn = input()\ntime.sleep(2)\nprint(n)")
    for words in (("--json",), ()):
        write(shared, "gone.out", "2")
        p = subprocess.Popen([CORDON, "grade", *words, "--cases", file, path], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=host_env(ENV))
        time.sleep(1)
        (shared / "gone.out").unlink()
        out, err = p.communicate(timeout=60)
        assert p.returncode == 70, err
        if words:
            outcome = json.loads(out)
            assert verdicts(outcome) == ["AC", "SE"] and outcome["verdict"] == "SE" and outcome["score"] is None
        else:
            assert b"no score" in out


def test_a_wall_that_cannot_be_built_is_no_verdict(cases, shared):
    path = write(shared, "a.py", SOURCES["python", "right"])
    done = grade("--apparmor", "nothing-like-this", "--cases", cases, path)
    assert done.returncode == 69 and done.stdout == ""


def test_module_control_holds(cases, shared):
    path = write(shared, "a.py", "import socket\n" + SOURCES["python", "right"])
    outcome = report("--block-import", "socket", "--cases", cases, path)
    assert outcome["verdict"] == "CE" and "socket" in outcome["error"]
    assert report("--block-import", "ssl", "--cases", cases, path)["verdict"] == "AC"


def test_help_and_the_readable_table(cases, shared):
    done = cordon("grade", "--help")
    assert done.returncode == 0 and "--interactor" in done.stdout and "exit status" in done.stdout
    done = grade("--cases", cases, write(shared, "a.py", SOURCES["python", "wrong"]))
    assert done.returncode == 1
    assert re.search(r"^1 +WA +[\d.]+ ms +[\d.]+ MiB +line 1: expected '3', got '-1'$", done.stdout, re.M), done.stdout
    assert done.stdout.endswith("verdict WA, score 0 of 2\n0 passed, 2 failed, 0 errors of 2\n")


def test_killed_with_everything_it_runs(cases, shared):
    """kill -9 of the judge in the middle of cases, a checker and an interactor: the oracle finds nothing left."""
    slow = write(shared, "a.py", "import os, time\nos.fork()\ntime.sleep(60)")
    quick = write(shared, "b.py", "print(1)")
    for words in (("-j", "2", "--cases", cases, slow), ("--compare", slow, "--cases", cases, quick),
                  ("--interactor", slow, "--cases", cases, slow)):
        p = subprocess.Popen([CORDON, "grade", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             stdin=subprocess.DEVNULL, env=host_env(ENV))
        time.sleep(1)
        p.kill()
        p.wait(timeout=20)
    time.sleep(0.5)
    assert report("--cases", cases, quick)["verdict"] == "WA"  # groups of a killed run are reaped by the next one


# ---- options that do not go together ------------------------------------------------------------------

@pytest.mark.parametrize("words,says", [
    (["--cases", "cases", "--tests", "t.py"], "--cases does not go with --tests"),
    (["--tests", "t.py", "--compare", "exact"], "--compare does not go with --tests"),
    (["--tests", "t.py", "--stdin", "x", "--expect", "y"], "--stdin does not go with --tests"),
    (["--cases", "cases", "--entry", "f"], "--entry does not go with --cases"),
    (["--cases", "cases", "--out", "r"], "--out does not go with --cases"),
    (["--jsonl", "j", "--problems", "p"], "--jsonl does not go with --problems"),
    (["--jsonl", "j", "--json"], "--json does not go with --jsonl"),
    (["--problems", "p", "--format", "mbpp", "--report", "junit=r.xml"], "--report does not go with --problems"),
    (["--tests", "t.py", "--tests", "t.py"], "--tests is given more than once"),
])
def test_options_that_do_not_go_together(cases, shared, words, says):
    write(shared, "a.py", "print(1)")
    write(shared, "t.py", "assert True")
    done = grade(*words, "a.py", cwd=shared)
    assert done.returncode == 64 and says in done.stderr, done
    assert os.listdir(shared / "cases") and not (shared / "r").exists()


def test_a_hint_at_commands_is_for_submissions(cases, shared):
    done = grade("--cases", cases, "ls", cwd=shared)
    assert done.returncode == 64 and "a command is given after --: -- ls" in done.stderr, done
    done = grade("--cases", cases, "--interactor", "ls", write(shared, "a.py", ""), cwd=shared)
    assert done.returncode == 64 and "ls: No such file" in done.stderr and "Hint" not in done.stderr, done


def test_a_variable_is_for_those_who_use_it(shared):
    write(shared, "a.py", "x = 1")
    write(shared, "t.py", "from submission import x\nassert x == 1")
    done = cordon("grade", "--tests", "t.py", "a.py", env={**ENV, "CORDON_COMPARE": "exact", "CORDON_LANGUAGE": "c"}, cwd=shared)
    assert done.returncode == 0, done


def test_a_java_class_with_a_short_name(cases, shared):
    need_tool("java")
    write(shared, "A.java", "import java.util.*; public class A { public static void main(String[] a) { Scanner s = new Scanner(System.in);"
                            " System.out.println(s.nextInt() + s.nextInt()); } }")
    assert report("--cases", "cases", "A.java", cwd=shared)["verdict"] == "AC"
