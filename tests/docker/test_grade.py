"""Grading behind a container: the engine is found as for any run, and what the image lacks is nobody's answer."""

import pytest


@pytest.fixture
def put(folder):
    def write(name, text):
        (folder / name).write_text(text)
        return folder / name
    return write


def case(put):
    return ("--stdin", put("1.in", "2\n"), "--expect", put("1.out", "4\n"))


@pytest.mark.both
def test_cases(cordon, put):
    twice = put("a.py", "print(2 * int(input()))\n")
    done = cordon("grade", "--backend", "docker", *case(put), twice)
    assert done.returncode == 0 and "verdict AC" in done.stdout, done
    nowhere = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}
    assert cordon("grade", "--backend", "docker", *case(put), twice, env=nowhere).returncode == 69


@pytest.mark.both
def test_tests(cordon, put):
    tests, add = put("test_add.py", "assert add(1, 2) == 3\n"), put("add.py", "def add(a, b): return a + b\n")
    done = cordon("grade", "--backend", "docker", "--tests", tests, add)
    assert done.returncode == 0 and done.stdout.endswith("1 passed, 0 failed, 0 errors of 1\n"), done


def test_a_compiler_the_image_lacks(cordon, put):
    program = put("a.c", "int main(void) { return 0; }\n")
    done = cordon("grade", "--backend", "docker", *case(put), program)
    assert done.returncode == 69 and "c needs gcc" in done.stderr and "CE" not in done.stdout, done
