"""Links in granted trees: what one guest plants must not open anything to the next."""

import json
import os
import socket
import subprocess

from cordon_run import CORDON, host_env, run


def sh(shared, *options, script):
    return run(*options, "--", "/bin/sh", "-c", f"cd {shared}; {script}")


def test_deny_holds_when_a_guest_moves_the_folder_behind_a_link(full, shared):
    hooks = shared / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "pre-commit").write_text("ours\n")
    options = ["--allow-write", shared, "--deny", hooks]
    sh(shared, *options, script=f"mv .git .g; ln -s {shared}/.g .git")
    sh(shared, *options, script="echo EVIL > .git/hooks/pre-commit; echo EVIL > .g/hooks/pre-commit")
    found = [p.read_text() for p in shared.rglob("pre-commit")]
    assert "EVIL\n" not in found
    # the twin: without the denial the same guest writes there
    sh(shared, "--allow-write", shared, script="echo EVIL > .g/hooks/pre-commit || echo EVIL > .git/hooks/pre-commit")
    assert "EVIL\n" in [p.read_text() for p in shared.rglob("pre-commit")]


def test_deny_of_a_link_denies_what_it_names(full, shared):
    (shared / "real").mkdir()
    (shared / "real" / "secret").write_text("SECRET\n")
    (shared / "dotenv").symlink_to("real/secret")
    (shared / "through").symlink_to("real")
    for pattern in (shared / "dotenv", shared / "through" / "secret", shared / "real" / "secret"):
        for name in ("dotenv", "real/secret", "through/secret"):
            r = sh(shared, "--allow-read", shared, "--deny", pattern, script=f"cat {name}")
            assert "SECRET" not in r.out, (pattern, name)
    assert "SECRET" in sh(shared, "--allow-read", shared, script="cat dotenv").out


def test_read_only_inside_writable_holds_behind_a_link(full, shared):
    (shared / "real").mkdir()
    keep = shared / "real" / "keep"
    keep.write_text("ours\n")
    (shared / "conf").symlink_to(shared / "real")
    r = sh(shared, "--allow-write", shared, "--allow-read", shared / "conf" / "keep", script="echo PWNED > conf/keep")
    assert keep.read_text() == "ours\n", str(r)
    sh(shared, "--allow-write", shared, script="echo mine > real/keep")
    assert keep.read_text() == "mine\n"


def test_a_link_to_the_kernels_files_is_no_way_to_grant_them(shared):
    for target in ("/proc", "/sys", "/dev", "/"):
        link = shared / "link"
        if link.is_symlink():
            link.unlink()
        link.symlink_to(target)
        done = subprocess.run([CORDON, "run", "--mount", f"{link}:/data", "--", "/bin/ls", "/data"],
                              capture_output=True, text=True, env=host_env(), timeout=30)
        assert done.returncode == 78, (target, done.stdout, done.stderr)


def test_what_is_written_is_named_by_its_own_name(full, shared):
    (shared / "real").mkdir()
    (shared / "link").symlink_to("real")
    done = subprocess.run([CORDON, "run", "--allow-write", shared / "link", "--", "/bin/true"],
                          capture_output=True, text=True, env=host_env(), timeout=30)
    assert done.returncode == 78 and str(shared / "real") in done.stderr
    assert sh(shared, "--allow-write", shared / "real", script="touch real/x").code == 0


def test_policy_in_a_writable_tree_stays(full, shared):
    policy = shared / "cordon.toml"
    policy.write_text('[sandbox]\ntime_limit = "5s"\n')
    sh(shared, "--allow-write", shared, script="echo evil > cordon.toml; rm -f cordon.toml; mv cordon.toml x; mv x cordon.toml")
    assert policy.read_text() == '[sandbox]\ntime_limit = "5s"\n'
    sh(shared, "--allow-write", shared, script="echo fine > other.toml")
    assert (shared / "other.toml").read_text() == "fine\n"


def test_a_guest_cannot_leave_the_result(full, shared):
    script = f"cd {shared}; rm -f res.json; echo '{{\"verdict\":\"ok\"}}' > res.json; exit 3"
    subprocess.run([CORDON, "run", "--allow-write", shared, "--result", shared / "res.json", "--",
                    "/bin/sh", "-c", script], env=host_env(), timeout=30, check=False)
    with open(shared / "res.json", encoding="utf-8") as f:
        assert json.load(f)["verdict"] == "nonzero_exit"
    assert [n for n in os.listdir(shared) if n.startswith(".cordon")] == []


def _listener(folder):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "service.sock"))
    listener.listen()
    os.chmod(folder / "service.sock", 0o777)
    return listener


CONNECT = "import socket,sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); print('connected')"


def test_sockets_of_the_host_inside_a_grant_are_out_of_reach(full, shared):
    """Neither a read-only mount nor a network namespace keeps a guest from a socket with a name."""
    folder = shared / "deep"
    folder.mkdir(mode=0o755)
    with _listener(folder):
        for option in ("--allow-read", "--allow-write"):
            r = run(option, shared, "--", "/usr/bin/python3", "-c", CONNECT, folder / "service.sock")
            assert "connected" not in r.out, option
            assert r.layers["host_sockets"].startswith(("1 known in grants covered, ", "refused")), str(r)
        r = run("--mount", f"{shared}:/data", "--", "/usr/bin/python3", "-c", CONNECT, "/data/deep/service.sock")
        assert "connected" not in r.out
        # a guest's own sockets work in the same folder
        own = ("import socket; s = socket.socket(socket.AF_UNIX); s.bind(%r); s.listen();"
               "c = socket.socket(socket.AF_UNIX); c.connect(%r); print('connected')" % ((str(folder / "own.sock"),) * 2))
        r = run("--allow-write", shared, "--", "/usr/bin/python3", "-c", own)
        assert "connected" in r.out, str(r)
    assert "host_sockets" not in run("--", "/bin/true").layers, "nothing is granted"


def test_a_socket_named_outright_can_be_reached(full, shared):
    folder = shared / "deep"
    folder.mkdir(mode=0o755)
    with _listener(folder):
        name = folder / "service.sock"
        for opts, at in ((["--allow-read", name], name), (["--allow-write", name], name), (["--mount", f"{name}:/tmp/s"], "/tmp/s"),
                         (["--allow-read", shared, "--allow-read", name], name)):
            r = run(*opts, "--", "/usr/bin/python3", "-c", CONNECT, at)
            assert "connected" in r.out, str(r)
        # the denial wins, and another socket beside it stays out of reach
        assert "connected" not in run("--allow-read", name, "--deny", name, "--", "/usr/bin/python3", "-c", CONNECT, name).out
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(folder / "other.sock"))
            other.listen()
            os.chmod(folder / "other.sock", 0o777)
            r = run("--allow-read", shared, "--allow-read", name, "--", "/usr/bin/python3", "-c", CONNECT, folder / "other.sock")
            assert "connected" not in r.out and r.layers["host_sockets"].startswith(("1 known", "refused")), str(r)


RELATIVE = """
import os, socket, sys
os.chdir(sys.argv[1])
s = socket.socket(socket.AF_UNIX)
s.bind("relative.sock")
s.listen()
os.chmod("relative.sock", 0o777)
os.chdir(sys.argv[2])
print("up", flush=True)
sys.stdin.read()
"""


def test_sockets_with_relative_names_are_found(full, shared):
    """By the folder their holder works in; where that is another by now, the result says that one is not placed."""
    folder = shared / "deep"
    folder.mkdir(mode=0o755)
    for now, text in ((folder, "1 known in grants covered"), ("/", "unknown place and later ones not")):
        with subprocess.Popen(["/usr/bin/python3", "-c", RELATIVE, folder, now], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout.readline() == "up\n"
            r = run("--allow-read", shared, "--", "/usr/bin/python3", "-c", CONNECT, folder / "relative.sock")
            p.stdin.close()
        os.unlink(folder / "relative.sock")
        assert text in r.layers["host_sockets"] or r.layers["host_sockets"] == "refused", str(r)
        if now != "/" or r.layers["host_sockets"] == "refused":
            assert "connected" not in r.out, str(r)
