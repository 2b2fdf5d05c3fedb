"""The asserts of seed 000, levels 1 to 4, unchanged but for the imports."""

import pytest

from cordon import Sandbox, TestRunner


def test_level_1():
    sb = Sandbox(timeout=5.0)
    result = sb.run('print("hello")')
    assert result.stdout.strip() == "hello"
    assert result.exit_code == 0
    assert result.timed_out is False

    # Timeout
    result = sb.run('import time; time.sleep(10)')
    assert result.timed_out is True

    # Error
    result = sb.run('raise ValueError("oops")')
    assert result.exit_code != 0
    assert "ValueError" in result.stderr


def test_level_2():
    sb = Sandbox(max_memory_mb=50)
    # Memory bomb
    result = sb.run('x = "a" * (100 * 1024 * 1024)')  # 100MB
    assert result.exit_code != 0  # killed by memory limit

    # Blocked import
    sb2 = Sandbox(allowed_imports=["math", "json"])
    result = sb2.run('import os; os.system("rm -rf /")')
    assert result.exit_code != 0
    assert "blocked" in result.stderr.lower() or result.exit_code != 0

    # Output limit
    sb3 = Sandbox(max_output_bytes=100)
    result = sb3.run('print("x" * 10000)')
    assert len(result.stdout) <= 100


def test_level_3():
    sb = Sandbox(filesystem={
        "data.csv": "name,age\nAlice,30\nBob,25",
        "config.json": '{"key": "value"}'
    })
    result = sb.run('''
with open("data.csv") as f:
    print(f.read())
''')
    assert "Alice" in result.stdout

    # Path traversal blocked
    # Should raise or ignore the malicious path
    with pytest.raises(ValueError):
        Sandbox(filesystem={"../etc/passwd": "hacked"})


def test_level_4():
    runner = TestRunner(Sandbox(timeout=10))
    user_code = '''
def add(a, b):
    return a + b
'''
    test_code = '''
assert add(1, 2) == 3
assert add(0, 0) == 0
assert add(-1, 1) == 0
'''
    result = runner.run_tests(user_code, test_code)
    assert result.passed == 3
    assert result.failed == 0

    # Buggy code
    user_code_bad = '''
def add(a, b):
    return a - b  # bug!
'''
    result = runner.run_tests(user_code_bad, test_code)
    assert result.failed > 0
