"""`cordon run -i`: a terminal of the guest's own between the caller's terminal and the guest."""

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time

import pytest

from cordon_run import CORDON, host_env, run


class Session:
    """The command on a terminal, as a user has it."""

    def __init__(self, *words, rows=33, columns=99, env=None):
        self.near, self.far = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.far)
        self.seen = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.far, termios.TIOCSCTTY, 0)
            for fd in range(3):
                os.dup2(self.far, fd)
            os.closerange(3, 1000)
            os.chdir("/")
            os.execve(CORDON, [CORDON, "run", "-i", *map(str, words)], host_env({"TERM": "xterm", **(env or {})}))

    def resize(self, rows, columns):
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text):
        os.write(self.near, text.encode())

    def expect(self, text, seconds=10):
        """Waits until the text is on the screen, and takes everything up to it off."""
        end = time.monotonic() + seconds
        while text.encode() not in self.seen:
            left = end - time.monotonic()
            assert left > 0, f"{text!r} did not come: {self.seen!r}"
            if select.select([self.near], [], [], left)[0]:
                self.seen += os.read(self.near, 65536)
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode()

    def is_raw(self):
        return not termios.tcgetattr(self.far)[3] & termios.ICANON

    def wait_raw(self, wanted, seconds=5):
        end = time.monotonic() + seconds
        while self.is_raw() != wanted and time.monotonic() < end:
            time.sleep(0.01)
        return self.is_raw() == wanted

    def end(self):
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.near)
        os.close(self.far)


@pytest.fixture
def session():
    made = []

    def begin(*words, **kw):
        made.append(Session(*words, **kw))
        return made[-1]
    yield begin
    for s in made:
        s.close()


PROMPT = ("--env", "PS1=ready> ", "--", "bash", "--norc", "--noprofile", "--noediting", "-i")


def test_it_is_a_terminal(session):
    s = session(*PROMPT)
    s.expect("ready> ")
    s.type("[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo all-three; stty size; echo kind=$TERM; exec 3>/dev/tty && echo ctty\n")
    s.expect("all-three\r\n")
    s.expect("33 99\r\n")
    s.expect("kind=xterm\r\n")
    s.expect("ctty\r\n")
    s.type("exit 9\n")
    assert s.end() == 9
    assert termios.tcgetattr(s.far) == s.before


def test_keys_belong_to_the_guest(session):
    s = session(*PROMPT)
    s.expect("ready> ")
    s.type("sleep 100\n")
    s.expect("sleep 100\r\n")
    time.sleep(0.3)
    s.type("\x03")
    s.expect("ready> ")
    s.type("echo status $?\n")
    s.expect("status 130\r\n")
    s.type("cat\n")
    time.sleep(0.3)
    s.type("word\n\x04")
    s.expect("word\r\nword\r\n")
    s.type("sleep 100\n")
    time.sleep(0.3)
    s.type("\x1a")
    s.expect("Stopped")
    s.type("kill %1; exit 3\n")
    time.sleep(0.3)
    s.type("exit 3\n")
    assert s.end() == 3


def test_window_size_follows(session):
    s = session(*PROMPT)
    s.expect("ready> ")
    s.type("trap 'stty size' WINCH\n")
    s.expect("ready> ")
    s.resize(11, 22)
    s.type("\n")
    s.expect("11 22")
    s.type("exit\n")
    assert s.end() == 0


def test_escape_sequences_pass(session):
    s = session("--", "printf", r"\033[31mred\033[0m\n")
    s.expect("\x1b[31mred\x1b[0m\r\n")
    assert s.end() == 0


def test_source_files_and_limits(session, tmp_path):
    os.chmod(tmp_path, 0o755)
    path = tmp_path / "ask.py"
    path.write_text("name = input('name? ')\nprint('hello', name)\n")
    s = session(path)
    s.expect("name? ")
    s.type("you\n")
    s.expect("hello you\r\n")
    assert s.end() == 0
    s = session("--time-limit", "500ms", "--", "cat")
    s.expect("Error: Execution exceeded time limit (500ms)\r\n")
    assert s.end() == 124
    assert termios.tcgetattr(s.far) == s.before


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_the_terminal_is_put_back(sig, session):
    s = session("--", "cat")
    assert s.wait_raw(True)
    s.type("x\n")
    s.expect("x\r\nx\r\n")
    os.kill(s.pid, sig)
    assert s.end() == (130 if sig == signal.SIGTERM else -sig)
    assert s.wait_raw(False)
    assert termios.tcgetattr(s.far) == s.before
    assert run("--", "true").verdict == "ok"  # the next run sweeps what a killed one could not


def test_the_callers_terminal_stays_out_of_reach(session):
    s = session("--", "/usr/bin/python3", "-c",
                "import fcntl, os, termios\n"
                "try: fcntl.ioctl(0, termios.TIOCSTI, b'x')\nexcept OSError as e: print('sti', e.errno)\n"
                "print('session', os.getsid(0) == os.getpid(), os.tcgetpgrp(0) == os.getpgrp())")
    s.expect("sti 1\r\n")
    s.expect("session True True\r\n")
    assert s.end() == 0


def test_without_a_terminal(tmp_path):
    r = run("-i", "--", "cat", stdin=b"x", as_json=False)
    assert (r.code, "terminal" in r.log_text) == (64, True), str(r)


def test_options_that_do_not_fit(session):
    for words in (("--json", "--", "cat"), ("--stdin", "/etc/hosts", "--", "cat"), ("--language", "sh", "-")):
        s = session(*words)
        s.expect("exclude each other")
        assert s.end() == 64
