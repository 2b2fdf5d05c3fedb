"""`cordon test` (contract, section 10.3): a project's own tests, behind the wall, on an overlay."""

import json
import os
import subprocess
import xml.etree.ElementTree as ET

import pytest

from cordon_run import CORDON, cordon, host_env

pytestmark = pytest.mark.usefixtures("full")


@pytest.fixture
def project(shared):
    tree = shared / "project"
    tree.mkdir()
    return tree


def write(tree, name, text, mode=0o644):
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.chmod(path, mode)
    return path


def run_test(tree, *words, timeout=120):
    return subprocess.run([CORDON, "test", *map(str, words)], capture_output=True, text=True, cwd=str(tree),
                          env=host_env(), stdin=subprocess.DEVNULL, timeout=timeout)


def snapshot(tree):
    return sorted((str(p.relative_to(tree)), p.read_bytes() if p.is_file() else None) for p in tree.rglob("*"))


def test_the_command_after_the_dashes(project):
    done = run_test(project, "--", "sh", "-c", "pwd; echo made > made; exit 7")
    assert (done.returncode, done.stdout) == (7, "/workspace\n")
    assert snapshot(project) == []


def test_words_without_dashes_are_refused(project):
    done = run_test(project, "pytest")
    assert done.returncode == 64 and "after --" in done.stderr


def test_nothing_found_says_what_to_do(project):
    done = run_test(project)
    assert done.returncode == 64 and "no tests were found" in done.stderr and "[test] command" in done.stderr


def test_the_test_table(project):
    write(project, "cordon.toml", '[test]\ncommand = ["sh", "-c", "echo from the table; exit 3"]\n')
    (project / "sub").mkdir()
    for folder in (project, project / "sub"):
        done = run_test(folder)
        assert (done.returncode, done.stdout) == (3, "from the table\n")
    write(project, "cordon.toml", '[test]\ncommand = "sleep 60"\nsandbox_time_limit = "300ms"\n')
    done = run_test(project)
    assert done.returncode == 124 and "time limit (300ms)" in done.stderr
    done = run_test(project, "--time-limit", "200ms")
    assert done.returncode == 124 and "(200ms)" in done.stderr
    write(project, "cordon.toml", '[test]\nsandbox_memory_limit = "32M"\ncommand = "tail /dev/zero"\n')
    done = run_test(project)
    assert done.returncode == 125 and "Memory limit exceeded (32M)" in done.stderr


def test_sandbox_false_is_refused_and_a_profile_counts(project):
    write(project, "cordon.toml", '[test]\nsandbox = false\ncommand = "true"\n')
    done = run_test(project)
    assert done.returncode == 78 and "cordon.toml:2" in done.stderr
    write(project, "cordon.toml", '[test]\nsandbox = "quick"\ncommand = "sleep 60"\n'
                                  '[sandbox.profiles.quick]\ntime_limit = "250ms"\n')
    done = run_test(project)
    assert done.returncode == 124 and "(250ms)" in done.stderr
    write(project, "cordon.toml", '[test]\nsandbox = true\ncommand = "true"\n')
    assert run_test(project).returncode == 0


def test_what_the_tests_change_is_told_and_thrown_away(project):
    write(project, "kept.txt", "one\n")
    before = snapshot(project)
    script = "echo two >> kept.txt; echo new > new.txt"
    done = run_test(project, "--json", "--", "sh", "-c", script)
    result = json.loads(done.stdout)
    assert {c["path"]: c["kind"] for c in result["changed_files"]} == {"kept.txt": "modified", "new.txt": "added"}
    assert "+two" in result["diff"] and snapshot(project) == before
    shown = run_test(project, "--diff", "--", "sh", "-c", script)
    assert shown.stdout == result["diff"]
    if os.path.exists("/usr/bin/git"):
        done = subprocess.run(["git", "apply", "-"], input=shown.stdout, text=True, cwd=str(project), capture_output=True,
                              env={"PATH": "/usr/bin:/bin", "GIT_CEILING_DIRECTORIES": str(project.parent)})
        assert done.returncode == 0 and (project / "kept.txt").read_text() == "one\ntwo\n", done.stderr


def test_a_workspace_of_the_callers_choice_counts(project):
    done = run_test(project, "--workspace", f"{project}:rw", "--", "sh", "-c", "echo x > through")
    assert done.returncode == 0 and (project / "through").read_text() == "x\n"


def test_tests_have_no_network_and_no_secrets(project):
    write(project, "test_wall.py", """
import os, socket
def test_network():
    try:
        socket.create_connection(("1.1.1.1", 443), 2)
    except OSError:
        return
    raise AssertionError("reached the outside")
def test_secret():
    assert "E2E_SECRET" not in os.environ
""")
    done = run_test(project)
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def junit(path):
    root = ET.parse(path).getroot()
    suites = [root] if root.tag == "testsuite" else list(root)
    return {case.get("name"): [child.tag for child in case if child.tag not in ("system-out", "system-err")]
            for suite in suites for case in suite.iter("testcase")}


def test_pytest_is_found_and_its_xml_collected(project, shared):
    write(project, "tests/test_it.py", "def test_good():\n    pass\ndef test_bad():\n    assert 1 == 2\n")
    before = snapshot(project)
    out = shared / "junit.xml"
    done = run_test(project, "--json", "--junit", out)
    result = json.loads(done.stdout)
    assert done.returncode == 1 and "1 failed, 1 passed" in result["stdout"]
    assert junit(out) == {"test_good": [], "test_bad": ["failure"]}
    assert result["changed_files"] == [] and result["diff"] == "", "our own file is no change of the tests"
    assert snapshot(project) == before and sorted(p.name for p in shared.iterdir()) == ["junit.xml", "project"]


def test_a_suite_without_xml_is_one_test(project, shared):
    out = shared / "junit.xml"
    done = run_test(project, "--junit", out, "--", "sh", "-c", "exit 4")
    assert done.returncode == 4 and junit(out) == {"command": ["failure"]}
    done = run_test(project, "--junit", out, "--", "true")
    assert done.returncode == 0 and junit(out) == {"command": []}


def test_a_link_in_place_of_the_xml_is_not_followed(project, shared):
    """The file is the guest's; what it names must not reach what we copy."""
    write(project, "tests/test_it.py", """
import atexit, os
def test_one():
    pass
def swap():
    if os.path.lexists("/workspace/.cordon-junit.xml"):
        os.unlink("/workspace/.cordon-junit.xml")
    os.symlink("/etc/hostname", "/workspace/.cordon-junit.xml")
atexit.register(swap)
""")
    out = shared / "junit.xml"
    done = run_test(project, "--junit", out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not out.is_symlink() and junit(out) == {"pytest": []}


def test_junit_into_a_folder_that_is_not_there(project):
    done = run_test(project, "--junit", "/nonexistent/x.xml", "--", "true")
    assert done.returncode == 64 and "/nonexistent/x.xml" in done.stderr


RUNNERS = {
    "unittest": ("python3", "python3", {"tests/test_u.py": "import unittest\nclass T(unittest.TestCase):\n"
                                        "    def test_a(self):\n        self.assertEqual(1, {value})\n"}, "Ran 1 test"),
    "make check": ("make", "make", {"Makefile": "all:\n\tfalse\ncheck:\n\t@echo checked; test {value} = 1\n"}, "checked"),
    "make test": ("make", "make", {"Makefile": "test:\n\t@echo tested; test {value} = 1\n"}, "tested"),
    "go test": ("go", "golang-go", {"go.mod": "module example.test/m\n\ngo 1.19\n",
                                    "m_test.go": 'package m\nimport "testing"\nfunc TestA(t *testing.T) {{\n'
                                                 '\tif {value} != 1 {{ t.Fatal("no") }}\n}}\n'}, "example.test/m"),
    "npm test": ("npm", "npm", {"package.json": '{{"name": "m", "scripts": {{"test": "node -e \\"process.exit('
                                                '{value} - 1)\\""}}}}'}, "node -e"),
    "node --test": ("node", "nodejs", {"test/a.test.js": "require('node:test')('a', () => {{ "
                                       "if ({value} !== 1) throw new Error('no') }})\n"}, "tests 1"),
    "cargo test": ("cargo", "cargo", {"Cargo.toml": '[package]\nname = "m"\nversion = "0.1.0"\n',
                                      "src/lib.rs": "#[test]\nfn a() {{ assert_eq!({value}, 1) }}\n"}, "test result"),
    "prove": ("prove", "perl", {"t/a.t": "print qq(1..1\\n), {value} == 1 ? qq(ok 1\\n) : qq(not ok 1\\n);\n"}, "t/a.t"),
    "ctest": ("ctest", "cmake", {"build/CTestTestfile.cmake": 'add_test(a "/usr/bin/test" "{value}" "=" "1")\n'},
              "tests passed"),
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) if n in ("cargo test", "go test") else n
                                  for n in sorted(RUNNERS)])
def test_runners_are_found(project, name):
    binary, package, files, said = RUNNERS[name]
    if not os.path.exists(f"/usr/bin/{binary}"):
        pytest.skip(f"{binary} is missing: install the Debian package {package}")
    for value, code in (("1", 0), ("2", None)):
        for path, text in files.items():
            write(project, path, text.format(value=value))
        env = ["--env", "PYTEST_ADDOPTS="] if name == "unittest" else []
        words = ["--time-limit", "100s", "--memory-limit", "2G", *env]
        if name == "unittest":  # pytest would run it too and is asked first where it is installed
            words += ["--", "python3", "-m", "unittest", "discover", "-s", "tests", "-t", "tests"]
        done = run_test(project, *words, timeout=150)
        text = done.stdout + done.stderr
        assert said in text, text
        assert done.returncode == 0 if code == 0 else done.returncode not in (0, 64, 69, 70, 78), text


def test_a_project_that_wants_pytest_gets_it_whatever_is_installed(project):
    write(project, "pytest.ini", "[pytest]\n")
    done = run_test(project, "--log", "verbose")
    assert "Running: python3 -m pytest" in done.stderr


def test_a_new_npm_project_has_no_tests(project):
    write(project, "package.json", '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}')
    write(project, "Makefile", "test:\n\t@echo by make\n")
    assert run_test(project).stdout == "by make\n"


def test_links_of_a_stranger_are_not_followed(project, canary):
    os.symlink(canary / "secret.txt", project / "Makefile")
    os.symlink(canary / "secret.txt", project / "package.json")
    done = run_test(project)
    assert done.returncode == 64 and "no tests were found" in done.stderr


def test_help_names_the_runners():
    done = cordon("test", "--help")
    assert done.returncode == 0 and "pytest" in done.stdout and "--junit" in done.stdout and "--time-limit" in done.stdout
