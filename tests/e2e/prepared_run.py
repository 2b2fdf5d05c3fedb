"""Stands in for `cordon run --json`: the same words, but the guest is one that a handle of the library had prepared
before it knew the command. Ends with 99 if it was started from nothing.

usage: prepared_run.py --json [OPTION...] -- COMMAND...     with the package in PYTHONPATH"""

import json
import os
import sys
import time

from cordon import _lib, _settings

FLAGS = {"deny_network": "deny-network"}  # which has no key of its own
PATIENCE = 60 if os.environ.get("TEST_VM") == "1" else 20


def read(words):
    """(options, command): options as the library names them."""
    options, at = [], 0
    while words[at] != "--":
        flag, given, value = words[at][2:].partition("=")
        name = flag.replace("-", "_")
        at += 1
        if name == "json":
            continue
        if not given and name not in _settings.BOOLS:
            value, at = words[at], at + 1
        options.append((FLAGS.get(name, name), value or "true"))
    return options, words[at + 1:]


def ask(lease, options, command, data=None):
    request = _lib.Request()
    for name, value in options:
        if name == "file":
            inside, _, source = value.partition("=")
            with open(source, "rb") as file:
                request.add_file(inside, file.read())
        elif name == "profile":
            request.set_profile(value)
        else:
            request.set(name, value)
    if data:
        request.set_stdin(data)
    request.set_flags(0)
    request.set_argv(command)
    return _lib.Job(lease, request).wait(-1)[0]


def waiting(lease, options):
    """True as soon as a guest of this kind is ready."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        before = lease.stats()
        ask(lease, options, ["/bin/true"])
        time.sleep(0.02)
        if lease.stats().hits > before.hits:
            return True
    return False


def main():
    options, command = read(sys.argv[1:])
    lease = _lib.Lease()
    data = sys.stdin.buffer.read()
    for _ in range(3):
        if not waiting(lease, options):
            sys.exit(99)
        before = lease.stats().hits
        text = ask(lease, options, command, data)
        if lease.stats().hits > before:
            break
    else:
        sys.exit(99)
    sys.stdout.buffer.write(text + b"\n")
    sys.exit(json.loads(text)["exit_code"])


main()
