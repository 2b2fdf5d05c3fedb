"""explain, profile, help, completions and the log: what the command says about policies and runs (contract,
sections 2, 2.1, 2.2). The field table is read from its source, so that a row that is missing anywhere shows."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from cordon_run import CORDON, GUESTS, ROOT, cordon, guest_path, host_env, run

SH = "/bin/sh"
ROW = re.compile(r'^X\((\w+), "(\w*)", (\w+), "([\w-]*)", (\w+), (\w+), (\w+), "([^"]*)", "(.*)"\)$', re.M)


def fields():
    rows = ROW.findall((ROOT / "src" / "policy" / "fields.def").read_text(encoding="utf-8"))
    assert len(rows) > 40, "the field table was not understood"
    return [dict(zip(("id", "key", "table", "flag", "type", "merge", "risk", "arg", "doc"), row)) for row in rows]


FIELDS = fields()
FLAGS = [f["flag"] for f in FIELDS if f["flag"]]


def explain(*words, code=0, **kw):
    done = cordon("explain", *words, **kw)
    assert done.returncode == code, (done.returncode, done.stdout[-500:], done.stderr)
    return done


def lines_of(text, title):
    """The lines of one section of explain's text."""
    part = re.search(rf"^{title}\n(.*?)(?:\n\n|\Z)", text, re.S | re.M)
    assert part, f"no section {title!r} in:\n{text}"
    return [line.strip() for line in part[1].splitlines()]


# ---- explain -----------------------------------------------------------------------------------------

def test_values_with_their_origins(shared):
    os.chmod(shared, 0o755)
    (shared / "cordon.toml").write_text('[sandbox]\n\ntime_limit = "5s"\n\n[sandbox.filesystem]\nallow_read = ["data"]\n')
    (shared / "data").mkdir()
    text = explain("--memory-limit", "99M", cwd=shared, env={"CORDON_PROCESSES": "9"}).stdout
    values = lines_of(text, "policy")
    assert "profile = default" in values
    assert "time_limit = 5s   cordon.toml:3" in values
    assert "allow_read = data   cordon.toml:6" in values
    assert "memory_limit = 99M   --memory-limit" in values
    assert "processes = 9   CORDON_PROCESSES" in values
    assert "cpu_limit = 100   level standard" in values


def test_json_says_the_same(shared):
    os.chmod(shared, 0o755)
    (shared / "cordon.toml").write_text('[sandbox]\ntime_limit = "5s"\n')
    data = json.loads(explain("--json", "--", "/bin/true", "x", cwd=shared).stdout)
    limit = data["settings"]["time_limit"]
    assert limit["value"] == "5s" and limit["ns"] == 5_000_000_000
    assert limit["origin"] == {"name": "cordon.toml", "line": 2, "column": limit["origin"]["column"]}
    assert data["command"] == ["/bin/true", "x"] and data["error"] is None
    plan = data["plan"]
    assert plan["tier"] in ("full", "landlock")
    assert {"mount", "bpf"} <= set(plan["seccomp"]["refused"]) and "read" in plan["seccomp"]["allowed"]
    assert plan["rlimits"]["core"] == 1
    assert {"name": "USER", "value": "sandbox", "taken": False} in plan["environment"]


def test_the_plan_is_the_one_a_run_has(world):
    """Tier, Landlock and limits: what explain promises is what a result then reports."""
    data = json.loads(explain("--json", "--memory-limit", "64M", "--", "/bin/true").stdout)["plan"]
    layers = world.layers
    assert data["tier"] == world.tier
    landlock = f"on (abi {data['landlock']['abi']})" if data["landlock"]["abi"] else "off"
    assert landlock == layers["landlock"]
    for name in ("user", "mount", "pid", "net", "ipc", "uts", "cgroup", "time"):
        assert (layers[name + "_ns"] == "on") == (name in data["namespaces"])
    held = [v for v in data["cgroup"]["values"] if v["key"] == "memory_limit"]
    assert bool(held) == world.has_memory_cgroup
    if held:
        assert held[0]["value"] == str(64 << 20) and held[0]["origin"] == "--memory-limit"


def test_text_has_every_section(full):
    text = explain("--allow-read", "/usr/share", "--", "/bin/true").stdout
    assert "tier = full" in lines_of(text, "wall")
    assert "bind    /usr/share ro, granted" in lines_of(text, "mounts")
    assert lines_of(text, "network")[0].startswith("none")
    assert "refused with EPERM" in "\n".join(lines_of(text, "system calls"))
    assert "ro /" in lines_of(text, "Landlock")
    assert "nofile = 1024" in lines_of(text, "rlimits")
    assert "control groups" in text
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in lines_of(text, "environment")


def test_values_from_the_callers_environment_are_not_shown():
    for words in ((), ("--json",)):
        done = explain(*words, "--env", "E2E_SECRET", "--env", "PLAIN=said")
        assert "E2E_SECRET" in done.stdout and "SECRET-" not in done.stdout and "said" in done.stdout


def test_a_seccomp_profile_shows(shared):
    (shared / "p.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
        {"names": ["getcwd", "no_such_call"], "action": "SCMP_ACT_ERRNO"}]}))
    data = json.loads(explain("--json", "--seccomp", shared / "p.json").stdout)["plan"]["seccomp"]
    assert "getcwd" in data["narrowed"] and "getcwd" not in data["allowed"]
    assert any("no_such_call" in note for note in data["notes"])


def test_nothing_is_made(shared):
    before = sorted(os.listdir(shared))
    explain("--allow-write", shared, "--result", shared / "r.json", "--", "/usr/bin/touch", shared / "made", cwd=shared)
    assert sorted(os.listdir(shared)) == before


def test_a_policy_this_host_cannot_honour_is_shown_all_the_same():
    words = "--backend", "gvisor", "--reuse"
    done = explain(*words, code=69)
    assert "backend = gvisor   --backend" in done.stdout and done.stderr.startswith("Error: ")
    data = json.loads(explain("--json", *words, code=69).stdout)
    assert data["plan"] is None and data["error"] and data["settings"]["backend"]["value"] == "gvisor"


@pytest.mark.parametrize("words", [
    ["--write"], ["--path", "/x", "--host", "y:1"], ["--path", ""], ["--host", "a b"], ["--host", "*.com"],
    ["/bin/true"], ["--nonsense"], ["--path"],
])
def test_wrong_questions_64(words):
    done = explain(*words, code=64)
    assert done.stderr.startswith("Error: ") and not done.stdout


def test_a_missing_grant_is_named():
    done = explain("--allow-read", "/nonexistent/x", code=78)
    assert "--allow-read" in done.stderr and "/nonexistent/x" in done.stderr and "Hint: " in done.stderr


# ---- may the guest? ----------------------------------------------------------------------------------

ANSWERS = [
    # path, write, answer
    ("/etc/shadow", False, "refused"), ("/etc/ssl/private", False, "refused"), ("/root/.ssh/id_rsa", False, "refused"),
    ("/etc/passwd", False, "allowed"), ("/etc/passwd", True, "refused"), ("/usr/bin/env", False, "allowed"),
    ("/usr/bin/new", True, "refused"), ("/new", True, "refused"), ("/tmp/new", True, "allowed"),
    ("/home/sandbox/new", True, "allowed"), ("/dev/shm/new", True, "allowed"), ("new", True, "allowed"),
    ("DIR/in/file", False, "allowed"), ("DIR/in/new", True, "refused"), ("DIR/out/new", True, "allowed"),
    ("DIR/in/private/file", False, "refused"), ("DIR/file", False, "refused"),
]


@pytest.mark.parametrize("path,write,answer", ANSWERS)
def test_path_answers_are_true(full, shared, path, write, answer):
    """Each answer is tried on a guest with the same options."""
    for name in ("in", "in/private", "out"):
        (shared / name).mkdir()
    for name in ("file", "in/file", "in/private/file"):
        (shared / name).write_text("x\n")
    path = path.replace("DIR", str(shared))
    options = ["--allow-read", shared / "in", "--allow-write", shared / "out", "--deny", shared / "in" / "private"]
    done = explain(*options, "--path", path, *(["--write"] if write else []))
    assert done.stdout.split()[0] == answer, done.stdout
    script = 'echo > "$1"' if write else 'cat < "$1" > /dev/null'
    if path.endswith(("private", "env", "passwd", "shadow")):
        script = script if write else 'test -r "$1"'
    r = run(*options, "--", SH, "-c", script, SH, path)
    assert (r.verdict == "ok") == (answer == "allowed"), str(r)


def test_what_the_host_has_below_tmp_is_not_the_guests(full):
    """/tmp is private: the name may be used inside, what the host has by it is not there."""
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        top = pathlib.Path(top)
        (top / "in").mkdir()
        for name in ("file", "in/file"):
            (top / name).write_text("x\n")
        options = ["--allow-read", top / "in"]
        for path, answer in ((top / "file", "refused"), (top / "nosuch", "allowed"), (top / "in/file", "allowed"), (top, "allowed"), ("/tmp", "allowed")):
            done = explain(*options, "--path", path)
            assert done.stdout.split()[0] == answer, (path, done.stdout)
            assert ("not in the guest's own folder" in done.stderr) == (answer == "refused"), done.stderr
        assert run(*options, "--", "/bin/cat", top / "in/file").out == "x\n"
        assert run(*options, "--", "/bin/cat", top / "file").code == 1


def test_path_answers_of_tier_landlock(need):
    """The same binary below a filter that refuses user namespaces: no private /tmp, the host's /etc."""
    def ask(*words):
        done = subprocess.run([guest_path("no_userns"), CORDON, *words], capture_output=True, text=True, env=host_env(),
                              cwd="/", timeout=60)
        return done.stdout
    need("tier = landlock" in ask("explain"), "needs Landlock: tier landlock is not possible here")
    for path, write, answer in (("/tmp/new", True, "refused"), ("/etc/hosts", False, "allowed"), ("new", True, "allowed"),
                                ("/usr/new", True, "refused"), ("/root/x", False, "refused")):
        assert ask("explain", "--path", path, *(["--write"] if write else [])).split()[0] == answer, path
        script = 'echo > "$1"' if write else 'cat < "$1" > /dev/null'
        result = json.loads(ask("run", "--json", "--", SH, "-c", script, SH, path))
        assert (result["verdict"] == "ok") == (answer == "allowed"), (path, result)


def test_the_rule_is_named(shared):
    os.chmod(shared, 0o755)
    (shared / "cordon.toml").write_text('[sandbox.filesystem]\nallow_read = ["data"]\ndeny_patterns = ["data/*.key"]\n')
    assert explain("--path", shared / "data" / "x", cwd=shared).stdout == "allowed by allow_read = data   cordon.toml:2\n"
    assert explain("--path", shared / "data" / "a.key", cwd=shared).stdout == \
        "refused by deny_patterns = data/*.key   cordon.toml:3\n"
    assert explain("--path", "/etc/shadow", "--write").stdout == "refused by default\n"
    data = json.loads(explain("--json", "--path", shared / "data" / "x", cwd=shared).stdout)
    assert (data["answer"], data["rule"], data["origin"]) == ("allowed", "allow_read = data", "cordon.toml:2")


@pytest.mark.parametrize("host,words,answer", [
    ("evil.com:443", [], "refused by default"),
    ("api.github.com:443", ["--allow-network", "*.github.com"], "allowed by allow_network = *.github.com   --allow-network"),
    ("github.com:443", ["--allow-network", "*.github.com"], "refused by default"),
    ("api.github.com:22", ["--allow-network", "*.github.com"], "refused by default"),
    ("evil.com:443", ["--allow-network", "evil.com", "--deny-network", "evil.com"],
     "refused by network.deny_patterns = evil.com   --deny-network"),
    ("evil.com:443", ["--network", "none"], "refused by network = none   --network"),
    ("127.0.0.1:80", ["--network", "bridge"], "refused by block_internal = true   default"),
])
def test_host_answers(host, words, answer):
    assert explain(*words, "--host", host).stdout == answer + "\n"


# ---- profiles ----------------------------------------------------------------------------------------

@pytest.fixture
def two_files(shared):
    """The user's own configuration and a project's."""
    os.chmod(shared, 0o755)
    user, project = shared / "config" / "cordon", shared / "project"
    user.mkdir(parents=True)
    project.mkdir()

    def write(users, projects):
        (user / "config.toml").write_text(users)
        (project / "cordon.toml").write_text(projects)
        return {"cwd": project, "env": {"XDG_CONFIG_HOME": str(shared / "config")}}
    return write


@pytest.mark.parametrize("users,projects,words,answer", [
    ('[sandbox.profiles.p.filesystem]\ndeny_patterns = ["/usr/share/common-licenses"]\n',
     '[sandbox.profiles.p.filesystem]\nallow_read = ["/usr/share"]\ndeny_patterns = false\n',
     ["--path", "/usr/share/common-licenses"], "refused"),
    ('[sandbox.profiles.p.network]\ndeny_patterns = ["*.evil.com"]\n', '[sandbox.profiles.p]\nallow_network = ["a.evil.com"]\n',
     ["--host", "a.evil.com:443"], "refused"),
    ('[sandbox.profiles.r]\nallow_network = false\n[sandbox.profiles.p]\ninherits = "r"\n',
     '[sandbox.profiles.p]\nallow_network = ["a.com"]\n', ["--host", "a.com:443"], "refused"),
    ('[sandbox.filesystem]\ndeny_patterns = ["/usr/share/common-licenses"]\n',
     '[sandbox.filesystem]\nallow_read = ["/usr/share"]\ndeny_patterns = ["/usr/share/common-licenses"]\n'
     '[sandbox.profiles.p.filesystem]\ndeny_patterns = false\n',
     ["--path", "/usr/share/common-licenses"], "refused"),
    ('[sandbox.profiles.p]\ntime_limit = "9s"\n', '[sandbox.profiles.p]\nallow_network = ["a.com"]\n', ["--host", "a.com:443"], "allowed"),
])
def test_a_project_cannot_replace_denials_away(two_files, users, projects, words, answer):
    kw = two_files(users, projects)
    assert explain("--profile", "p", *words, **kw).stdout.split()[0] == answer


@pytest.mark.parametrize("users,projects,words,line", [
    ("allowed_binaries = ['ls']", "time_limit = '1s'", (), "allowed_binaries = ls"),
    ("allowed_binaries = ['ls']", "allowed_binaries = ['sh']", (), "allowed_binaries = ls"),
    ("blocked_imports = ['json']", "time_limit = '1s'", (), "blocked_imports = json"),
    ("require_tier = 'full'", "require_tier = 'landlock'", (), "require_tier = full"),
])
def test_what_only_takes_away_stays(full, two_files, users, projects, words, line):
    kw = two_files(f"[sandbox.profiles.p]\n{users}\n", f"[sandbox.profiles.p]\n{projects}\n")
    values = [v.split("   ")[0] for v in lines_of(explain("--profile", "p", *words, **kw).stdout, "policy")]
    assert line in values and values.count(line) == 1, values
    assert not any(v.startswith(line.split(" = ")[0]) and v != line for v in values), values


def test_of_two_profiles_the_later_one_counts(two_files, shared):
    """What a profile says in the place of what it inherits, also where a project replaces both."""
    for name in ("weak", "strict"):
        (shared / f"{name}.json").write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}))
    kw = two_files(f'[sandbox.profiles.base]\nseccomp_profile = "{shared}/weak.json"\n'
                   f'[sandbox.profiles.p]\ninherits = "base"\nseccomp_profile = "{shared}/strict.json"\n', '[sandbox.profiles.p]\ntime_limit = "5s"\n')
    assert f"seccomp_profile = {shared}/strict.json" in explain("--profile", "p", **kw).stdout


def test_a_repeated_denial_stays_the_users(two_files):
    kw = two_files('[sandbox.network]\ndeny_patterns = ["10.0.0.1"]\n', '[sandbox.network]\ndeny_patterns = ["10.0.0.1"]\ndns = "10.0.0.1"\n')
    assert "is denied by '10.0.0.1'" in explain(code=78, **kw).stderr


@pytest.mark.parametrize("denied", ["127.*", "127.0.0.1", "127.0.0.0/8", "::1", "localhost", "host.cordon"])
@pytest.mark.parametrize("allowed", [["--allow-network", "localhost"], ["--allow-host-port", "80"]])
def test_the_hosts_loopback_is_denied_by_any_of_its_names(allowed, denied):
    assert explain(*allowed, "--host", "host.cordon:80").stdout.startswith("allowed")
    assert explain(*allowed, "--deny-network", denied, "--host", "host.cordon:80").stdout.startswith("refused")
    assert explain(*allowed, "--deny-network", denied, "--host", "localhost:80").stdout.startswith("refused")


@pytest.mark.parametrize("host", ["localhost:80", "127.0.0.1:80", "127.1.2.3", "[::1]:80"])
def test_that_the_guests_loopback_is_its_own_is_said(host):
    """A rule may name it, and still no guest reaches the host's by that name."""
    note = "the guest's own loopback; the host's is host.cordon"
    for rules in ([], ["--allow-network", "localhost"], ["--allow-network", "127.*"]):
        done = explain(*rules, "--host", host)
        assert len(done.stdout.splitlines()) == 1 and done.stderr == f"Note: inside, this is {note}\n", done
        assert note in json.loads(explain(*rules, "--json", "--host", host).stdout)["note"]
    for other in ("host.cordon:80", "128.0.0.1:80", "example.com"):
        assert explain("--host", other).stderr == ""
        assert "note" not in json.loads(explain("--json", "--host", other).stdout)


@pytest.mark.parametrize("rule", ["198.18.0.5", "198.19.0.0/16", "192.0.0.1:80", "[fd63:6f72:646f:6e00::2]:80", "udp://192.0.0.2:53"])
def test_rules_for_addresses_of_our_own(full, rule):
    """They mean something else inside a guest; a range around them, or a denial of them, is no mistake."""
    for words in (["--host", "ok.test"], []):
        assert "which Cordon uses inside" in explain("--allow-network", rule, *words, code=64).stderr
    explain("--deny-network", rule)
    explain("--allow-network", "192.0.0.0/24", "--allow-network", "198.51.100.1")


def test_more_ports_than_listeners(full):
    def words(n):
        return [w for i in range(n) for w in ("--allow-network", f"ok.test:{1000 + i}")]
    assert "more than 1024 different ports" in explain(*words(1025), code=78).stderr
    assert "more than 1024 different ports" in explain(*words(1025), "--host", "ok.test:2024", code=78).stderr
    assert explain(*words(1024), "--host", "ok.test:2023").stdout.startswith("allowed")


def test_a_cap_of_nothing_is_none():
    assert "--max-traffic: '0' is too small" in explain("--max-traffic", "0", code=64).stderr
    explain("--max-traffic", "1")


def test_the_nat64_form_of_an_allowed_address_has_no_route():
    allowed = ["--allow-network", "203.0.113.10"]
    assert explain(*allowed, "--host", "[64:ff9b::cb00:710a]:80").stdout.startswith("refused")
    assert explain(*allowed, "--host", "203.0.113.10:80").stdout.startswith("allowed")
    assert explain("--allow-network", "64:ff9b::cb00:710a", "--host", "[64:ff9b::cb00:710a]:80").stdout.startswith("allowed")
    assert explain("--allow-network", "true", "--host", "[64:ff9b::cb00:710a]:80").stdout.startswith("allowed")


@pytest.mark.parametrize("words", [["--allow-network", "ok.test"], ["--allow-network", "true"], ["--allow-host-port", "80"], ["--publish", "8080:80"]])
def test_no_network_and_a_grant_at_once(full, words):
    """Who says both on one command line means one of them; `none` alone takes back what a file grants."""
    assert "network none (--network) contradicts" in explain("--network", "none", *words, code=64).stderr
    assert "contradicts" in explain(*words, "--network", "none", code=64).stderr
    explain(*words)
    explain("--network", "none", "--allow-network", "false")


def test_a_file_that_says_both(shared):
    os.chmod(shared, 0o755)
    both = '[sandbox]\nallow_network = ["ok.test"]\n[sandbox.network]\nnetwork = "none"\n'
    (shared / "cordon.toml").write_text(both)
    assert "contradicts" in explain(cwd=shared, code=78).stderr
    (shared / "cordon.toml").write_text(both.partition("[sandbox.network]")[0])
    assert explain("--network", "none", "--host", "ok.test:80", cwd=shared).stdout.startswith("refused")
    assert explain("--host", "ok.test:80", cwd=shared).stdout.startswith("allowed")


def test_the_proxys_password_is_not_shown():
    url = "http://user:secret%40@proxy.test:3128"
    for r in (explain("--http-proxy", url), explain("--json", "--http-proxy", url)):
        assert "secret" not in r.stdout and "http://user:***@proxy.test:3128" in r.stdout
    r = explain("--http-proxy", url.replace("http:", "socks5:"), code=64)
    assert "secret" not in r.stderr and "socks5://user:***@proxy.test:3128" in r.stderr
    assert "http://user@proxy.test" in explain("--http-proxy", "http://user@proxy.test").stdout


@pytest.mark.parametrize("words", [["--deny-network", "127.*"], ["--block-internal"], ["--max-connections", "1"], ["--max-traffic", "1M"]])
def test_nothing_is_checked_on_the_hosts_own_network(full, words):
    host = ["--network", "host", "--unsafe-host-network"]
    assert "contradicts" in explain(*host, *words, code=64).stderr
    explain(*host)


def test_a_project_cannot_drop_denials_by_the_hosts_network(two_files):
    kw = two_files('[sandbox.network]\ndeny_patterns = ["127.*"]\n', '[sandbox.network]\nnetwork = "host"\nunsafe_host_network = true\n')
    assert "cordon.toml:2" in explain(code=78, **kw).stderr


def test_profiles(shared):
    os.chmod(shared, 0o755)
    (shared / "cordon.toml").write_text('[sandbox.profiles.nightly]\ninherits = "strict"\ntime_limit = "9m"\n')
    listed = cordon("profile", "ls", cwd=shared).stdout
    names = [line.split("\t")[0] for line in listed.splitlines()]
    assert names == ["permissive", "standard", "strict", "testing", "development", "nightly"]
    shown = cordon("profile", "show", "nightly", cwd=shared)
    assert shown.returncode == 0
    assert "time_limit = 9m   cordon.toml:3\n" in shown.stdout and "memory_limit = 256M   level strict\n" in shown.stdout
    named = cordon("profile", "show", "--config", shared / "cordon.toml", "nightly")
    assert named.returncode == 0 and "9m" in named.stdout


@pytest.mark.parametrize("words,code", [
    (["show", "no-such"], 78), (["show"], 64), ([], 64), (["rm"], 64), (["ls", "x"], 64), (["show", "strict", "x"], 64),
    (["ls", "--nonsense"], 64), (["--config", "/nonexistent/f", "ls"], 78),
])
def test_profile_errors(words, code):
    done = cordon("profile", *words)
    assert done.returncode == code and done.stderr.startswith("Error: ") and not done.stdout, (done.returncode, done.stderr)


# ---- help, completions, schema: nothing is listed twice by hand ----------------------------------------

VERBS = ["run", "explain", "profile", "doctor"]


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(verb):
    done = cordon(verb, "--help")
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.startswith(f"usage: cordon {verb} ")
    assert done.stdout == cordon("help", verb).stdout == cordon(verb, "-h").stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert f"cordon {verb} " in cordon("--help").stdout


@pytest.mark.parametrize("verb", ["run", "explain"])
def test_help_has_every_row(verb):
    text = cordon(verb, "--help").stdout
    shown = re.findall(r"^  (?:-\w, )?--([\w-]+)", text, re.M)
    assert [f for f in shown if f in FLAGS] == FLAGS, "rows of the field table, in its order"
    flat = " ".join(text.split())
    for field in FIELDS:
        if field["flag"]:
            assert field["doc"] in flat, field["doc"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_have_every_row(shell):
    done = cordon("completions", shell)
    assert done.returncode == 0
    assert re.search(r"(?<![\w-])-i\b|-s i\b", done.stdout), "options that are one letter"
    sign = " -l {}" if shell == "fish" else "--{}"
    for flag in [*FLAGS, "profile", "sandbox", "sandbox-log", "config", "json", "result", "stdin", "path", "schema"]:
        assert re.search(re.escape(sign.format(flag)) + r"(?![\w-])", done.stdout), (shell, flag)
    for verb in VERBS:
        assert verb in done.stdout
    assert "supervise" not in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True, timeout=30)


def test_bash_completes():
    if not shutil.which("bash"):
        pytest.skip("bash is missing: install the Debian package bash")
    script = cordon("completions", "bash").stdout + """
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _cordon; echo "${COMPREPLY[*]}"; }
try cordon ex; try cordon run --time; try cordon run --backend ''; try cordon profile s; try cordon workspace run ID --time; try cordon workspace ru
"""
    out = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True, cwd="/").stdout
    first, second, third, fourth, fifth, sixth = out.splitlines()
    assert (first, second, third) == ("explain", "--time-limit", "native docker gvisor oci")
    assert "show" in fourth.split() and fifth == "--time-limit" and "run" in sixth.split()


@pytest.mark.parametrize("words", [[], ["tcsh"], ["bash", "zsh"]])
def test_completions_errors_64(words):
    assert cordon("completions", *words).returncode == 64


def test_schema_has_every_row():
    schema = json.loads(explain("--schema").stdout)
    sandbox = schema["properties"]["sandbox"]["properties"]
    tables = {"SANDBOX": sandbox}
    for table in ("filesystem", "network"):
        tables[table.upper()] = next(one["properties"] for one in sandbox[table]["anyOf"] if "properties" in one)
    for field in FIELDS:
        if field["key"]:
            assert field["key"] in tables[field["table"]], field["key"]


def test_manual_has_every_row():
    page = (ROOT / "man" / "cordon.toml.5.scd").read_text(encoding="utf-8")
    for table in ("sandbox", "filesystem", "network"):
        assert f"\n@keys {table}@\n" in page


# ---- the log -----------------------------------------------------------------------------------------

def log_lines(*words, **kw):
    r = run("--log", "verbose", *words, as_json=False, **kw)
    lines = r.log_text.splitlines()
    assert all(line.startswith("[SANDBOX] ") for line in lines), r.log_text
    return r, [line.removeprefix("[SANDBOX] ") for line in lines]


def test_verbose_log_letter_by_letter(shared):
    result = shared / "result.json"
    _, lines = log_lines("--time-limit", "50s", "--memory-limit", "100M", "--result", result, "--allow-read", GUESTS,
                         "--", guest_path("burn"), "process", "120", "1")
    assert lines[:6] == [
        "Starting with profile: default", "Time limit: 50s", "Memory limit: 100M", "Network: denied",
        f"Filesystem: read {GUESTS}", f"Running: {guest_path('burn')} process 120 1"[:len("Running: ") + 200]]
    data = json.loads(result.read_text())
    cpu = data["cpu_user_ms"] + data["cpu_sys_ms"]
    peak = data["peak_memory_bytes"]
    size = f"{peak / (1 << 20):.1f}M"
    assert lines[6:] == [f"CPU time: {cpu / 1000:.3f}s ({cpu / 500:.1f}%)", f"Memory: {size} ({peak * 100 / (100 << 20):.0f}%)",
                         "Exit: 0"]


def test_percentages_are_of_cpu_time_where_it_is_set(shared):
    result = shared / "result.json"
    _, lines = log_lines("--time-limit", "20s", "--cpu-time", "1s", "--result", result, "--allow-read", GUESTS, "--",
                         guest_path("burn"), "process", "100", "1")
    data = json.loads(result.read_text())
    cpu = data["cpu_user_ms"] + data["cpu_sys_ms"]
    assert f"CPU time: {cpu / 1000:.3f}s ({cpu / 10:.1f}%)" in lines


def test_grants_are_in_the_log(shared):
    (shared / "data").mkdir()
    _, lines = log_lines("--allow-read", "data", "--deny", "data/*.key", "--", "/bin/true", cwd=shared)
    assert "Filesystem: read data, not data/*.key" in lines
    _, lines = log_lines("--", "/bin/true")
    assert "Filesystem: read-only" in lines


def test_refused_calls_are_in_the_log(full, world, need):
    need(world.layers.get("denials") == "observed", "needs a listener of its own: refused calls are not observed here")
    _, lines = log_lines("--allow-read", GUESTS, "--", guest_path("try_syscall"), "mount")
    assert [line for line in lines if line.startswith("System call blocked: mount")], lines


def test_a_command_cannot_forge_a_line():
    _, lines = log_lines("--", "/bin/echo", "a\n[SANDBOX] Exit: 0\x1b[2J", "b" * 500)
    running = [line for line in lines if line.startswith("Running: ")]
    assert running == ["Running: /bin/echo a\\x0a[SANDBOX] Exit: 0\\x1b[2J " + running[0].split(" ")[-1]]
    assert running[0].endswith("...") and len(running[0]) < 260


def test_limits_speak_at_the_default_level():
    r = run("--log", "verbose", "--time-limit", "200ms", "--", "/bin/sleep", "9", as_json=False)
    assert r.code == 124 and "Error: Execution exceeded time limit (200ms)\n" in r.log_text
    assert r.log_text.endswith("[SANDBOX] Exit: 124\n")


def test_quiet_still_says_what_cordon_could_not_do():
    r = run("--log", "quiet", "--time-limit", "100ms", "--", "/bin/sleep", "9", as_json=False)
    assert (r.code, r.log) == (124, b"")
    if "ASAN_OPTIONS" not in os.environ:  # a sanitizer has words of its own after a failed exec
        assert run("--log", "quiet", "--", "no-such-program", as_json=False).log == b""
    r = run("--log", "quiet", "--backend", "gvisor", "--reuse", "--", "/bin/true", as_json=False)
    assert r.code == 69 and r.log_text.startswith("Error: ")
    r = run("--log", "quiet", "--allow-binary", "ls", "--", "/bin/true", as_json=False)
    assert r.code == 77 and "allowed_binaries" in r.log_text


def test_throttling_is_warned_of_only_where_the_caller_gave_the_number(world):
    """Five percent: less than a busy machine would give of its own accord."""
    words = ["--time-limit", "60s", "--allow-read", GUESTS, "--", guest_path("burn"), "process", "40", "2"]
    r = run("--cpu-limit", "5", *words, as_json=False)
    assert r.log_text == "Warning: CPU usage throttled to 5%\n"
    assert run("--log", "quiet", "--cpu-limit", "5", *words, as_json=False).log == b""
    assert "Warning" not in run("--cpu-limit", "0", *words, as_json=False).log_text
    assert "Warning" not in run("--profile", "strict", *words, as_json=False).log_text


# ---- messages ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("words,parts", [
    (["rum"], ["unknown verb 'rum'", "cordon run"]),
    (["run", "--tiem-limit", "5s"], ["--tiem-limit", "--time-limit"]),
    (["run", "--", ], ["nothing to run", "cordon run [options]"]),
    (["run", "/bin/true"], ["/bin/true", "after --"]),
    (["run", "--time-limit", "5", "--", "/bin/true"], ["--time-limit", "'5'", "100ms"]),
    (["doctor", "now"], ["doctor", "now"]),
    (["run", "--apparmor", "unconfined", "--", "/bin/true"], ["--apparmor", "unconfined"]),
])
def test_messages_name_what_is_wrong_and_the_fix(words, parts):
    done = cordon(*words)
    assert done.returncode == 64 and not done.stdout
    assert done.stderr.startswith("Error: ")
    for part in parts:
        assert part in done.stderr, done.stderr


def test_apparmor_needs_apparmor(need):
    need(not os.path.exists("/sys/module/apparmor"), "needs a host without AppArmor")
    done = cordon("run", "--apparmor", "guest", "--", "/bin/true")
    assert done.returncode == 69 and "AppArmor" in done.stderr and "--apparmor" in done.stderr


def test_file_and_line_of_a_wrong_key(shared):
    os.chmod(shared, 0o755)
    (shared / "cordon.toml").write_text('[sandbox]\ntime_limt = "5s"\n')
    for verb in (["run", "--", "/bin/true"], ["explain"], ["profile", "ls"]):
        done = cordon(*verb, cwd=shared)
        assert done.returncode == 78 and "cordon.toml:2:1" in done.stderr and "time_limit" in done.stderr, done.stderr


def test_output_that_cannot_be_written_is_a_failure():
    for words in (["explain"], ["profile", "ls"], ["--help"], ["run", "--help"], ["doctor"], ["--version"]):
        with open("/dev/full", "wb") as full_disk:
            done = subprocess.run([CORDON, *words], stdout=full_disk, stderr=subprocess.PIPE, cwd="/", timeout=60)
        assert done.returncode == 70, (words, done)


def test_doctor_counts_what_it_removes():
    data = json.loads(cordon("doctor", "--json").stdout)
    assert data["removed_groups"] == 0


def test_a_line_of_run_with_a_file_can_be_explained(tmp_path):
    source = tmp_path / "answer.py"
    source.write_text("raise SystemExit(1)\n")
    done = cordon("explain", "--time-limit", "7s", source, "an argument")
    assert done.returncode == 0, done.stderr
    assert "time_limit = 7s" in done.stdout and "/usr" in done.stdout
    assert cordon("explain", "--language", "bash", "-").returncode == 0
    missing = cordon("explain", tmp_path / "missing.py")
    assert missing.returncode == 64 and "missing.py" in missing.stderr
    unknown = cordon("explain", "--language", "klingon", source)
    assert unknown.returncode == 64 and "klingon" in unknown.stderr


def test_relative_paths(shared):
    """What is there is the host's, as for options that grant and deny; else it is the guest's own, and that is said."""
    (shared / "secret.txt").write_text("x")
    (shared / "d").mkdir()
    (shared / "d" / "in.x").write_text("x")
    for path in ("secret.txt", "./secret.txt", "../" + shared.name + "/secret.txt"):
        assert explain("--path", path, cwd=shared).stdout == "refused by default\n"
    assert explain("--path", "d/in.x", "--allow-read", "d", cwd=shared).stdout.startswith("allowed by allow_read = d")
    assert explain("--path", "d/in.x", "--allow-read", "d", "--deny", "d/*.x", cwd=shared).stdout.startswith("refused by deny")
    assert explain("--path", "secret.txt", "--workspace", ".:ro", cwd=shared).stdout.startswith("allowed by workspace")
    done = explain("--path", "new.txt", cwd=shared)
    assert done.stdout.startswith(("allowed by private /home/sandbox", "allowed by tier landlock, rw ")), done
    assert "relative path is the guest's own" in done.stderr
    assert explain("--path", shared / "secret.txt", cwd=shared).stdout == "refused by default\n"


def test_no_file_at_all(shared):
    """/dev/null in the place of a project's file; no other device is one."""
    (shared / "cordon.toml").write_text("[sandbox]\ntime_limit = '7s'\n")
    assert "7s" in explain(cwd=shared).stdout
    assert "7s" not in explain("--config", "/dev/null", cwd=shared).stdout
    assert "not a regular file" in explain("--config", "/dev/zero", cwd=shared, code=78).stderr
