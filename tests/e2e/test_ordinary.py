"""Ordinary programs work inside as they do outside (contract, section 4, last line)."""

import glob
import os

import pytest

from cordon_run import guest, run

PYTHON = "/usr/bin/python3"


def python(code, *opts, **kw):
    opts = opts or ("--time-limit", "30s")
    return run(*opts, "--", PYTHON, "-c", code, **kw)


def good(r, out=None):
    assert r.verdict == "ok", str(r)
    if out is not None:
        assert r.out == out, str(r)
    return r


# ---- python ------------------------------------------------------------------------------------------

POOL = """
import multiprocessing as mp
def square(x): return x * x
if __name__ == '__main__':
    mp.set_start_method('%s')
    with mp.Pool(3) as pool:
        print(sum(pool.map(square, range(100))))
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method, shared, program, full):
    program("python3", "python3")
    (shared / "pool.py").write_text(POOL % method)
    good(run("--time-limit", "30s", "--file", f"pool.py={shared}/pool.py", "--", PYTHON, "pool.py"), "328350\n")


def test_semaphores_and_queues(full):
    good(python("""
import multiprocessing as mp
s, l, q, v, e = mp.Semaphore(2), mp.Lock(), mp.Queue(), mp.Value('i', 0), mp.Event()
def work():
    with s, l:
        v.value += 1
    q.put(1)
    e.wait(5)
ps = [mp.Process(target=work) for _ in range(6)]
[p.start() for p in ps]
n = sum(q.get(timeout=10) for _ in ps)
e.set()
[p.join() for p in ps]
print(n, v.value)
"""), "6 6\n")


def test_shared_memory(full):
    good(python("""
from multiprocessing import shared_memory, Process
m = shared_memory.SharedMemory(create=True, size=4096)
def w(name):
    o = shared_memory.SharedMemory(name); o.buf[0] = 77; o.close()
p = Process(target=w, args=(m.name,)); p.start(); p.join()
print(m.buf[0]); m.close(); m.unlink()
"""), "77\n")


def test_asyncio():
    good(python("""
import asyncio
async def main():
    p = await asyncio.create_subprocess_exec('/bin/echo', 'child', stdout=-1)
    out, _ = await p.communicate()
    r = await asyncio.gather(*[asyncio.sleep(0.01, i) for i in range(50)])
    loop = asyncio.get_running_loop()
    n = await loop.run_in_executor(None, sum, range(10))
    print(out, sum(r), n)
asyncio.run(main())
"""), "b'child\\n' 1225 45\n")


def test_asyncio_server(full):
    good(python("""
import asyncio
async def main():
    async def echo(r, w):
        w.write(await r.readline()); await w.drain(); w.close()
    s = await asyncio.start_server(echo, 'localhost', 0)
    port = s.sockets[0].getsockname()[1]
    r, w = await asyncio.open_connection('localhost', port)
    w.write(b'hi\\n'); print(await r.readline())
asyncio.run(main())
"""), "b'hi\\n'\n")


def test_threads():
    good(python("""
import threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(20) as e:
    print(sum(e.map(lambda x: x + 1, range(1000))))
print(threading.active_count())
"""), "500500\n1\n")


def test_sqlite():
    good(python("""
import sqlite3, os
db = sqlite3.connect(os.path.join(os.environ['TMPDIR'], 'x.db'))
db.execute('pragma journal_mode=wal')
db.execute('create table t(a)'); db.executemany('insert into t values(?)', [(i,) for i in range(1000)]); db.commit()
print(db.execute('select sum(a) from t').fetchone()[0])
"""), "499500\n")


def test_subprocess_signals_and_files():
    good(python("""
import subprocess, signal, os, tempfile, time, fcntl, mmap, select
p = subprocess.Popen(['/bin/sleep', '20']); p.send_signal(signal.SIGTERM); print(p.wait())
with tempfile.NamedTemporaryFile() as f:
    f.write(b'x' * 8192); f.flush(); fcntl.lockf(f, fcntl.LOCK_EX)
    m = mmap.mmap(f.fileno(), 0); m[0] = 65; print(m[:2])
signal.signal(signal.SIGALRM, lambda *a: print('alarm')); signal.setitimer(signal.ITIMER_REAL, 0.05); time.sleep(0.2)
e = select.epoll(); r, w = os.pipe(); e.register(r, select.EPOLLIN); os.write(w, b'x'); print(len(e.poll(1)))
print(subprocess.run('echo $((6*7)) | tr 4 5', shell=True, capture_output=True, text=True).stdout.strip())
"""), "-15\nb'Ax'\nalarm\n1\n52\n")


def test_numpy(need):
    need(glob.glob("/usr/lib/python3/dist-packages/numpy"), "numpy is missing: install the Debian package python3-numpy")
    good(python("import numpy as np; a = np.random.rand(300, 300); print(np.allclose(a @ np.linalg.inv(a), np.eye(300)))",
                "--time-limit", "60s"), "True\n")


def test_pandas(need):
    need(glob.glob("/usr/lib/python3/dist-packages/pandas"), "pandas is missing: install the Debian package python3-pandas")
    good(python("import pandas as pd; d = pd.DataFrame({'a': [1, 2, 2], 'b': [1., 2., 3.]}); print(d.groupby('a').b.sum().tolist())",
                "--time-limit", "60s"), "[1.0, 5.0]\n")


def test_python_finds_itself(world):
    r = good(python("import sys, ssl, ctypes, locale, tempfile, uuid; print(sys.prefix, tempfile.gettempdir())"))
    assert r.out.startswith("/usr /")
    if world.full:
        good(python("import os, pwd, getpass; print(pwd.getpwuid(os.getuid()).pw_name, getpass.getuser())"), "sandbox sandbox\n")


# ---- other languages -----------------------------------------------------------------------------------

def test_node(program):
    node = program("node", "nodejs")
    code = """
const { Worker } = require('worker_threads'); const cp = require('child_process'); const fs = require('fs'); const os = require('os');
fs.writeFileSync(os.tmpdir() + '/f', 'x');
const out = cp.execSync('echo child').toString().trim();
new Worker('require("worker_threads").parentPort.postMessage(6*7)', { eval: true }).on('message', v => console.log(out, v));
"""
    good(run("--time-limit", "60s", "--memory-limit", "1G", "--", node, "-e", code), "child 42\n")


def test_node_server(program, full):
    node = program("node", "nodejs")
    code = """
const http = require('http');
const s = http.createServer((q, r) => r.end('served')).listen(0, '127.0.0.1', () =>
  http.get({ port: s.address().port, host: '127.0.0.1' }, r => r.on('data', d => { console.log('' + d); s.close(); process.exit(0); })));
"""
    good(run("--time-limit", "60s", "--memory-limit", "1G", "--", node, "-e", code), "served\n")


def test_gcc_compile_and_run(program):
    program("gcc", "gcc")
    source = b'#include <stdio.h>\n#include <math.h>\nint main(int c, char **v) { (void) v; printf("%.3f\\n", sqrt(c + 1)); }\n'
    r = run("--time-limit", "60s", "--", "/bin/sh", "-c", 'cd "$TMPDIR" && cat > x.c && gcc -O2 -o x x.c -lm && ./x', stdin=source)
    good(r, "1.414\n")


def test_gxx_and_make(program):
    program("g++", "g++")
    program("make", "make")
    r = run("--time-limit", "60s", "--", "/bin/sh", "-c",
            'cd "$TMPDIR" && printf "#include <thread>\\n#include <iostream>\\nint main(){int x=0;std::thread t([&]{x=7;});t.join();'
            'std::cout<<x<<std::endl;}" > x.cc && printf "x: x.cc\\n\\tg++ -pthread -o x x.cc\\n" > Makefile && make -s -j2 && ./x')
    good(r, "7\n")


JAVA = """
import java.util.concurrent.*;
public class Main {
    public static void main(String[] a) throws Exception {
        ExecutorService e = Executors.newFixedThreadPool(4);
        Future<Integer> f = e.submit(() -> 6 * 7);
        Process p = new ProcessBuilder("/bin/echo", "child").start();
        System.out.println(new String(p.getInputStream().readAllBytes()).trim() + " " + f.get());
        e.shutdown();
    }
}
"""


def test_java(program, shared):
    program("java", "default-jdk")
    (shared / "Main.java").write_text(JAVA)
    r = run("--time-limit", "60s", "--memory-limit", "1G", "--file", f"Main.java={shared}/Main.java", "--", "java", "Main.java")
    good(r, "child 42\n")


def test_java_with_the_default_limits(program, shared):
    program("java", "default-jdk")
    (shared / "Main.java").write_text(JAVA)
    good(run("--file", f"Main.java={shared}/Main.java", "--", "java", "Main.java"), "child 42\n")


def test_git(program):
    program("git", "git")
    r = run("--time-limit", "30s", "--", "/bin/sh", "-ec",
            'cd "$TMPDIR"; git init -q r; cd r; git config user.email a@b; git config user.name n; echo 1 > f; git add f; git commit -qm one;'
            " git checkout -qb b; echo 2 > f; git commit -qam two; git log --oneline | wc -l; git diff HEAD~1 --stat | tail -1; git clone -q . ../c;"
            " cat ../c/f; git gc -q")
    assert good(r).out.split()[0] == "2" and r.out.endswith("2\n")


def test_perl(program):
    program("perl", "perl")
    good(run("--", "perl", "-e", 'my $x = `echo sub`; my $p = fork // die; if (!$p) { exit 3 } waitpid $p, 0; print $? >> 8, " $x"'), "3 sub\n")


def test_bash_pipelines():
    r = run("--", "/bin/bash", "-c", "set -o pipefail; seq 1000 | grep 7 | sort -rn | head -3 | paste -sd,; diff <(echo a) <(echo a) && echo same;"
            " coproc cat; echo hi >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x; (sleep 0.1; echo bg) & wait $!; trap 'echo bye' EXIT")
    good(r, "997,987,979\nsame\nhi\nbg\nbye\n")


def test_a_pipe_that_closes_early():
    """SIGPIPE has its default action: a writer into a closed pipe dies of it, silently."""
    r = run("--time-limit", "10s", "--", "/bin/bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    assert (r.out, r.err) == ("y\n141\n", ""), str(r)


@pytest.mark.parametrize("name,package,args,out", [
    ("ruby", "ruby", ["-e", "puts `echo hi`; puts Thread.new { 5 }.value"], "hi\n5\n"),
    ("lua5.4", "lua5.4", ["-e", "print(6*7)"], "42\n"),
    ("php", "php-cli", ["-r", "echo 6*7;"], "42"),
    ("awk", "mawk", ["BEGIN { print 6*7 }"], "42\n"),
    ("bc", "bc", ["-l"], "42\n"),
    ("Rscript", "r-base-core", ["-e", "cat(6*7)"], "42"),
])
def test_other_languages(name, package, args, out):
    import shutil
    if not shutil.which(name, path="/usr/local/bin:/usr/bin:/bin"):
        pytest.skip(f"{name} is missing: install the Debian package {package}")
    good(run("--time-limit", "30s", "--", name, *args, stdin=b"6*7\n"), out)


def test_go(shared):
    import shutil
    if not shutil.which("go", path="/usr/local/bin:/usr/bin:/bin"):
        pytest.skip("go is missing: install the Debian package golang-go")
    (shared / "main.go").write_text('package main\nimport "fmt"\nfunc main() { c := make(chan int); go func() { c <- 42 }(); fmt.Println(<-c) }\n')
    r = run("--time-limit", "120s", "--memory-limit", "2G", "--disk-limit", "1G", "--file",
            f"main.go={shared}/main.go", "--", "go", "run", "main.go")
    good(r, "42\n")


# ---- sizes -------------------------------------------------------------------------------------------

def test_static_binary():
    good(guest("hello", "static"), "hello: static\n")


def test_argument_list_of_a_mebibyte():
    words = ["x" * 1000 + str(i) for i in range(1060)]
    r = good(guest("args", *words))
    assert int(r.get("bytes")) == sum(len(w) + 1 for w in words) > 1 << 20


def test_one_long_argument():
    assert good(guest("args", "y" * 131000)).get("bytes") == "131001"


def test_empty_and_odd_arguments():
    r = good(run("--", "/usr/bin/printf", "<%s>", "", " ", "a\nb", "\\", "$HOME", "é", "*", "-n"))
    assert r.out == "<>< ><a\nb><\\><$HOME><é><*><-n>"


def test_hundred_thousand_lines():
    r = good(run("--", "/usr/bin/seq", "100000"))
    assert r.out.splitlines() == [str(i) for i in range(1, 100001)]


def test_big_stdin_comes_back(shared):
    data = os.urandom(4 << 20)
    r = good(run("--", "/bin/cat", stdin=data))
    assert r.stream("stdout") == data


def test_many_files_and_long_paths(full):
    good(run("--time-limit", "20s", "--", "/bin/sh", "-ec",
             "cd /tmp; for i in $(seq 500); do echo $i > f$i; done; ls | wc -l; mkdir -p $(printf 'd%.0s/' $(seq 200)); rm -rf d; ls | wc -l"),
         "500\n500\n")


def test_locale_and_time():
    r = good(run("--", "/bin/sh", "-c", "date +%Y; date -u +%z; locale 2>/dev/null | head -1"))
    assert r.out.startswith("20") and "+0000" in r.out


def test_tools_of_every_day():
    r = run("--time-limit", "20s", "--", "/bin/sh", "-ec",
            'cd "$TMPDIR"; echo hello > a; gzip -k a; tar cf t.tar a a.gz; tar tf t.tar | wc -l; sha256sum a | cut -c1-8; find . -type f | wc -l;'
            " sed s/h/j/ a; cp -a a b; cmp a b; ln -s a l; readlink l; mkfifo p; (echo fifo > p &) ; cat p; stat -c %s a; touch -d 2001-01-01 a;"
            " date -r a +%Y; xargs -n1 -P4 echo < a; timeout 5 true; nohup true 2>/dev/null; env -i /bin/true; id -u > /dev/null; ps > /dev/null || true")
    assert good(r).out == "2\n5891b5b5\n3\njello\na\nfifo\n6\n2001\nhello\n", str(r)
