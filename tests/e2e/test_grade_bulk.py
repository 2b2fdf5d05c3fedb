"""`cordon grade --problems` and `--jsonl`: many submissions at once, with the public sets where they are there."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

import cheats
import cordon_run

DATA = cordon_run.ROOT.parent / "shared" / "data"
FULL = os.environ.get("CORDON_TEST_FULL") == "1"


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def bulk(*options, timeout=280, **more):
    done = subprocess.run([cordon_run.CORDON, "grade", *map(str, options)], capture_output=True, text=True, timeout=timeout,
                          **more)
    return done


@pytest.fixture
def public(need):
    def load(name):
        need((DATA / name).is_file(), f"needs the data set {name} beside the project (../shared/data)")
        return DATA / name
    return load


# ---- small sets of our own -----------------------------------------------------------------------

PROBLEMS = [
    {"task_id": "Own/0", "prompt": "def helper(x):\n    return x + 1\n\ndef double(x):\n    \"\"\" twice \"\"\"\n",
     "entry_point": "double", "canonical_solution": "    return x * 2\n",
     "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert helper(candidate(3)) == 7\n"},
    {"task_id": "Own/1", "prompt": "from typing import List\n\ndef total(xs: List[int]) -> int:\n",
     "entry_point": "total", "canonical_solution": "    return sum(xs)\n",
     "test": "def check(candidate):\n    for n in range(5):\n        assert candidate(list(range(n))) == sum(range(n))\n"},
]


def test_references_and_samples(tmp_path):
    problems = write(tmp_path / "p.jsonl", PROBLEMS)
    done = bulk("--problems", problems, "--format", "humaneval", "--out", tmp_path / "r.jsonl", "-j", 2)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "2 passed, 0 failed, 0 errors of 2"
    assert "pass@1: 1.0000" in done.stdout
    rows = lines(tmp_path / "r.jsonl")
    assert [(row["task_id"], row["sample"], row["passed"], row["verdict"]) for row in rows] == [
        ("Own/0", 0, True, "AC"), ("Own/1", 0, True, "AC")]
    assert set(rows[0]) == {"task_id", "sample", "passed", "verdict", "tests", "runtime_ms", "message"}
    assert rows[0]["tests"] == {"passed": 1, "failed": 0, "errors": 0}

    samples = write(tmp_path / "s.jsonl", [
        {"task_id": "Own/1", "completion": "    return sum(xs)\n"},
        {"task_id": "Own/0", "completion": "    return x + 2\n"},
        {"task_id": "Own/1", "completion": "    return None +\n"},
        {"task_id": "Own/0", "completion": "    return x * 2\n\ndef helper(x):\n    return 7\n"},
        {"task_id": "Own/1", "completion": "    raise ValueError(xs)\n"},
        {"task_id": "Own/2", "completion": "    pass\n"},
        {"task_id": "Own/1"},
        {"task_id": "Own/1", "completion": "    while True: pass\n"},
    ])
    with open(samples, "a") as file:
        file.write("{not json\n")
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl",
                "-j", 3, "--time-limit", "2s", "--pass-at", "1,3")
    rows = lines(tmp_path / "r.jsonl")
    assert [(row["task_id"], row["sample"], row["verdict"]) for row in rows[:8]] == [
        ("Own/1", 0, "AC"), ("Own/0", 0, "WA"), ("Own/1", 1, "CE"), ("Own/0", 1, "AC"), ("Own/1", 2, "RE"),
        ("Own/2", 0, "SE"), ("Own/1", 3, "SE"), ("Own/1", 4, "TLE")]
    assert rows[8]["verdict"] == "SE" and "s.jsonl:9:" in rows[8]["message"]
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "2 passed, 1 failed, 6 errors of 9"
    # a failure of ours is no sample: Own/0 1 of 2, Own/1 1 of 4
    assert "pass@1: 0.3750" in done.stdout and "pass@3: 0.7500" in done.stdout


def test_names_of_the_prompt_are_not_the_samples(tmp_path):
    problems = write(tmp_path / "p.jsonl", PROBLEMS[:1])
    samples = write(tmp_path / "s.jsonl", [
        {"task_id": "Own/0", "completion": "    return 4\n\nclass helper:\n    def __new__(cls, x): return 7\n"}])
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples)
    assert done.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 errors of 1"


def test_mbpp_names(tmp_path):
    """A name is the submission's only if the reference defines it: builtins and imports are the tests' own."""
    problem = {"task_id": 7, "code": "import math\ndef sum(a, b):\n    return math.fabs(a + b)\n", "test_setup_code": "",
               "test_list": ["assert sum(1, 2) == 3", "assert math.isclose(sum(-1, 0), 1)", "assert len([1]) == 1"]}
    problems = write(tmp_path / "p.jsonl", [problem])
    samples = write(tmp_path / "s.jsonl", [
        {"task_id": 7, "completion": "def sum(a, b):\n    return abs(a + b)\n"},
        {"task_id": 7, "completion": "def sum(a, b): return 3\nclass math:\n    isclose = lambda *a: True\nlen = lambda x: 1\n"}])
    done = bulk("--problems", problems, "--format", "mbpp", "--samples", samples, "--out", tmp_path / "r.jsonl")
    rows = lines(tmp_path / "r.jsonl")
    assert [row["passed"] for row in rows] == [True, False] and rows[0]["task_id"] == 7, done.stdout
    assert rows[1]["tests"] == {"passed": 2, "failed": 1, "errors": 0}


def test_mbpp_names_that_python_has(tmp_path):
    """Not the builtin, nor what a star of the reference brings, where the sample defines nothing."""
    problems = write(tmp_path / "p.jsonl", [
        {"task_id": 1, "code": "def abs(x):\n    return max(x, -x)\n", "test_setup_code": "", "test_list": ["assert abs(-1) == 1"]},
        {"task_id": 2, "code": "from math import *\ndef factorial(n):\n    return prod(range(1, n + 1))\n", "test_setup_code": "",
         "test_list": ["assert factorial(3) == 6", "assert floor(1.5) == 1"]}])
    samples = write(tmp_path / "s.jsonl", [{"task_id": 1, "completion": "x = 1\n"}, {"task_id": 2, "completion": "x = 1\n"},
                                           {"task_id": 1, "completion": "def abs(x): return 1\n"},
                                           {"task_id": 2, "completion": "def factorial(n): return 6\n"}])
    bulk("--problems", problems, "--format", "mbpp", "--samples", samples, "--out", tmp_path / "r.jsonl")
    assert [(row["passed"], row["tests"]["passed"]) for row in lines(tmp_path / "r.jsonl")] == [(False, 0), (False, 1), (True, 1), (True, 2)]
    assert "does not define 'abs'" in lines(tmp_path / "r.jsonl")[0]["message"]
    assert bulk("--problems", problems, "--format", "mbpp").returncode == 0


def test_tasks(tmp_path):
    tasks = write(tmp_path / "t.jsonl", [
        {"id": "a", "code": "def f(x):\n    return x", "tests": "assert f(1) == 1\nassert f(2) == 3\n"},
        {"id": "b", "language": "python", "code": "print(int(input()) * 2)",
         "cases": [{"input": "2", "output": "4"}, {"input": "3", "output": "6"}]},
        {"id": 3, "code": "import time\ntime.sleep(60)", "tests": ["assert 1 == 1"], "limits": {"time_limit": 1}},
        {"id": "files", "files": {"solution.py": "def f():\n    return open('d.txt').read()", "d.txt": "hi"},
         "tests": "from solution import f\nassert f() == 'hi'"},
        {"id": "bad", "tests": "assert 1"},
        {"id": "grant", "code": "x = 1", "tests": "assert x == 1", "limits": {"allow_read": "/etc"}},
        {"id": "host", "code": "print(input())", "cases": [{"input_file": "/etc/passwd", "output": "x"}]},
        {"id": "mem", "code": "x = bytearray(300 << 20)", "tests": "assert x", "limits": {"memory_limit": "100M"}},
        {"id": "c", "language": "bash", "code": "read x; echo $x", "cases": [{"input": "1\n", "output": "2"}]},
        {"id": "last", "code": "def f(x):\n    x.sort()\n    return x", "tests": "l = [2, 1]\nf(l)\nassert l == [1, 2]", "copy_back": True},
    ])
    done = bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl", "-j", 2)
    rows = {row["task_id"]: row for row in lines(tmp_path / "r.jsonl")}
    assert list(rows) == ["a", "b", 3, "files", "bad", "grant", "host", "mem", "c", "last"]
    assert {key: row["verdict"] for key, row in rows.items()} == {
        "a": "WA", "b": "AC", 3: "TLE", "files": "AC", "bad": "SE", "grant": "SE", "host": "SE", "mem": "MLE", "c": "WA", "last": "AC"}, rows
    assert "t.jsonl:5" in rows["bad"]["message"] and "allow_read" in rows["grant"]["message"]
    assert "files of the host" in rows["host"]["message"]
    assert done.returncode == 1 and done.stdout.splitlines()[-1] == "3 passed, 2 failed, 5 errors of 10"


STAYS = """
import os, time
if os.fork() == 0:
    os.setsid()
    for _ in range(3000):  # whatever comes next on these lines: it all passed
        text = b'{"i":0,"s":"passed","m":"","t":1,"o":""}'
        try:
            os.write(201, b"R" + len(text).to_bytes(4, "little") + text)
        except OSError:
            pass
        time.sleep(0.01)
    os._exit(0)
def f(): return 1
"""


def test_in_process_tasks_are_apart_from_all_others(tmp_path):
    """A task that shares an interpreter with its tests reaches the tests and results of no other task."""
    wrong = {"code": "def f(): return 2", "tests": "assert f() == 1"}
    look = ("import gc\ndef f():\n"
            "    return any('a_secret_name' in repr(o) for o in gc.get_objects() if type(o) in (dict, list))\n")
    tasks = write(tmp_path / "t.jsonl", [
        {"id": "first", "code": "def f(): return 1", "tests": "import os\na_secret_name = 1\nassert f() == a_secret_name"},
        {"id": "looks", "code": look, "tests": "assert f() is False", "in_process": True},
        {"id": "stays", "code": STAYS, "tests": "assert f() == 1", "in_process": True},
        {"id": "wrong", **wrong}, {"id": "wrong too", **wrong, "in_process": True},
        {"id": "exits", "code": "import os\ndef f(): os._exit(0)", "tests": "assert f()", "in_process": True},
        {"id": "files", "files": {"solution.py": "def f(): return open('d.txt').read()", "d.txt": "hi"}, "tests": "assert f() == 'hi'",
         "in_process": True},
        {"id": "memory", "code": "def f(): return bytearray(300 << 20)", "tests": "assert f()", "in_process": True,
         "limits": {"memory_limit": "100M"}},
        {"id": "time", "code": "def f():\n    while True: pass", "tests": "assert f()", "in_process": True, "limits": {"time_limit": 1}},
        {"id": "last", "code": "def f(): return 1", "tests": "assert f() == 1"},
    ])
    done = bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl", "-j", 1)
    graded = [(row["task_id"], row["verdict"]) for row in lines(tmp_path / "r.jsonl") if row["task_id"] != "stays"]
    assert graded == [  # "stays" may spoil its own
        ("first", "AC"), ("looks", "AC"), ("wrong", "WA"), ("wrong too", "WA"), ("exits", "RE"), ("files", "AC"),
        ("memory", "MLE"), ("time", "TLE"), ("last", "AC")], done.stdout + (tmp_path / "r.jsonl").read_text()


def test_resumed(tmp_path):
    problems = write(tmp_path / "p.jsonl", PROBLEMS)
    samples = write(tmp_path / "s.jsonl", [{"task_id": f"Own/{n % 2}", "completion": PROBLEMS[n % 2]["canonical_solution"]}
                                           for n in range(12)])
    options = ["--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 2]
    process = subprocess.Popen([cordon_run.CORDON, "grade", *map(str, options)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while (not (tmp_path / "r.jsonl").exists() or (tmp_path / "r.jsonl").read_text().count("\n") < 3) \
            and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with open(tmp_path / "r.jsonl", "a") as file:
        file.write('{"task_id": "Own/1", "sam')  # half a line
    done = bulk(*options, "--resume")
    rows = lines(tmp_path / "r.jsonl")
    assert [(row["task_id"], row["sample"]) for row in rows] == [(f"Own/{n % 2}", n // 2) for n in range(12)]
    assert done.stdout.splitlines()[-1] == "12 passed, 0 failed, 0 errors of 12" and "pass@1: 1.0000" in done.stdout
    write(tmp_path / "r.jsonl", [{**rows[0], "task_id": "Own/1"}])
    done = bulk(*options, "--resume")
    assert done.returncode == 64 and "line 1" in done.stderr


def test_back_pressure(tmp_path):
    """Neither a list of any length, nor results that wait for an earlier one, nor a reader that does not read make it
    grow: it reads no more tasks than it can write lines."""
    first = {"id": "first", "language": "python", "code": "import time\ndef f():\n    time.sleep(1.5)\n    return 1\n",
             "tests": "assert f() == 1\n"}
    count, large = 15000, "x" * 2000  # 30 MB of what is no task: a line of results each, at once
    with open(tmp_path / "t.jsonl", "w") as file:
        file.write(json.dumps(first) + "\n")
        file.writelines(f'{{"id": {n}, "code": "{large}"}}\n' for n in range(count))
    run = subprocess.Popen([cordon_run.CORDON, "grade", "--jsonl", tmp_path / "t.jsonl", "--out", "/dev/stdout"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def most_memory():
        status = pathlib.Path(f"/proc/{run.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    try:
        time.sleep(1)  # the first one runs, and all others wait for its line
        assert most_memory() < 16 << 10
        head = run.stdout.readline()
        time.sleep(1)  # nobody reads
        assert run.poll() is None and most_memory() < 16 << 10
        rest = run.stdout.read().splitlines()
        run.wait(60)
    finally:
        run.kill()
        run.wait()
    assert json.loads(head)["task_id"] == "first" and json.loads(head)["passed"]
    assert [json.loads(line)["task_id"] for line in rest[:count]] == list(range(count))
    assert rest[count:] == [f"1 passed, 0 failed, {count} errors of {count + 1}"]


def test_cancelled(tmp_path):
    problems = write(tmp_path / "p.jsonl", PROBLEMS[:1])
    samples = write(tmp_path / "s.jsonl", [{"task_id": "Own/0", "completion": "    import time; time.sleep(100)\n"}] * 5)
    process = subprocess.Popen([cordon_run.CORDON, "grade", "--problems", str(problems), "--format", "humaneval", "--samples",
                                str(samples), "--out", str(tmp_path / "r.jsonl")], stderr=subprocess.PIPE)
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert lines(tmp_path / "r.jsonl") == []


@pytest.mark.parametrize("options, words", [
    (["--problems", "p.jsonl"], "--format"),
    (["--problems", "none.jsonl", "--format", "humaneval"], "none.jsonl"),
    (["--problems", "p.jsonl", "--format", "mbpp"], "p.jsonl:1"),
    (["--problems", "p.jsonl", "--format", "humaneval", "--samples", "none.jsonl"], "none.jsonl"),
    (["--problems", "p.jsonl", "--format", "humaneval", "--resume"], "--out"),
    (["--problems", "p.jsonl", "--format", "humaneval", "--pass-at", "0"], "--pass-at"),
    (["--jsonl", "p.jsonl", "--format", "mbpp"], "--jsonl"),
])
def test_usage(tmp_path, options, words):
    write(tmp_path / "p.jsonl", PROBLEMS)
    done = bulk(*options, cwd=tmp_path)
    assert done.returncode in (64, 78) and words in done.stderr


LOOK = """    import os
    found = []
    first_half, second_half = (bytes(b ^ 1 for b in half) for half in WANTED)
    memory = open('/proc/self/mem', 'rb', 0)
    for line in open('/proc/self/maps'):
        place, rights = line.split()[:2]
        first, last = (int(end, 16) for end in place.split('-'))
        if rights[0] != 'r' or '[v' in line:
            continue
        try:
            memory.seek(first)
            data = memory.read(last - first)
        except (OSError, ValueError):
            continue
        at = data.find(first_half)
        while at >= 0:  # the halves of the question are in memory, the whole only where it was brought
            at += len(first_half)
            if data[at:at + len(second_half)] == second_half:
                found.append(line)
            at = data.find(first_half, at)
    return [len(found), sorted(os.environ), sorted(int(n) for n in os.listdir('/proc/self/fd')), os.getuid()]

WANTED = %r
"""


def test_nothing_of_one_submission_reaches_the_next(tmp_path):
    """Submissions may be copies of one interpreter: what one brought, and what tests hold, is in no other's memory."""
    secret = b"a-secret-of-another-submission-" + os.urandom(8).hex().encode()
    mixed = bytes(b ^ 1 for b in secret)
    hidden = (mixed[:20], mixed[20:])
    problem = {"task_id": "p", "prompt": "def look():\n", "entry_point": "look", "canonical_solution": "    return 1\n",
               "test": f"def check(candidate):  # {secret.decode()}\n    found = candidate()\n    assert found[0] == %d, found\n"
                       "    assert 'HOME' in found[1] and 'CORDON_CANARY' not in found[1], found\n"
                       "    assert max(n for n in found[2] if n < 200) <= 5, found\n    assert found[3] != 0, found\n"}
    problems = write(tmp_path / "p.jsonl", [{**problem, "task_id": "none", "test": problem["test"] % 0},
                                            {**problem, "task_id": "own", "test": problem["test"].replace("== %d", ">= 1")}])
    brings = {"task_id": "none", "completion": f"    return [0, ['HOME'], [0], '{secret.decode()}']\n"}
    look = {"task_id": "none", "completion": LOOK % (hidden,)}
    samples = write(tmp_path / "s.jsonl", [brings, look] * 5 + [
        {"task_id": "own", "completion": LOOK.replace("found = []", f"found = []; mine = '{secret.decode()}'") % (hidden,)}])
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 1,
                env={**os.environ, "CORDON_CANARY": secret.decode()})
    rows = lines(tmp_path / "r.jsonl")
    assert [row["verdict"] for row in rows] == ["AC"] * 11, (done.stdout, rows)  # the last one finds its own


WARM = "    return [int('cordon-grade-zygote' not in open('/proc/self/maps').read())]\n"  # 0: a copy of a warm interpreter


def test_time_of_one_submission_is_not_the_nexts(tmp_path):
    """Who ends its process by itself takes its CPU time along; the group it was in serves the next one."""
    burn = ("    import os, time\n    end = time.process_time() + 0.008\n    while time.process_time() < end: pass\n"
            "    os._exit(0)\n")
    rest = "    import time\n    time.sleep(0.15)\n    return x * 2\n"
    problems = write(tmp_path / "p.jsonl", PROBLEMS[:1])
    samples = write(tmp_path / "s.jsonl", [{"task_id": "Own/0", "completion": c} for c in [burn] * 120 + [rest] * 8])
    bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 1,
         "--cpu-time", f"{int(100 * cordon_run.SLOW)}ms")
    verdicts = [r["verdict"] for r in lines(tmp_path / "r.jsonl")]
    assert verdicts == ["RE"] * 120 + ["AC"] * 8, verdicts


@pytest.mark.parametrize("how", ["proxy", "paths"])
def test_no_setting_of_the_callers_is_in_a_submissions_memory(tmp_path, world, how):
    """What the caller says about the wall is not the guest's to read: neither passwords nor where the caller works."""
    secret = "a-setting-of-the-callers-" + os.urandom(8).hex()
    mixed = bytes(b ^ 1 for b in secret.encode())
    hidden = (mixed[:20], mixed[20:])
    problem = {"task_id": "p", "prompt": "def look():\n", "entry_point": "look", "canonical_solution": "    return 1\n",
               "test": "def check(candidate):\n    found = candidate()\n    assert found[0] == 0, found\n"}
    problems = write(tmp_path / "p.jsonl", [problem])
    own = LOOK.replace("found = []", f"found = []; mine = '{secret}'")
    samples = write(tmp_path / "s.jsonl", [{"task_id": "p", "completion": text % (hidden,)} for text in (LOOK, LOOK, LOOK, own)] + [
        {"task_id": "p", "completion": WARM}])
    folder, granted = tmp_path / secret, tmp_path / "granted"
    folder.mkdir()
    granted.mkdir()
    options = ["--http-proxy", f"http://user:{secret}@127.0.0.1:9"] if how == "proxy" else [
        "--allow-read", granted, "--deny", folder / "hidden", "--deny", "below/*.key", "--deny", "/srv/" + secret, "--block-import", secret.replace("-", "_")]
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 1,
                *options, cwd=folder)
    verdicts = [row["verdict"] for row in lines(tmp_path / "r.jsonl")]
    assert verdicts[:4] == ["AC"] * 3 + ["WA"], (done.stdout, done.stderr, verdicts)  # the fourth brought it along
    library = pathlib.Path(cordon_run.CORDON).resolve().with_name("cordon-grade-zygote.so")
    warm = how == "paths" and world.full and library.exists()
    assert verdicts[4:] == ["AC" if warm else "WA"], (done.stdout, done.stderr, verdicts)


CALLS = """    import socket
    with socket.create_connection(('host.cordon', %d), 20) as one:
        return one.makefile().readline()
"""


@pytest.mark.parametrize("rule", ["host port", "name", "profile"])
def test_network_rules(tmp_path, full, rule):
    """Nothing in the caller's folder is run on the host, and a submission has the network it was given."""
    problem = {"task_id": "p", "prompt": "def call():\n", "entry_point": "call", "canonical_solution": "    return 'hello'\n",
               "test": "def check(candidate):\n    assert candidate() == 'hello'\n"}
    here = tmp_path / "here"  # what is graded stands beside it: a submission is shown this one
    shadow = here / "folder" / "broker"
    shadow.mkdir(parents=True)
    problems = write(tmp_path / "p.jsonl", [problem])
    text = f"open({str(tmp_path / 'it-ran')!r}, 'w')\n"
    (here / "broker").write_text(text)
    (shadow / "__main__.py").write_text(text)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve():
            while True:
                try:
                    one = server.accept()[0]
                except OSError:
                    return
                with one:
                    one.sendall(b"hello")
        threading.Thread(target=serve, daemon=True).start()
        samples = write(tmp_path / "s.jsonl", [{"task_id": "p", "completion": text} for text in (
            CALLS % port, "    return 'hello'\n", "    return 'bye'\n", CALLS % port)])
        options = {"host port": ["--allow-host-port", port], "name": ["--allow-network", "example.com"],
                   "profile": ["--profile", "development"]}[rule]
        for folder in (here, here / "folder"):
            done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl",
                        "-j", 2, "--allow-read", here, *options, cwd=folder)
            verdicts = [row["verdict"] for row in lines(tmp_path / "r.jsonl")]
            called = "AC" if rule == "host port" else "RE"
            assert verdicts == [called, "AC", "WA", called], (done.stdout, done.stderr, lines(tmp_path / "r.jsonl"))
            assert not (tmp_path / "it-ran").exists()
            (tmp_path / "r.jsonl").unlink()
        server.shutdown(socket.SHUT_RDWR)


NETWORK = """    import hashlib, socket
    counters = b''.join(open('/proc/net/' + name, 'rb').read() for name in ('dev', 'snmp', 'netstat', 'snmp6'))
    seen = [hashlib.sha256(counters).hexdigest(), open('/proc/net/sockstat').read().splitlines()[0]]
    moved = %r
    if moved == 'datagrams':
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.bind(('127.0.0.1', 5000))
        for n in range(7):
            one.sendto(b'x', ('127.0.0.1', 5000))
    elif moved == 'streams':
        one = socket.create_server(('127.0.0.1', 5001))
        two = socket.create_connection(('127.0.0.1', 5001))
        two.close()
    return [seen]
"""


def test_the_network_of_one_submission_is_not_the_nexts(tmp_path):
    """Network namespaces may be used again, but as new ones: nobody sees that another was there before."""
    problem = {"task_id": "p", "prompt": "def look():\n", "entry_point": "look", "canonical_solution": "    return 1\n",
               "test": "def check(candidate):\n    found = candidate()\n    assert found[0] == [], found[0]\n"}
    problems = write(tmp_path / "p.jsonl", [problem])
    samples = write(tmp_path / "s.jsonl", [{"task_id": "p", "completion": NETWORK % what}
                                           for what in ["", "", "datagrams", "", "streams", "", "", "datagrams"] * 2])
    bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 1)
    seen = [row["message"] for row in lines(tmp_path / "r.jsonl")]
    assert len(seen) == 16 and "sockets: used 0" in seen[0], seen[0]
    assert set(seen) == {seen[0]}


def frame(kind, text):
    return kind + len(text).to_bytes(4, "little") + text


HOSTILE = {
    "too large": b"A\xff\xff\xff\xff" + b"x" * 1000,
    "just too large": b"A" + ((16 << 20) + 1).to_bytes(4, "little") + b"x",
    "truncated": b"A\x64\0\0\0[\"ok\"",
    "half a head": b"A\x01",
    "empty": frame(b"A", b""),
    "no json": frame(b"A", b"ok"),
    "deep": frame(b"A", b'["ok","",' + b"[" * 100_000 + b"]" * 100_000 + b"]"),
    "deep tags": frame(b"A", b'["ok","",' + b'{"t":[' * 5000 + b"]}" * 5000 + b"]"),
    "wrong types": frame(b"A", b'[1,2,3]'),
    "an object": frame(b"A", b'{"ok":1}'),
    "unknown kind": frame(b"A", b'["passed","",1]'),
    "unknown tag": frame(b"A", b'["ok","",{"z":1}]'),
    "tag of another type": frame(b"A", b'["ok","",{"t":{"d":7}}]'),
    "half a pair": frame(b"A", b'["ok","",{"d":[1]}]'),
    "key that is no key": frame(b"A", b'["ok","",{"d":[[1],2]}]'),
    "member that is no member": frame(b"A", b'["ok","",{"s":[[1]]}]'),
    "a handle of nothing": frame(b"A", b'["ok","",{"h":[[],{},null]}]'),
    "not ascii": frame(b"A", "[\"ok\",\"\",\"é\"]".encode()),
    "NUL": frame(b"A", b'["ok","",\0]'),
    "number without end": frame(b"A", b'["ok","",' + b"9" * 200_000 + b"]"),
    "callback of nothing": frame(b"A", b'["callback","",99,[],{"d":[]}]'),
    "more behind it": frame(b"A", b'["ok","",1] 1'),
    "end of an iterator": frame(b"A", b'["stop",""]'),
    "a result": frame(b"R", b'{"i":0,"s":"passed","m":"","t":1,"o":""}'),
    "a list of tests": frame(b"C", b'{"tests":["x"]}'),
    "an error of the wrong shape": frame(b"A", b'["error","",{"d":[1,2]},7,[],{"t":[]},"x"]'),
}


def test_hostile_frames_are_failed_tests(tmp_path):
    """Whatever a submission sends in the place of an answer: its tests fail, and that is no failure of ours."""
    problem = {"task_id": "p", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n",
               "test": "def check(candidate):\n    assert candidate() == 1\n"}
    write(tmp_path / "p.jsonl", [problem])
    body = "    import os, time\n    data = {}\n    while data: data = data[os.write(201, data):]\n    time.sleep(0.5)\n    os._exit(0)\n"
    names = [name for hostile in HOSTILE for name in (hostile, "right")]
    write(tmp_path / "s.jsonl", [
        {"task_id": "p", "completion": "    return 1\n" if name == "right" else body.replace("{}", repr(HOSTILE[name]))}
        for name in names])
    bulk("--problems", tmp_path / "p.jsonl", "--format", "humaneval", "--samples", tmp_path / "s.jsonl", "--out",
         tmp_path / "r.jsonl", "--time-limit", "30s")
    verdicts = list(zip(names, (row["verdict"] for row in lines(tmp_path / "r.jsonl"))))
    assert len(verdicts) == len(names)
    assert not [name for name, verdict in verdicts if (verdict == "AC") != (name == "right") or verdict == "SE"], verdicts


SPOILERS = ["import builtins\nbuiltins.len = lambda *a: 7\nassert len([]) == 7",
            "import math\nmath.pi = 3\nassert math.pi == 3",
            "import sys\nsys.modules['math'] = None\nassert f(1) == 1",
            "import os\nos.environ['LEFT'] = '1'\nos.close(200)\nassert True",
            "left = 5\nassert left == f(5)",
            "import sys\nsys.setrecursionlimit(50)\nassert f(1) == 1",
            "import sys\nsys.stdout = sys.stderr = None\nassert f(1) == 1",
            "def test_it():\n    global left\n    left = 5\n    assert f(left) == 5",
            "assert f(f) == 3\nassert f(lambda: 3)",
            "while f(1):\n    assert f(1) == 2, 'x'\n    break"]
LOOKS = """import math, sys
assert len([]) == 0
assert 3.14 < math.pi < 3.15
assert sys.getrecursionlimit() > 900
assert 'LEFT' not in __import__('os').environ
def test_names():
    try:
        left
    except NameError:
        return
    assert False
def test_print():
    print('words')
assert f(1) == 1
"""


def test_one_suite_leaves_nothing_for_the_next(tmp_path):
    """Suites without a fork of their own, too: in whatever order, each sees a fresh interpreter."""
    code = "def f(x):\n    return x\n"
    rows = [{"id": f"{n}{kind}", "code": code, "tests": text} for n, spoiler in enumerate(SPOILERS)
            for kind, text in (("spoils", spoiler), ("looks", LOOKS), ("plain", "assert f(2) == 2\nassert len([1]) == 1\n"))]
    done = bulk("--jsonl", write(tmp_path / "t.jsonl", rows), "--out", tmp_path / "r.jsonl", "-j", 1)
    graded = lines(tmp_path / "r.jsonl")
    wrong = [row for row in graded if not row["passed"] and not row["task_id"].endswith("spoils")]
    assert len(graded) == len(rows) and not wrong, (wrong, done.stderr)
    assert not [row for row in graded if row["verdict"] == "SE"]


GIVES_UP = {
    "a thread": "import threading\nt = threading.Thread(target=f, args=(1,), daemon=True)\nt.start()\nt.join(0.2)\n"
                "assert True\n",
    "a process": "import multiprocessing\nmultiprocessing.get_context('fork').Process(target=f, args=(1,)).start()\n"
                 "assert True\n",
    "an alarm": "import signal\ndef late(*_): raise TimeoutError\nsignal.signal(signal.SIGALRM, late)\n"
                "signal.setitimer(signal.ITIMER_REAL, 0.2)\ntry:\n    f(1)\nexcept TimeoutError: pass\nassert True\n",
}


@pytest.mark.parametrize("how", GIVES_UP)
def test_an_answer_nobody_waited_for_is_nobodys(tmp_path, how):
    """Tests that give up on a call leave its answer on the line: the next suite has another line, or none of it."""
    slow = "import time\ndef f(x):\n    time.sleep(0.2)\n    return 'late' * 1000000\n"
    quick = "def f(x):\n    return x + 1\n"
    rows = []
    for n in range(4):
        rows += [{"id": f"slow {n}", "language": "python", "code": slow, "tests": GIVES_UP[how]},
                 {"id": f"quick {n}", "language": "python", "code": quick, "tests": "assert f(1) == 2\nassert f(2) == 3\n"}]
    done = bulk("--jsonl", write(tmp_path / "t.jsonl", rows), "--out", tmp_path / "r.jsonl", "-j", 1, "--time-limit", "20s")
    got = {row["task_id"]: row["verdict"] for row in lines(tmp_path / "r.jsonl")}
    assert [got[f"quick {n}"] for n in range(4)] == ["AC"] * 4, (done.stdout, got)


def test_large_values_do_not_add_up(tmp_path):
    tests = "x = f()\ndef g():\n    return x\nassert len(g()) == 7_000_000\n"
    rows = [{"id": n, "code": "def f():\n    return b'x' * 7_000_000\n", "tests": tests} for n in range(14)]
    bulk("--jsonl", write(tmp_path / "t.jsonl", rows), "--out", tmp_path / "r.jsonl", "-j", 1, "--memory-limit", "128M",
         "--time-limit", "60s")
    assert [row["verdict"] for row in lines(tmp_path / "r.jsonl")] == ["AC"] * 14


SHARED = """    shared = [line.split()[0] for line in open('/proc/self/maps') if line.split()[1][1::2] == 'ws']
    with open('/proc/self/mem', 'r+b', 0) as memory:
        for place in shared:
            first, last = (int(end, 16) for end in place.split('-'))
            try:
                memory.seek(first)
                memory.write(b'\\xff' * (last - first))
            except OSError:
                pass
    return shared
"""


def test_no_page_is_shared(tmp_path):
    """Copies of one interpreter, some made while others run: none shares memory with another or with its keeper."""
    problem = {"task_id": "p", "prompt": "def look():\n", "entry_point": "look", "canonical_solution": "    return 1\n",
               "test": "def check(candidate):\n    assert candidate() == []\n"}
    problems = write(tmp_path / "p.jsonl", [problem])
    samples = write(tmp_path / "s.jsonl", [{"task_id": "p", "completion": SHARED}] * 12)
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "-j", 3)
    assert [row["verdict"] for row in lines(tmp_path / "r.jsonl")] == ["AC"] * 12, done.stdout


# ---- the public sets -----------------------------------------------------------------------------

def test_humaneval_references(public, tmp_path):
    """All of them with CORDON_TEST_FULL=1, else every sixth."""
    rows = lines(public("humaneval/HumanEval.jsonl"))
    problems = write(tmp_path / "p.jsonl", rows if FULL else rows[::6])
    done = bulk("--problems", problems, "--format", "humaneval", "--out", tmp_path / "r.jsonl")
    n = 164 if FULL else 28
    assert done.stdout.splitlines()[-1] == f"{n} passed, 0 failed, 0 errors of {n}", done.stdout
    assert [row["task_id"] for row in lines(tmp_path / "r.jsonl")] == [row["task_id"] for row in lines(problems)]


def test_humaneval_cheats(public, tmp_path):
    """No cheat passes: all problems with CORDON_TEST_FULL=1, else two."""
    rows = lines(public("humaneval/HumanEval.jsonl"))
    rows = rows if FULL else [rows[4], rows[32]]
    names = {**cheats.CHEATS, **cheats.SLOW} if FULL else cheats.CHEATS
    problems = write(tmp_path / "p.jsonl", rows)
    samples = write(tmp_path / "s.jsonl", [{"task_id": row["task_id"], "completion": cheats.completion(name), "name": name}
                                           for name in names for row in rows])
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl",
                "--time-limit", "3s", "--memory-limit", "128M", timeout=5000)
    graded = lines(tmp_path / "r.jsonl")
    passed = [sample["name"] for sample, row in zip(lines(samples), graded) if row["passed"]]
    assert len(graded) == len(names) * len(rows) and not passed, passed
    assert done.returncode == 1 and not [row for row in graded if row["verdict"] == "SE"]


def test_mbpp_references(public, tmp_path):
    """The same set passes as outside: with CORDON_TEST_FULL=1 all 510, else every fifteenth."""
    rows = lines(public("mbpp/mbpp-1-510.jsonl"))
    rows = rows if FULL else rows[::15]
    problems = write(tmp_path / "p.jsonl", rows)
    bulk("--problems", problems, "--format", "mbpp", "--out", tmp_path / "r.jsonl")
    inside = {row["task_id"]: row["passed"] for row in lines(tmp_path / "r.jsonl")}
    outside = {}
    for row in rows:
        program = "\n".join([row["code"], row["test_setup_code"], *row["test_list"]])
        outside[row["task_id"]] = subprocess.run(["/usr/bin/python3", "-I", "-c", program], capture_output=True,
                                                 timeout=120).returncode == 0
    assert inside == outside


@pytest.mark.slow
def test_the_same_verdicts_twenty_times(public, tmp_path):
    rows = lines(public("humaneval/HumanEval.jsonl"))[:6]
    problems = write(tmp_path / "p.jsonl", rows)
    bodies = ["    return None\n", "    import os; os._exit(0)\n", "    raise ValueError\n", "    return (\n"]
    samples = write(tmp_path / "s.jsonl", [{"task_id": row["task_id"], "completion": body} for row in rows
                                           for body in [row["canonical_solution"], *bodies]])
    seen = set()
    for _ in range(20):
        bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl")
        seen.add(tuple(row["verdict"] for row in lines(tmp_path / "r.jsonl")))
    assert len(seen) == 1


def test_a_key_that_is_nearly_one_of_ours(tmp_path):
    case = [{"input": "", "output": "7"}]
    tasks = write(tmp_path / "t.jsonl", [{"id": "lang", "lang": "c", "code": "print(7)", "cases": case},
                                         {"id": "limit", "limit": {"time_limit": "1s"}, "code": "print(7)", "cases": case},
                                         {"id": "more", "points": 3, "idx": 1, "mode": "x", "test": 1, "langs": [], "language": "python", "code": "print(7)", "cases": case}])
    bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl")
    rows = {row["task_id"]: row for row in lines(tmp_path / "r.jsonl")}
    assert {k: r["verdict"] for k, r in rows.items()} == {"lang": "SE", "limit": "SE", "more": "AC"}
    assert "did you mean 'language'?" in rows["lang"]["message"] and "did you mean 'limits'?" in rows["limit"]["message"]


def test_what_is_graded_against_is_out_of_reach(tmp_path, full):
    """Problems, samples, tasks and results: a line that would show one to a submission is refused, nothing is written."""
    secret, other = tmp_path / "secret", tmp_path / "other"
    secret.mkdir()
    other.mkdir()
    (other / "data.txt").write_text("7")
    problems, result = write(secret / "p.jsonl", PROBLEMS), secret / "r.jsonl"
    samples = write(tmp_path / "s.jsonl", [{"task_id": "Own/0", "completion": f"    open({str(other / 'data.txt')!r}); return x * 2\n"}])
    tasks = write(secret / "t.jsonl", [{"id": 1, "code": "x = 1", "tests": "assert x == 1"}, {"id": 2, "code": "print(3)", "cases": [{"output": "3"}]}])
    (tmp_path / "link").symlink_to(secret)
    many = ("--problems", problems, "--format", "humaneval")
    for words in (("--allow-read", secret), ("--allow-read", tmp_path / "link"), ("--mount", f"{secret}:/x"), ("--allow-write", tmp_path),
                  ("--workspace", secret), ("--file", f"a={problems}"), ("--file", f"a={tasks}")):
        for what in (many, ("--jsonl", tasks)):
            if str(words[1]) in (f"a={problems}", f"a={tasks}") and str(what[1]) not in words[1]:
                continue
            done = bulk(*words, *what, "--out", tmp_path.parent / "new.jsonl")
            assert done.returncode == 64 and words[0] in done.stderr and str(what[1]) in done.stderr, (words, what, done)
            assert "could read this file of" in done.stderr and not (tmp_path.parent / "new.jsonl").exists()
    done = bulk("--profile", "development", *many, cwd=secret)
    assert done.returncode == 64 and "profile development" in done.stderr and "--workspace DIR" in done.stderr, done
    assert bulk("--profile", "development", "--workspace", other, *many, cwd=secret).returncode == 0
    done = bulk("--allow-write", other, *many, "--out", other / "r.jsonl")
    assert done.returncode == 64 and "file of results" in done.stderr and not (other / "r.jsonl").exists(), done
    done = bulk("--allow-read", samples, *many, "--samples", samples)
    assert done.returncode == 64 and "file of samples" in done.stderr, done
    with open(tasks) as redirected:
        done = bulk("--allow-read", secret, "--jsonl", "-", stdin=redirected)
    assert done.returncode == 64 and "file of tasks" in done.stderr, done
    for words in (("--allow-read", other), ("--allow-write", other)):
        done = bulk(*words, *many, "--samples", samples, "--out", result)
        assert done.returncode == 0 and [row["verdict"] for row in lines(result)] == ["AC"], (done, result.read_text())
        done = bulk(*words, "--jsonl", tasks, "--out", result)
        assert done.returncode == 0 and [row["verdict"] for row in lines(result)] == ["AC", "AC"], done


def test_no_sample_takes_itself_out_of_the_count(tmp_path):
    """A completion that is no program is CE and counts; a line that is broken beside it does not."""
    problems = write(tmp_path / "p.jsonl", PROBLEMS)
    texts = ['"    return x * 2"', '"\\u0000"', '"\\ud800"', "null", '"%s"' % ("#" * (17 << 20))]
    samples = tmp_path / "s.jsonl"
    samples.write_text("".join('{"task_id": "Own/0", "completion": %s}\n' % text for text in texts) + '{"task_id": "Own/0", "completio": ""}\n')
    done = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl")
    assert [row["verdict"] for row in lines(tmp_path / "r.jsonl")] == ["AC", "CE", "CE", "CE", "CE", "SE"], (done, lines(tmp_path / "r.jsonl"))
    assert "pass@1: 0.2000" in done.stdout and done.returncode == 1, done
    assert [row["sample"] for row in lines(tmp_path / "r.jsonl")][:5] == [0, 1, 2, 3, 4]
    first = (tmp_path / "r.jsonl").read_text()
    (tmp_path / "r.jsonl").write_text("".join(first.splitlines(True)[:3]))
    again = bulk("--problems", problems, "--format", "humaneval", "--samples", samples, "--out", tmp_path / "r.jsonl", "--resume")
    assert again.stdout == done.stdout, again


def test_tasks_that_say_two_things_are_broken(tmp_path):
    case = [{"output": "7"}]
    tasks = write(tmp_path / "t.jsonl", [{"id": "both", "code": "print(7)", "tests": "assert True", "cases": case},
                                         {"id": "number", "code": "x = 1", "tests": ["assert x == 1", 1]},
                                         {"id": "file", "files": {"main.py": "x = 1", "b.txt": 7}, "tests": "assert x == 1"},
                                         {"id": "code", "code": "x = '\0'", "tests": "assert x"},
                                         {"id": "list", "code": "x = 1", "tests": ["assert x == 1", "assert x < 2"]},
                                         {"id": "cases", "code": "print(7)", "cases": case}])
    bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl")
    rows = {row["task_id"]: row for row in lines(tmp_path / "r.jsonl")}
    assert {k: r["verdict"] for k, r in rows.items()} == {"both": "SE", "number": "SE", "file": "SE", "code": "CE", "list": "AC", "cases": "AC"}
    assert "tests and cases" in rows["both"]["message"] and "t.jsonl:2" in rows["number"]["message"] and "b.txt" in rows["file"]["message"]


def test_every_way_not_to_parse_is_a_compile_error(tmp_path):
    codes = {"syntax": "def f(:\n", "indent": "def f():\nreturn 1\n", "tab": "if 1:\n\tx = 1\n        y = 2\n",
             "raises": "raise ValueError('SyntaxError')\n", "fine": "def f():\n    return 1\n"}
    tasks = write(tmp_path / "t.jsonl", [{"id": k, "code": code, "tests": "assert f() == 1"} for k, code in codes.items()])
    bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl")
    rows = lines(tmp_path / "r.jsonl")
    assert [row["verdict"] for row in rows] == ["CE", "CE", "CE", "RE", "AC"], rows


def test_tests_that_are_none_are_nobodys_answer(tmp_path):
    tests = {"parse": "assert (", "none": "x = 1", "empty": [], "return": "assert f() == 1\nreturn 1", "await": "def test_a():\n    await f()",
             "star": "def test_a():\n    from math import *\n    assert f() == 1", "fine": "assert f() == 1"}
    tasks = write(tmp_path / "t.jsonl", [{"id": k, "code": "def f(): return 1", "tests": text, **more} for more in ({}, {"in_process": True})
                                         for k, text in tests.items()])
    bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl")
    rows = lines(tmp_path / "r.jsonl")
    assert [row["verdict"] for row in rows] == ["SE"] * 6 + ["AC"] + ["SE"] * 6 + ["AC"], rows
    assert "do not parse" in rows[0]["message"] and "no tests" in rows[1]["message"], rows
    for row in rows[3:6] + rows[10:13]:
        assert row["message"].startswith("the tests do not compile: ") and row["tests"] == {"passed": 0, "failed": 0, "errors": 1}, row
    assert "'return' outside function (tests.py, line 2)" in rows[3]["message"]


def test_a_problem_that_does_not_compile_is_no_sample(tmp_path):
    """Neither its tests nor its reference are the samples' doing: pass@k does not have them."""
    problems = write(tmp_path / "p.jsonl", [{"task_id": n, "text": "", "code": code, "test_list": tests} for n, code, tests in (
        (1, "def f(): return 1", ["assert f() == 1"]), (2, "def f(): return 1", ["return 1", "assert f() == 1"]),
        (3, "def f(:", ["assert f() == 1"]))])
    samples = write(tmp_path / "s.jsonl", [{"task_id": n, "completion": code} for n in (1, 2, 3)
                                           for code in ("def f(): return 1", "def f(: return 1", "def f():\n  return 1\nreturn 1")])
    done = bulk("--problems", problems, "--format", "mbpp", "--samples", samples, "--out", tmp_path / "r.jsonl")
    assert [row["verdict"] for row in lines(tmp_path / "r.jsonl")] == ["AC", "CE", "CE"] + ["SE"] * 6, lines(tmp_path / "r.jsonl")
    assert "pass@1: 0.3333" in done.stdout and done.returncode == 1, done


def test_a_child_that_takes_too_much_memory_is_seen(tmp_path, full):
    """As in the judge: whoever goes on after the kernel ended its child has not kept to the limit."""
    hog = "import os\npid = os.fork()\nif pid == 0:\n    x = b'x' * (400 << 20)\n    os._exit(0)\nos.waitpid(pid, 0)\n"
    limits = {"memory_limit": "100M"}
    cases, tests = {"cases": [{"output": "1"}], "limits": limits}, {"tests": "assert f() == 1", "limits": limits}
    tasks = write(tmp_path / "t.jsonl", [
        {"id": 1, "code": hog + "print(1)\n", **cases}, {"id": 2, "code": hog + "def f(): return 1\n", **tests},
        {"id": 3, "code": hog + "def f(): return 1\n", "in_process": True, **tests},
        {"id": 4, "code": hog.replace("400 <<", "4 <<") + "def f(): return 1\n", **tests}])
    bulk("--jsonl", tasks, "--out", tmp_path / "r.jsonl")
    rows = lines(tmp_path / "r.jsonl")
    if rows[0]["verdict"] == "AC":
        pytest.skip("no group counts what the kernel ends for its memory: needs a memory cgroup")
    assert [row["verdict"] for row in rows] == ["MLE", "MLE", "MLE", "AC"], rows
    assert not rows[1]["passed"] and "Memory limit exceeded (100M)" in rows[1]["message"]
