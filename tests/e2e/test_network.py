"""The allowlist with real programs: allowed names work without proxies, certificates or settings, all others fail
fast, and the result says what happened (contract, section 9)."""

import json
import os
import pathlib
import pwd
import shutil

import subprocess

import pytest

import cordon_run
import net_world
from cordon_run import CORDON, FAULT, GUESTS, ROOT, cordon, guest_path, host_env

OK = ["--allow-network", "ok.test"]
PATIENCE = 1 if os.environ.get("CORDON_TEST_QUIET") == "1" else 4
CURL = "/usr/bin/curl"


@pytest.fixture(autouse=True)
def fresh(net):
    net.forget()


def attempts(r, **facts):
    """Records of the result that have these values."""
    return [a for a in r.result["network"]["attempts"] if all(a.get(k) == v for k, v in facts.items())]


def curl(net, url, *words, opts=OK, **kw):
    return net.run(*opts, "--file", f"ca.pem={net.ca}", "--", CURL, "-sS", "-m", "20", "--cacert", "ca.pem", *words, url, **kw)


# ---- curl: the plain cases -------------------------------------------------------------------------------

@pytest.mark.parametrize("url", ["http://ok.test/", "https://ok.test/", "http://OK.TEST./", "https://ok.test:443/x"])
def test_curl_allowed(net, program, url):
    program("curl", "curl")
    r = curl(net, url)
    assert r.verdict == "ok" and "hello from web" in r.out, str(r)
    assert not r.result["denials"], str(r)


@pytest.mark.parametrize("words", [["-4"], ["-6"]])
def test_both_families(net, words):
    r = curl(net, "https://ok.test/", *words)
    assert r.verdict == "ok" and "hello from web" in r.out, str(r)


@pytest.mark.parametrize("name", ["v4.test", "v6.test"])
def test_names_of_one_family_outside(net, name):
    """The guest may use either family: what the name has outside is Cordon's business."""
    for family in ("-4", "-6"):
        r = curl(net, f"http://{name}/", family, opts=["--allow-network", name])
        assert r.verdict == "ok" and "hello from web" in r.out, str(r)


@pytest.mark.parametrize("url, target", [
    ("http://evil.com/", "evil.com"), ("https://evil.com/", "evil.com"), ("http://other.test/", "other.test"),
    ("http://www.ok.test/", "www.ok.test"), ("http://ok.test.evil.com/", "ok.test.evil.com"), ("http://evilok.test/", "evilok.test"),
])
def test_curl_refused(net, url, target):
    r = curl(net, url)
    assert r.verdict == "nonzero_exit" and r.result["exit_code"] == 6, str(r)
    assert "Could not resolve host" in r.err
    assert r.seconds < 2 * PATIENCE, "it did not fail fast"
    assert r.denied(target, "network") and r.denied(target)[0]["rule"] == "default", str(r)
    assert not net.hits("dns"), "the question left the house"


def test_ports(net):
    for opts, port, good in [(OK, 8080, False), (["--allow-network", "ok.test:8080"], 8080, True),
                             (["--allow-network", "ok.test:8080"], 80, False), ([*OK, "--allow-ports", "8080"], 8080, True),
                             ([*OK, "--allow-ports", "8080"], 80, False), (["--allow-network", "http://ok.test/*"], 80, True),
                             (["--allow-network", "http://ok.test/*"], 8080, False), (["--allow-network", "https://ok.test"], 80, False)]:
        r = curl(net, f"http://ok.test:{port}/", opts=opts)
        assert (r.verdict == "ok") == good, f"{opts} {port} {r}"
        if not good:
            assert r.seconds < 3 * PATIENCE and not net.hits("http", place="evil"), str(r)


@pytest.mark.parametrize("name, good", [("x.wild.test", True), ("a.b.wild.test", True), ("wild.test", False), ("ok.test", False)])
def test_wildcard(net, name, good):
    r = curl(net, f"https://{name}/" if good else f"http://{name}/", "-k", opts=["--allow-network", "*.wild.test"])
    assert (r.verdict == "ok") == good, str(r)


def test_deny_wins(net):
    r = curl(net, "http://x.wild.test/", opts=["--allow-network", "*.wild.test", "--deny-network", "x.*.test"])
    assert r.verdict == "nonzero_exit", str(r)
    assert "x.*.test" in r.denied("x.wild.test")[0]["rule"], str(r)
    r = curl(net, "http://a.b.wild.test/", opts=["--allow-network", "*.wild.test", "--deny-network", "x.*.test"])
    assert r.verdict == "ok", str(r)


def test_deny_by_address_dialled(net):
    r = curl(net, "http://ok.test/", opts=[*OK, "--deny-network", "203.0.113.0/24", "--deny-network", "2001:db8::/32"])
    assert r.verdict == "nonzero_exit" and not net.hits("http"), str(r)
    assert any("203.0.113.0/24" in d["rule"] or "2001:db8::/32" in d["rule"] for d in r.result["denials"]), str(r)


def test_literal_and_range(net):
    for rule, url, good in [("203.0.113.10", "http://203.0.113.10/", True), ("203.0.113.0/24", "http://203.0.113.10/", True),
                            ("203.0.113.*", "http://203.0.113.10/", True), ("2001:db8::/32", "http://[2001:db8::10]/", True),
                            ("[2001:db8::10]:80", "http://[2001:db8::10]/", True), ("203.0.113.10", "http://203.0.113.20/", False),
                            ("203.0.113.10:443", "http://203.0.113.10/", False), ("ok.test", "http://203.0.113.10/", False)]:
        r = curl(net, url, "-g", "--connect-timeout", "5", opts=["--allow-network", rule])
        assert (r.verdict == "ok") == good, f"{rule} {url} {r}"
    assert not net.hits("http", place="evil")


def test_refused_literal_fails_fast_and_is_recorded(net):
    """Nothing routes there: the guest hears it at once."""
    r = curl(net, "http://203.0.113.20/")
    assert r.verdict == "nonzero_exit" and r.seconds < 2 * PATIENCE, str(r)
    assert r.denied("203.0.113.20:80", "network") and attempts(r, address="203.0.113.20", port=80), str(r)
    r = curl(net, "http://ok.test:81/")
    assert r.verdict == "nonzero_exit" and r.seconds < 2 * PATIENCE, str(r)
    assert r.denied("ok.test:81", "network"), str(r)
    assert not net.hits("http")


def test_alias_and_cut_answers(net):
    for name in ("alias.test", "big.test"):
        r = curl(net, f"http://{name}/", opts=["--allow-network", name])
        assert r.verdict == "ok" and "hello from web" in r.out, str(r)
    assert net.hits("dns", name="big.test", tcp=True)


@pytest.mark.parametrize("name", ["none.test", "fail.test", "dead.test"])
def test_trouble_outside_ends(net, name):
    """Allowed, but nothing there: an error in the end, never a hang."""
    r = curl(net, f"http://{name}/", "-m", "15", opts=["--allow-network", name])
    assert r.verdict == "nonzero_exit", str(r)


# ---- the record --------------------------------------------------------------------------------------------

def test_attempts_are_recorded(net):
    r = net.run(*OK, "--", "/bin/sh", "-c", "curl -sS http://ok.test/big?n=100000 | wc -c; curl -sS http://evil.com/; "
                "curl -sS -m 5 http://ok.test:8080/; true")
    assert r.out.strip() == "100000", str(r)
    good = attempts(r, name="ok.test", port=80)
    assert good and good[0]["verdict"] == "allowed" and good[0]["rule"] == "allow_network = ok.test", str(r)
    assert good[0]["bytes_down"] > 100000 and good[0]["bytes_up"] > 20 and good[0]["duration_ms"] >= 0
    assert good[0]["address"] in ("203.0.113.10", "2001:db8::10")
    assert any(a["verdict"] != "allowed" for a in attempts(r, name="evil.com")), str(r)
    assert r.denied("evil.com")[0]["count"] >= 1


def test_odd_addresses_are_recorded_once(net):
    """NAT64 forms of an allowed address, multicast, the gate's own end of the link, on ports that are listened on."""
    code = """import socket, time
def tcp(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET); s.settimeout(2)
    try: s.connect((host, port)); s.recv(1)
    except OSError: pass
def udp(host, port):
    try: socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hi", (host, port))
    except OSError: pass
tcp("64:ff9b::cb00:710a", 80); tcp("203.0.113.10", 80); tcp("192.0.0.1", 80); tcp("192.0.0.1", 81); tcp("fd63:6f72:646f:6e01::1", 80)
udp("ff0e::1", 5353); udp("ff02::fb", 5353); udp("224.0.0.251", 5353)
time.sleep(0.2)
"""
    r = net.python(code, "--allow-network", "203.0.113.10")
    seen = sorted((a["address"], a["port"], a["protocol"], a["verdict"]) for a in r.result["network"]["attempts"])
    wanted = [("192.0.0.1", 80, "tcp"), ("192.0.0.1", 81, "tcp"), ("203.0.113.10", 80, "tcp"), ("224.0.0.251", 5353, "udp"),
              ("64:ff9b::cb00:710a", 80, "tcp"), ("fd63:6f72:646f:6e01::1", 80, "tcp"), ("ff02::fb", 5353, "udp"), ("ff0e::1", 5353, "udp")]
    assert seen == [(*w, "allowed" if w[0] == "203.0.113.10" else "refused") for w in wanted], str(r)
    assert r.result["network"]["all_observed"] is True


@pytest.mark.parametrize("flood", ["tcp", "dns"])
def test_what_was_too_much_is_counted(net, flood):
    """Faster than anybody can write down: then the result does not say that all was seen."""
    code = """import socket, sys, time
def tcp(i):
    s = socket.socket(); s.setblocking(False)
    try: s.connect(("203.0.113.%d" % (i % 250 + 1), 10000 + i // 250))
    except OSError: pass
    return s
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def dns(i):
    name = b"flood%d" % i
    udp.sendto(b"\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + bytes([len(name)]) + name + b"\\3com\\0\\0\\1\\0\\1", ("198.18.0.1", 53))
n = int(sys.argv[2])
for i in range(n):
    {"tcp": tcp, "dns": dns}[sys.argv[1]](i)
    if n < 100: time.sleep(0.01)
time.sleep(0.5)
"""
    r = net.python(code, *OK, args=[flood, 12000], timeout=60)
    log = r.result["network"]
    total = sum(d["count"] for d in r.result["denials"]) + log["attempts_dropped"]
    assert total >= 10000 if log["all_observed"] else log["attempts_dropped"] > 0, str(r)[-3000:]
    assert flood == "tcp" or log["all_observed"] is False, "there is a rate for lookups"
    r = net.python(code, *OK, args=[flood, 50])
    assert r.result["network"]["all_observed"] is True and len(r.result["denials"]) == 50, "the allow twin"


def test_too_many_flows(net):
    code = """import socket, sys
a, n, kept = (socket.gethostbyname("ok.test"), 7010), 0, []
for i in range(int(sys.argv[1])):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3); s.sendto(b"q%d" % i, a); kept.append(s)
    try: n += s.recv(100) == b"echo q%d" % i
    except OSError: pass
print(n)
"""
    r = net.python(code, "--allow-network", "udp://ok.test:7010", args=[258])
    assert r.out == "256\n" and r.denied("ok.test:7010")[0]["rule"] == "too many flows", str(r)[-2000:]
    r = net.python(code, "--allow-network", "udp://ok.test:7010", args=[200])
    assert r.out == "200\n" and not r.result["denials"], "the allow twin"


def test_what_never_came_up_has_failed(net):
    """The run ends while a name is looked up or dialled; beside one that did come up."""
    code = """import socket, time
names = ["slow.test", "ok.test"]
open_ = [socket.create_connection((n, 80), 5) for n in names]
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.sendto(b"q", (socket.gethostbyname("slow.test"), 7010))
time.sleep(0.3)
"""
    r = net.python(code, *OK, "--allow-network", "slow.test", "--allow-network", "udp://slow.test:7010")
    assert [a["verdict"] for a in attempts(r, name="slow.test")] == ["failed", "failed"], str(r)
    assert [a["verdict"] for a in attempts(r, name="ok.test")] == ["allowed"], str(r)


def test_log_lines(net):
    r = net.run(*OK, "--log-network", "--", "/bin/sh", "-c", "curl -sS http://ok.test/; curl -sS http://evil.com/; true", as_json=False)
    lines = [line for line in r.log_text.splitlines() if line.startswith("[SANDBOX] Network")]
    assert "[SANDBOX] Network attempt blocked: evil.com" in lines, r.log_text
    assert any("ok.test:80" in line and "203.0.113.10" in line or "2001:db8::10" in line for line in lines), r.log_text
    r = net.run(*OK, "--log", "verbose", "--", "/bin/sh", "-c", "curl -sS http://evil.com/; true", as_json=False)
    assert "[SANDBOX] Network attempt blocked: evil.com" in r.log_text.splitlines(), r.log_text
    r = net.run(*OK, "--", "/bin/sh", "-c", "curl -sS http://ok.test/", as_json=False)
    assert r.code == 0 and r.log_text == "", "a run that ends well prints nothing of its own"


def test_log_without_rules_sees_attempts(net):
    """CVE-2025-66479: an empty list means nothing, not everything."""
    r = net.run("--log-network", "--", CURL, "-sS", "http://ok.test/")
    assert r.verdict == "nonzero_exit" and r.denied("ok.test", "network"), str(r)
    assert "blocked: ok.test" in r.log_text
    assert not net.hits()


@pytest.mark.parametrize("words", [[], ["--network", "none"], ["--allow-network", "false"], [*OK, "--allow-network", "false"]])
def test_nothing_allowed_is_nothing(net, words):
    r = net.run(*words, "--", CURL, "-sS", "-m", "5", "http://ok.test/")
    assert r.verdict == "nonzero_exit" and r.seconds < 3 * PATIENCE, str(r)
    r = net.run(*words, "--", CURL, "-sS", "-m", "5", "http://203.0.113.10/")
    assert r.verdict == "nonzero_exit" and not net.hits(), str(r)


def test_explain_says_what_the_run_does(net):
    opts = ["--allow-network", "*.wild.test", "--allow-network", "ok.test:8080", "--deny-network", "x.wild.test"]
    for host, url in [("ok.test:8080", "http://ok.test:8080/"), ("ok.test:80", "http://ok.test/"),
                      ("x.wild.test:80", "http://x.wild.test/"), ("a.b.wild.test:80", "http://a.b.wild.test/")]:
        said = cordon("explain", *opts, "--host", host).stdout.startswith("allowed")
        assert (curl(net, url, opts=opts).verdict == "ok") == said, host


# ---- other programs ----------------------------------------------------------------------------------------

URLLIB = """import ssl, sys, urllib.request
c = ssl.create_default_context(cafile="ca.pem")
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20, context=c).read().decode().strip())
    except OSError as e:
        print("refused:", e)
"""


def test_python_urllib(net):
    r = net.python(URLLIB, *OK, "--file", f"ca.pem={net.ca}", args=["https://ok.test/", "http://ok.test/", "https://evil.com/"])
    lines = r.out.splitlines()
    assert lines[0].startswith("hello from web") and lines[1].startswith("hello from web"), str(r)
    assert "Name or service not known" in lines[2], str(r)


ASYNCIO = """import asyncio, ssl
c = ssl.create_default_context(cafile="ca.pem")
async def get(name):
    r, w = await asyncio.open_connection(name, 443, ssl=c)
    w.write(b"GET / HTTP/1.1\\r\\nHost: " + name.encode() + b"\\r\\nConnection: close\\r\\n\\r\\n")
    text = await r.read()
    w.close()
    return text.split(b"\\r\\n\\r\\n")[1].decode().strip()
async def main():
    print(len(await asyncio.gather(*[get("ok.test") for _ in range(20)])))
    try:
        await get("evil.com")
    except OSError as e:
        print("refused:", e)
asyncio.run(main())
"""


def test_python_asyncio(net):
    r = net.python(ASYNCIO, *OK, "--file", f"ca.pem={net.ca}")
    assert r.out.splitlines()[0] == "20" and "refused" in r.out, str(r)


def test_node_fetch(net, program):
    node = program("node", "nodejs")
    code = """(async () => { for (const u of ["https://ok.test/", "http://ok.test/", "https://evil.com/"]) {
        try { console.log((await (await fetch(u)).text()).trim()); } catch (e) { console.log("refused:", e.cause && e.cause.code); } } })()"""
    r = net.run(*OK, "--file", f"ca.pem={net.ca}", "--env", "NODE_EXTRA_CA_CERTS=ca.pem", "--memory-limit", "1G", "--", node, "-e", code)
    assert r.out.count("hello from web") == 2 and "refused: ENOTFOUND" in r.out, str(r)


JAVA = """import java.net.URI; import java.net.http.*; import java.net.http.HttpResponse.BodyHandlers;
public class Get { public static void main(String[] a) throws Exception {
  for (String u : a) { try {
      System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(u)).build(), BodyHandlers.ofString()).body().strip());
    } catch (Exception e) { System.out.println("refused: " + e); } } } }
"""


def test_java_http_client(net, program, shared):
    java = program("java", "default-jdk-headless")
    (shared / "Get.java").write_text(JAVA)
    store = shared / "trust.p12"
    subprocess.run(["keytool", "-J-XX:-UsePerfData", "-importcert", "-noprompt", "-alias", "test", "-file", net.ca, "-keystore", store,
                    "-storepass", "changeit"], check=True, capture_output=True, timeout=60)
    r = net.run(*OK, "--file", f"Get.java={shared / 'Get.java'}", "--file", f"trust.p12={store}", "--memory-limit", "2G", "--time-limit", "60s", "--",
                java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Djavax.net.ssl.trustStore=trust.p12", "-Djavax.net.ssl.trustStorePassword=changeit", "Get.java",
                "https://ok.test/", "http://ok.test/", "http://evil.com/", timeout=120)
    assert r.out.count("hello from web") == 2 and "refused: java.net" in r.out, str(r)


def test_static_client(net):
    for name, good in (("ok.test", True), ("evil.com", False)):
        r = net.run(*OK, "--allow-read", GUESTS, "--", guest_path("netclient"), "get", name, "80")
        assert ("hello from web" in r.out) == good, str(r)
        if not good:
            assert r.get("answer") == "code 3, 0 records", str(r)


@pytest.fixture(scope="module")
def repository(net):
    """A bare repository below the web server's folder."""
    def git(*words, cwd=None):
        subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env=host_env({"HOME": str(net.folder)}), timeout=60)
    work, bare = net.folder / "work", net.folder / "git" / "project.git"
    git("init", "-q", "-b", "main", str(work))
    (work / "file.txt").write_text("from the repository\n")
    git("add", ".", cwd=work)
    git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "first", cwd=work)
    git("clone", "-q", "--bare", str(work), str(bare))
    git("update-server-info", cwd=bare)
    return bare


def test_git_https(net, program, repository):
    program("git", "git")
    for name, good in (("git.test", True), ("evil.com", False)):
        r = net.run("--allow-network", "git.test:443", "--file", f"ca.pem={net.ca}", "--env", "GIT_SSL_CAINFO=/home/sandbox/ca.pem", "--env", "GIT_TERMINAL_PROMPT=0",
                    "--", "/bin/sh", "-c", f"git clone -q https://{name}/git/project.git p && cat p/file.txt")
        assert (r.out == "from the repository\n") == good, str(r)


@pytest.fixture
def ssh_server(net, program, repository, shared):
    """A real sshd for one user, whoever runs the tests: with a list of users of its own, in which that one may log in."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin") or program("sshd", "openssh-server")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", shared / name], check=True)
    os.chmod(shared, 0o755)
    (shared / "keys").write_text((shared / "user.pub").read_text())
    others = [line for line in pathlib.Path("/etc/passwd").read_text().splitlines() if line.split(":")[2] != str(os.geteuid())]
    (shared / "passwd").write_text("\n".join([f"git:x:{os.geteuid()}:{os.getegid()}::{shared}:/bin/sh", *others]) + "\n")
    config = shared / "sshd_config"
    config.write_text(f"Port 2222\nListenAddress 203.0.113.10\nHostKey {shared}/host\nAuthorizedKeysFile {shared}/keys\nStrictModes no\n"
                      f"PidFile none\nUsePAM no\nPermitRootLogin yes\nForceCommand git-upload-pack {repository}\n")
    # only who is root in a user namespace may mount there; sshd is the ordinary user again, in one further in
    is_root = os.geteuid() == 0
    enter = 'mount --bind "$1/passwd" /etc/passwd && ' + ('mkdir -p /run/sshd && exec ' if is_root else f'exec unshare -U --map-user={os.geteuid()} --map-group={os.getegid()} -- ')
    server = subprocess.Popen([*net.prefix, "unshare", *(["-m"] if is_root else ["-r", "-m"]), "--", "/bin/sh", "-c", enter + '"$2" -D -e -f "$1/sshd_config"',
                               "sh", shared, sshd], stderr=subprocess.PIPE, text=True)
    try:
        net_world.wait_for(lambda: server.poll() is not None or net.bare("bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/2222").returncode == 0)
        assert server.poll() is None, server.communicate()[1]
        yield
    finally:
        server.terminate()
        said = server.communicate(timeout=20)[1]
        print(said[-4000:])  # shown where the test fails


def test_git_ssh(net, program, ssh_server, shared):
    program("ssh", "openssh-client")
    ssh = "ssh -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o ConnectTimeout=10 -F none"
    script = f"chmod 600 key; GIT_SSH_COMMAND='{ssh}' git clone -q ssh://git@NAME:2222/x p && cat p/file.txt"
    for name, good in (("git.test", True), ("evil.com", False)):
        r = net.run("--allow-network", "git.test:2222", "--file", f"key={shared / 'user'}", "--", "/bin/sh", "-c", script.replace("NAME", name))
        assert (r.out == "from the repository\n") == good, str(r)
    assert "Could not resolve hostname evil.com" in r.err, str(r)


@pytest.fixture(scope="module")
def postgres(net):
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("initdb is missing: install the Debian package postgresql")
    folder, bins = net.folder / "pg", found[-1].parent
    folder.mkdir()
    drop = []
    if os.geteuid() == 0:  # PostgreSQL refuses to be root
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
        drop = ["setpriv", "--reuid", "nobody", "--regid", str(nobody.pw_gid), "--clear-groups", "--"]
    env = host_env({"LC_ALL": "C", "HOME": str(folder)})
    subprocess.run([*drop, bins / "initdb", "-D", folder / "data", "-U", "guest", "-A", "trust", "-N"], check=True, capture_output=True, env=env, timeout=120)
    (folder / "data" / "pg_hba.conf").write_text("host all all all trust\n")
    net.spawn(*drop, bins / "postgres", "-D", folder / "data", "-h", "203.0.113.10", "-p", "5432", "-k", "", "-c", "autovacuum=off", "-c", "fsync=off",
              "-c", "max_parallel_workers=0", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    net_world.wait_for(lambda: net.bare(bins / "pg_isready", "-h", "203.0.113.10", "-t", "1").returncode == 0, 60)


def test_psql(net, program, postgres):
    program("psql", "postgresql-client")
    psql = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/psql"))[-1]
    for name, good in (("db.test", True), ("evil.com", False)):
        r = net.run("--allow-network", "db.test:5432", "--", psql, "-h", name, "-U", "guest", "-d", "postgres", "-Atc",
                    "select sum(n) from generate_series(1,100000) n")
        assert (r.out == "5000050000\n") == good, str(r)
    assert "could not translate host name" in r.err, str(r)


@pytest.fixture(scope="module")
def redis(net):
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is missing: install the Debian package redis-server")
    net.spawn("redis-server", "--bind", "203.0.113.10", "--port", "6379", "--save", "", "--protected-mode", "no", "--dir", str(net.folder),
              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    net_world.wait_for(lambda: net.bare("redis-cli", "-h", "203.0.113.10", "ping").stdout == "PONG\n")


def test_redis_cli(net, redis):
    for name, good in (("cache.test", True), ("evil.com", False)):
        r = net.run("--allow-network", "cache.test:6379", "--", "/bin/sh", "-c", f"redis-cli -h {name} set k v && redis-cli -h {name} get k")
        assert (r.out == "OK\nv\n") == good, str(r)


LIBRARY = """import asyncio, sys, cordon
with cordon.Sandbox(allow_network=["ok.test"], dns=sys.argv[1]) as s:
    r = s.run_command(["curl", "-sS", "http://ok.test/"])
    print(r.stdout.strip(), r.network["attempts"][0]["name"] if getattr(r, "network", None) else "ok.test")
    r = s.run_command(["curl", "-sS", "http://evil.com/"])
    print(r.exit_code, [d["target"] for d in r.denials])
    async def many():
        return await asyncio.gather(*[s.run_async("import urllib.request; print(urllib.request.urlopen('http://ok.test/', timeout=20).status)") for _ in range(4)])
    print([r.stdout.strip() for r in asyncio.run(many())])
"""


def test_from_the_library(net):
    """One supervisor, many guests, each with a broker of its own."""
    library = pathlib.Path(os.environ.get("CORDON_LIBRARY") or ROOT / "build" / "src" / "lib" / "libcordon.so.0")
    if not library.exists():
        pytest.skip(f"{library} is not there: build first (make)")
    env = host_env({"PYTHONPATH": str(ROOT / "python"), "CORDON_LIBRARY": str(library), "CORDON_BINARY": CORDON, "PYTHONDONTWRITEBYTECODE": "1"})
    done = subprocess.run([*net.prefix, "/usr/bin/python3", "-c", LIBRARY, net_world.DNS], capture_output=True, text=True, env=env, timeout=90)
    assert done.stdout.splitlines() == ["hello from web as ok.test ok.test", "6 ['evil.com']", "['200', '200', '200', '200']"], done


@pytest.mark.parametrize("rule", ["xn--bcher-kva.test", "b\u00fccher.test", "BU\u0308CHER\u3002\uff54est.", "https://b\u00fccher.test/*"])
def test_other_scripts(net, rule):
    """A name of another script has one form, whoever writes it how; programs that know IDNA may use any spelling."""
    port = 443 if rule.startswith("https") else 80
    scheme = "https" if port == 443 else "http"
    for name in ("xn--bcher-kva.test", "XN--Bcher-KVA.test.", "b\u00fccher.test"):
        r = curl(net, f"{scheme}://{name}/", opts=["--allow-network", rule])
        assert r.verdict == "ok" and "hello from web" in r.out, str(r)
        assert attempts(r, name="xn--bcher-kva.test", port=port), str(r)
    r = curl(net, "http://bucher.test/", opts=["--allow-network", rule])
    assert r.verdict == "nonzero_exit" and r.denied("bucher.test"), str(r)
    r = curl(net, f"{scheme}://xn--bcher-kva.test/", opts=["--allow-network", "*.test", "--deny-network", rule])
    assert r.verdict == "nonzero_exit" and r.denied("xn--bcher-kva.test"), str(r)


def test_other_scripts_in_a_file(net, shared):
    (shared / "cordon.toml").write_text('[sandbox.network]\nallow_domains = ["b\u00fccher.test"]\n', encoding="utf-8")
    r = curl(net, "http://xn--bcher-kva.test/", opts=["--config", str(shared / "cordon.toml")])
    assert r.verdict == "ok" and attempts(r, name="xn--bcher-kva.test")[0]["rule"].endswith("b\u00fccher.test"), str(r)
    for host, said in (("b\u00fccher.test:80", "allowed"), ("XN--BCHER-KVA.test:80", "allowed"), ("bucher.test:80", "refused")):
        assert cordon("explain", "--config", str(shared / "cordon.toml"), "--host", host).stdout.startswith(said), host
    assert cordon("explain", "--network", "bridge", "--host", "\uff11\uff12\uff17\u30020.0.1").stdout.startswith("refused by block_internal")


# ---- cost --------------------------------------------------------------------------------------------------

def traced(shared, *words):
    """The system calls of a whole run that a way out is made of, one per line."""
    log = shared / "trace"
    done = subprocess.run(["strace", "-f", "-o", log, "-e", "trace=socket,bind,listen,connect,clone,clone3,unshare,execve", CORDON, "run", *words, "--", "/bin/true"],
                          capture_output=True, text=True, env=host_env(), timeout=60)
    assert done.returncode == 0, done
    return [line for line in log.read_text().splitlines() if "<unfinished" in line or "resumed>" not in line]


def test_without_network_nothing_is_paid(net, program, shared):
    """No broker, no second namespace, no link, no listener; the twin with a rule has them all."""
    program("strace", "strace")
    found = {}
    for name, words in (("without", []), ("none", ["--network", "none"]), ("with", OK)):
        calls = traced(shared, *words)
        found[name] = {"namespaces": sum("CLONE_NEWNET" in c for c in calls), "programs": sum("execve(" in c for c in calls),
                       "link": sum("AF_NETLINK" in c or "AF_PACKET" in c for c in calls), "listeners": sum("listen(" in c or "bind(" in c for c in calls),
                       "sockets": sum("socket(" in c for c in calls)}
    # one namespace, the command and the guest, one socket that brings up the loopback
    assert found["without"] == {"namespaces": 1, "programs": 2, "link": 0, "listeners": 0, "sockets": 1}, found
    assert found["none"] == found["without"], found
    assert found["with"]["namespaces"] == 2 and found["with"]["programs"] == 3 and found["with"]["link"] >= 2 and found["with"]["listeners"] >= 4, found


# ---- local -------------------------------------------------------------------------------------------------

SERVE = """import http.server, sys, urllib.request, threading
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"guest's own")
for address in sys.argv[2:]:
    s = http.server.HTTPServer((address, int(sys.argv[1])), H)
    threading.Thread(target=s.serve_forever, daemon=True).start()
    print(urllib.request.urlopen("http://localhost:%s/" % sys.argv[1], timeout=5).read().decode(), flush=True)
    s.shutdown(); s.server_close()
"""


def test_own_loopback_keeps_every_port(net):
    """Nothing of ours listens beside the guest, also not on the ports it may reach outside."""
    r = net.python(SERVE, "--allow-network", "ok.test:8080", args=[8080, "127.0.0.1", "0.0.0.0"])
    assert r.out.splitlines() == ["guest's own"] * 2, str(r)


def test_low_ports_are_the_guests_too(net):
    r = net.python(SERVE, *OK, args=[80, "127.0.0.1", "0.0.0.0"])
    assert r.out.splitlines() == ["guest's own"] * 2, str(r)


def test_localhost_is_the_guests_own(net):
    r = curl(net, "http://localhost:80/", "-m", "5", opts=[*OK, "--allow-network", "localhost"])
    assert r.verdict == "nonzero_exit" and not net.hits("inside"), str(r)


def test_host_port(net):
    for opts, port, good in [(["--allow-host-port", "8080"], 8080, True), (["--allow-host-port", "8080"], 80, False),
                             (["--allow-network", "localhost:8080"], 8080, True), (["--allow-network", "localhost"], 80, True),
                             (["--allow-network", "127.0.0.1:8080"], 8080, True), (["--allow-network", "127.*:8080"], 8080, True),
                             (["--allow-network", "host.cordon:8080"], 8080, True), (["--allow-network", "127.0.0.5:8080"], 8080, False),
                             (OK, 80, False), ([*OK, "--block-internal=false"], 80, False)]:
        net.forget()
        r = curl(net, f"http://host.cordon:{port}/", "-m", "5", opts=opts)
        assert (r.out == "inside") == good, f"{opts} {r}"
        assert bool(net.hits("inside", port=port)) == good


@pytest.mark.parametrize("rules", ["allow_network = ['localhost:8080']", "allow_network = ['127.0.0.1:8080']",
                                   "[sandbox.network]\nallow_host_port = [8080]"])
def test_block_internal_that_is_said_holds_against_a_project(net, rules, shared):
    """What the caller denies, a project's file cannot allow; what the caller says in the same place, it may."""
    config = shared / "p.toml"
    config.write_text(f"[sandbox]\n{rules}\n")
    project = ["--config", config]
    for opts, good in [(project, True), ([*project, "--block-internal=true"], False),
                       (["--block-internal=true", "--allow-network", "localhost:8080"], True),
                       ([*project, "--block-internal=true", "--allow-host-port", "8080"], True)]:
        net.forget()
        r = curl(net, "http://host.cordon:8080/", "-m", "5", opts=[*OK, *opts])
        assert (r.out == "inside") == good == bool(net.hits("inside", port=8080)), f"{opts} {r}"
    done = net.bare(CORDON, "explain", *map(str, project), "--block-internal=true", "--host", "host.cordon:8080")
    assert done.stdout.startswith("refused by block_internal = true"), done


def test_a_projects_range_opens_what_is_public(net, shared):
    config = shared / "p.toml"
    config.write_text("[sandbox]\nallow_network = ['203.0.113.0/24', '10.0.0.0/8', 'internal.test', 'meta.test', '*.local']\n")
    opts = ["--config", config, "--block-internal=true"]
    assert "hello from web" in curl(net, "http://203.0.113.10/", opts=opts).out
    for target in ("internal.test", "10.0.0.5"):
        r = curl(net, f"http://{target}/", "-m", "5", opts=opts)
        assert r.verdict == "nonzero_exit" and "block_internal" in str(r.result["denials"]), f"{target} {r}"
    assert not net.hits("inside")


def test_host_port_nobody_listens_on(net):
    """A dial that leaves from the very port it goes to meets itself: that is nobody, not a host that echoes."""
    code = """import socket, sys
met = 0
for _ in range(30):
    try:
        s = socket.create_connection(("host.cordon", int(sys.argv[1])), 5); s.settimeout(2)
        s.sendall(b"\\1me"); met += s.recv(10) == b"\\1me"
    except OSError: pass
print(met)
"""
    ports = "/proc/sys/net/ipv4/ip_local_port_range"
    before = net.bare("cat", ports).stdout.strip()
    if net.bare("sh", "-c", f"echo 40000 40001 > {ports}").returncode:
        pytest.skip("the range of ports cannot be set here: run as root")
    try:
        r = net.python(code, "--allow-host-port", "40000", args=[40000])
    finally:
        net.bare("sh", "-c", f"echo {before} > {ports}")
    assert r.out == "0\n" and attempts(r, port=40000, verdict="failed"), str(r)
    assert curl(net, "http://host.cordon:8080/", opts=["--allow-host-port", "8080"]).out == "inside", "the allow twin"


PUBLISHED = """import socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.create_server((sys.argv[1], 9000), family=family, dualstack_ipv6=False)
print("up", flush=True)
for _ in range(int(sys.argv[2])):
    c, _ = s.accept()
    c.sendall(b"served " + c.recv(100)); c.close()
"""


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "::", "::1", "192.0.0.2"])
def test_publish(net, address):
    """Whatever of its addresses a server of the guest's listens on, of either family alone."""
    child = net.start(*OK, "--publish", "18080:9000", "--time-limit", "30s", "--", "/usr/bin/python3", "-I", "-S", "-c", PUBLISHED, address, "3")
    try:
        assert child.stdout.readline() == b"up\n"
        for _ in range(3):
            r = net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080 && printf hi >&3 && cat <&3")
            assert r.stdout == "served hi", r
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.communicate()
    r = net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080")
    assert r.returncode != 0, "the published port outlived the guest"


SLOW_READER = """import socket, time
s = socket.create_server(("0.0.0.0", 9000)); print("up", flush=True)
for _ in range(2):
    c, _ = s.accept(); n = 0
    c.shutdown(socket.SHUT_WR)
    time.sleep(0.5)
    while d := c.recv(65536):
        n += len(d)
        time.sleep(0.002)
    print("all", n, flush=True)
"""


def test_publish_upload_behind_an_early_end(net):
    """The guest ends its side first and reads on slowly: what was sent to it arrives all the same."""
    child = net.start(*OK, "--publish", "18080:9000", "--time-limit", "60s", "--", "/usr/bin/python3", "-I", "-S", "-c", SLOW_READER)
    try:
        assert child.stdout.readline() == b"up\n"
        send = """import socket
s = socket.create_connection(("127.0.0.1", 18080)); s.recv(1)
s.sendall(b"x" * 6000000); s.close()"""
        for _ in range(2):
            done = net.bare("/usr/bin/python3", "-I", "-S", "-c", send)
            assert done.returncode == 0, done.stderr
            assert child.stdout.readline() == b"all 6000000\n"
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.communicate()


def test_publish_again_and_again(net):
    """Sockets that reached the guest go back to the store: more connections than it has, one after the other."""
    child = net.start("--publish", "18080:9000", "--time-limit", "60s", "--", "/usr/bin/python3", "-I", "-S", "-c", PUBLISHED, "::1", "600")
    code = """import socket
for i in range(600):
    s = socket.create_connection(("127.0.0.1", 18080), 10); s.sendall(b"%d" % i); assert s.makefile("rb").read() == b"served %d" % i, i; s.close()
print("done")
"""
    try:
        assert child.stdout.readline() == b"up\n"
        r = net.bare("/usr/bin/python3", "-I", "-S", "-c", code)
        assert r.stdout == "done\n", r
        assert child.wait(20) == 0
    finally:
        child.kill()
        child.communicate()


def test_publish_with_few_descriptors(net):
    """A host whose limit is low gets fewer connections at a time, not an error."""
    child = cordon_run.start("--publish", "18080:9000", "--time-limit", "30s", "--", "/usr/bin/python3", "-I", "-S", "-c", PUBLISHED, "::1", "1",
                             prefix=[*net.prefix, "prlimit", "--nofile=256:256", "--"])
    try:
        assert child.stdout.readline() == b"up\n", child.communicate()[1]
        r = net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080 && printf hi >&3 && cat <&3")
        assert r.stdout == "served hi" and child.wait(20) == 0, r
    finally:
        child.kill()
        child.communicate()


def test_own_address_is_local_from_the_first_moment_on(net):
    """The kernel's own entry for it, on the link, comes when a worker has the time: until then a published port's dial would wait for a neighbour."""
    r = net.run("--publish", "18080:9000", "--", "/bin/cat", "/proc/net/ipv6_route")
    rows = [line.split() for line in r.result["stdout"].splitlines()]
    own = {row[-1] for row in rows if row[:2] == ["fd636f72646f6e010000000000000002", "80"]}
    assert "lo" in own, r


def test_publish_records_and_refuses(net):
    """Nobody listens: the connection ends, and the record says so; nothing of ours answers there."""
    child = net.start("--json", "--publish", "18080:9000", "--time-limit", "30s", "--", "/usr/bin/python3", "-I", "-S", "-c",
                      "import sys, time; sys.stderr.write('up'); time.sleep(2)")
    try:
        net_world.wait_for(lambda: net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080").returncode == 0)
        r = net.bare("bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/18080 && printf hi >&3 && cat <&3")
        assert r.stdout == "", r
        result = json.loads(child.communicate(timeout=30)[0])
    finally:
        child.kill()
        child.communicate()
    inward = [a for a in result["network"]["attempts"] if a["port"] == 9000]
    assert inward and {(a["verdict"], a["address"]) for a in inward} == {("failed", "127.0.0.1")}, result["network"]


UDP = """import socket, sys
for name, port in zip(sys.argv[1::2], sys.argv[2::2]):
    s = socket.socket(type=socket.SOCK_DGRAM); s.settimeout(0.7)
    try:
        s.connect((socket.getaddrinfo(name, int(port), socket.AF_INET)[0][4]))
        s.send(b"ping"); print(s.recv(100).decode())
    except OSError as e:
        print("refused:", e)
"""


def test_udp(net):
    r = net.python(UDP, "--allow-network", "udp://time.test:7010", *OK, args=["time.test", 7010, "ok.test", 7010, "evil.com", 7010, "203.0.113.20", 7010])
    lines = r.out.splitlines()
    assert lines[0] == "echo ping" and all(line.startswith("refused") for line in lines[1:]), str(r)
    assert len(net.hits("udp")) == 1
    r = net.python(UDP, *OK, "--allow-network", "time.test:7010", args=["time.test", 7010])
    assert "refused" in r.out and len(net.hits("udp")) == 1, str(r)


def test_udp_of_every_size(net):
    """Both families, also in pieces; the answer comes from where the question went."""
    code = """import socket
for family in (socket.AF_INET, socket.AF_INET6):
    for size in (0, 100, 1400, 8000):
        s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(20)
        to = socket.getaddrinfo("time.test", 7010, family)[0][4]
        s.sendto(b"d" * size, to); data, peer = s.recvfrom(70000); print(data == b"echo " + b"d" * size, peer[:2] == to[:2])
"""
    r = net.python(code, "--allow-network", "udp://time.test:7010")
    assert r.out == "True True\n" * 8, str(r)
    assert sum(a["bytes_up"] for a in attempts(r, name="time.test", protocol="udp", verdict="allowed")) == 2 * 9500, str(r)


def test_udp_refusals_do_not_fill_the_table(net):
    """A guest that was refused hundreds of times still gets what it may have."""
    code = UDP.replace("import socket, sys", """import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(300):
    s.sendto(b"x", (f"198.18.200.{i % 250}", 53)); s.sendto(b"x", (f"198.18.201.{i % 250}", 53))
""", 1)
    r = net.python(code, "--allow-network", "udp://time.test:7010", *OK, args=["ok.test", 53, "time.test", 7010])
    lines = r.out.splitlines()
    assert lines[0].startswith("refused") and lines[1:] == ["echo ping"], str(r)


def test_caps(net):
    """Connections at one time, and bytes of a whole run."""
    many = ["--allow-network", "ok.test:7000", "--allow-read", GUESTS, "--", guest_path("netclient"), "many", "ok.test", "7000", "10"]
    r = net.run("--max-connections", "4", *many)
    assert r.get("good") == "4" and r.denied("ok.test:7000")[0]["rule"] == "max_connections = 4", str(r)
    assert net.run(*many).get("good") == "10"
    for cap, good in (("1M", False), ("64M", True)):
        r = curl(net, "http://ok.test/big?n=20000000", "-o", "/dev/null", opts=[*OK, "--max-traffic", cap])
        assert (r.verdict == "ok") == good, str(r)
        assert good or r.result["network"]["bytes_down"] <= 1 << 20, str(r)


def test_traffic_cap_of_many(net):
    """Bytes that are held to be judged count like all others: many connections do not have a share each."""
    code = """import socket, sys, time
a = socket.getaddrinfo("ok.test", 7001)[0][4][:2]
open_ = [socket.create_connection(a, 5) for _ in range(50)]
time.sleep(0.3)
for s in open_:
    try: s.sendall(b"\\1" * 10000)
    except OSError: pass
got = 0
for s in open_:
    try:
        s.shutdown(socket.SHUT_WR)
        got += s.recv(100).startswith(b"10000 ")
    except OSError: pass
print(got)
"""
    opts = ["--allow-network", "ok.test:7001"]
    r = net.python(code, *opts, "--max-traffic", "64K")
    assert r.result["network"]["bytes_up"] + r.result["network"]["bytes_down"] <= 64 << 10, str(r)
    assert r.denied("ok.test:7001")[0]["rule"] == "max_traffic = 64K", str(r)
    r = net.python(code, *opts, "--max-traffic", "1M")
    assert r.out == "50\n" and not r.result["denials"], "the allow twin"


def test_upstream_proxy(net):
    r = curl(net, "https://ok.test/", opts=[*OK, "--http-proxy", "http://user:secret@203.0.113.30:3128"])
    assert r.verdict == "ok" and "hello from web" in r.out, str(r)
    assert net.hits("proxy")[0]["line"].startswith("CONNECT ok.test:443") and net.hits("proxy")[0]["auth"], net.hits()
    net.forget()
    r = curl(net, "https://evil.com/", opts=[*OK, "--http-proxy", "http://203.0.113.30:3128"])
    assert r.verdict == "nonzero_exit" and not net.hits("proxy"), str(r)
    assert "secret" not in json.dumps(r.result)


# ---- bridge and host ---------------------------------------------------------------------------------------

def test_bridge(net):
    opts = ["--network", "bridge"]
    r = curl(net, "http://ok.test:8080/", opts=opts)
    if r.code == 69:
        assert "network" in str(r.result["error"]), str(r)
        pytest.skip("the kernel lacks what a bridge needs: " + str(r.result["error"]))
    assert r.verdict == "ok" and "hello from web" in r.out, str(r)
    assert "hello from evil" in curl(net, "http://evil.com/", opts=opts).out
    assert "hello from web" in curl(net, "http://203.0.113.10/", opts=opts).out
    for target in ("internal.test", "meta.test", "10.0.0.5", "127.0.0.2", "169.254.169.254", "[fd00:ec2::254]", "host.cordon"):
        r = curl(net, f"http://{target}/", "-g", "-m", "5", opts=opts)
        assert r.verdict == "nonzero_exit", f"{target} {r}"
    assert not net.hits("inside")
    r = curl(net, "http://evil.com/", opts=[*opts, "--deny-network", "evil.com"])
    assert r.verdict == "nonzero_exit", str(r)


# ---- kernels that lack something ----------------------------------------------------------------------------

@pytest.fixture
def lacking(net):
    """Runs with system calls that fail as on such a kernel."""
    inject = FAULT / "inject"
    if not inject.exists():
        pytest.skip(f"{inject} is missing: tests/fault/build makes it")

    def run(fault, *words, **kw):
        return cordon_run.run("--dns", net_world.DNS, *words, prefix=[*net.prefix, inject, fault, "--"], **kw)
    return run


NO_RULES, NO_IPV6 = "socket@2:12=EPERM", "socket@0:10=EPERM"  # NETLINK_NETFILTER, AF_INET6


def test_no_packet_rules(net, lacking):
    """Without nftables what is not allowed has no route: it fails as fast, unseen, and the result says so; a bridge
    cannot be had."""
    r = lacking(NO_RULES, *OK, "--", "/bin/sh", "-c", "curl -sS http://ok.test/; curl -sS -m 5 http://203.0.113.20/; curl -sS -m 5 http://evil.com/; true")
    assert r.out == "hello from web as ok.test\n" and r.seconds < 4 * PATIENCE, str(r)
    assert r.result["network"]["all_observed"] is False and r.denied("evil.com"), str(r)
    r = lacking(NO_RULES, "--allow-network", "203.0.113.10", "--", CURL, "-sS", "http://203.0.113.10/")
    assert "hello from web" in r.out and not net.hits("http", place="evil"), str(r)
    r = lacking(NO_RULES, "--network", "bridge", "--", "/bin/echo", "ran", as_json=False)
    assert r.code == 69 and "nft_tproxy" in r.log_text and "ran" not in r.out, r.log_text


def test_no_ipv6(net, lacking):
    r = lacking(NO_IPV6, *OK, "--", "/bin/sh", "-c", "curl -sS http://ok.test/; curl -6 -sS -m 5 http://ok.test/; curl -sS http://v6.test/; true")
    assert r.out == "hello from web as ok.test\n", str(r)
    r = lacking(NO_IPV6, *OK, "--publish", "18080:9000", "--", "/bin/echo", "ran")
    assert r.out == "ran\n", str(r)


def test_host_network_needs_its_word(net):
    r = net.run("--network", "host", "--", CURL, "-sS", "http://203.0.113.10/", as_json=False, dns=None)
    assert r.code in (64, 78) and "unsafe" in r.log_text, (r.code, r.log_text)
    r = net.run("--network", "host", "--unsafe-host-network", "--", CURL, "-sS", "http://203.0.113.10/", dns=None)
    assert r.code == 69 or "hello from web" in r.out, str(r)


def test_explain_and_bad_values(net):
    for words in (["--dns", "nowhere"], ["--http-proxy", "socks5://x:1"], ["--allow-network", "http://a.test/path"], ["--allow-network", "*"],
                  ["--allow-network", "*.com"], ["--publish", "x:1"], ["--allow-network", "a_b.test"], ["--allow-network", "a\nb.test"]):
        done = subprocess.run([CORDON, "run", *OK, *words, "--", "/bin/true"], capture_output=True, text=True, env=host_env(), timeout=30)
        assert done.returncode in (64, 78), (words, done.returncode, done.stderr)


def test_profile_development(net):
    """localhost and *.local."""
    opts = ["--profile", "development", "--workspace", f"{net.folder}:none"]
    r = curl(net, "http://printer.local/", opts=opts)
    assert r.out == "inside", str(r)
    r = curl(net, "http://internal.test/", opts=opts)
    assert r.verdict == "nonzero_exit", str(r)
