"""Submissions to one problem of our own, in every way they can go: read a and b, print their sum.

Each language has the same acts; the verdict each must get is in VERDICTS.
"""

VERDICTS = {
    "right": "AC", "wrong": "WA", "slow": "TLE", "leaking": "MLE", "crashing": "RE", "failing": "RE",
    "flooding": "OLE", "forking": "RE", "spaced": "PE", "broken": "CE", "asleep": "TLE",
}

SUFFIX = {"c": "c", "c++": "cpp", "java": "java", "go": "go", "rust": "rs", "javascript": "js", "python": "py"}
TOOL = {"c": ("gcc", "gcc"), "c++": ("g++", "g++"), "java": ("javac", "default-jdk-headless"),
        "go": ("go", "golang-go"), "rust": ("rustc", "rustc"), "javascript": ("node", "nodejs"),
        "python": ("python3", "python3")}

_C_HEAD = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(void) { long a, b; if (scanf("%ld %ld", &a, &b) != 2) return 9;
"""
_C = {
    "right": 'printf("%ld\\n", a + b); return 0; }',
    "wrong": 'printf("%ld\\n", a - b); return 0; }',
    "slow": 'for (volatile long i = 0;; i++) ; }',
    "asleep": "sleep(100); return 0; }",
    "leaking": "for (;;) { char *p = (char *)malloc(1 << 20); if (!p) abort(); memset(p, 1, 1 << 20); } }",
    "crashing": "*(volatile int *)8 = 1; return 0; }",
    "failing": 'printf("%ld\\n", a + b); return 3; }',
    "flooding": 'for (;;) puts("0123456789012345678901234567890123456789"); }',
    "forking": "for (int i = 0; i < 4000; i++) { int p = fork(); if (p < 0) abort(); if (p == 0) pause(); } return 0; }",
    "spaced": 'printf(" %ld  \\n\\n", a + b); return 0; }',
    "broken": "return nothing_like_this; }",
}

_JAVA_HEAD = """import java.util.*;
public class Main { public static void main(String[] args) throws Exception {
Scanner s = new Scanner(System.in); long a = s.nextLong(), b = s.nextLong();
"""
_JAVA = {
    "right": "System.out.println(a + b); } }",
    "wrong": "System.out.println(a - b); } }",
    "slow": "for (long i = 0; i >= 0; i = (i + 1) & 1023) ; } }",
    "asleep": "Thread.sleep(100000); } }",
    "leaking": "List<long[]> all = new ArrayList<>(); for (;;) all.add(new long[1 << 17]); } }",
    "crashing": "int[] x = new int[1]; x[(int) (a + b) + 5] = 1; } }",
    "failing": "System.out.println(a + b); System.exit(3); } }",
    "flooding": 'String l = "0123456789".repeat(100); for (;;) System.out.println(l); } }',
    "forking": 'for (int i = 0; i < 4000; i++) new ProcessBuilder("sleep", "100").start(); } }',
    "spaced": 'System.out.println(" " + (a + b)); } }',
    "broken": "return nothing; } }",
}

_GO_HEAD = """package main
import ("fmt"; "os"; "os/exec"; "time"; "strings")
var _ = os.Exit
var _ = exec.Command
var _ = time.Sleep
var _ = strings.Repeat
func main() { var a, b int; fmt.Scan(&a, &b)
"""
_GO = {
    "right": "fmt.Println(a + b) }",
    "wrong": "fmt.Println(a - b) }",
    "slow": "for { a++ } }",
    "asleep": "time.Sleep(100 * time.Second) }",
    "leaking": "var all [][]byte; for { p := make([]byte, 1<<20); for i := range p { p[i] = 1 }; all = append(all, p); "
               "if len(all) < 0 { fmt.Println(all) } } }",
    "crashing": "var p *int; fmt.Println(*p) }",
    "failing": "fmt.Println(a + b); os.Exit(3) }",
    "flooding": 'l := strings.Repeat("0123456789", 100); for { fmt.Println(l) } }',
    "forking": 'for i := 0; i < 4000; i++ { if err := exec.Command("sleep", "100").Start(); err != nil { panic(err) } } }',
    "spaced": 'fmt.Printf(" %d\\n", a+b) }',
    "broken": "return nothing }",
}

_RUST_HEAD = """use std::io::Read;
fn main() { let mut t = String::new(); std::io::stdin().read_to_string(&mut t).unwrap();
let v: Vec<i64> = t.split_whitespace().map(|x| x.parse().unwrap()).collect(); let (a, b) = (v[0], v[1]);
"""
_RUST = {
    "right": 'println!("{}", a + b); }',
    "wrong": 'println!("{}", a - b); }',
    "slow": "let mut i = a; loop { unsafe { std::ptr::write_volatile(&mut i, b) } } }",
    "asleep": "let _ = a + b; std::thread::sleep(std::time::Duration::from_secs(100)); }",
    "leaking": "let mut all: Vec<Vec<u8>> = Vec::new(); loop { all.push(vec![(a + b) as u8 | 1; 1 << 20]); "
               "if all.len() == usize::MAX { println!(\"{:?}\", all); } } }",
    "crashing": "let x = vec![1]; println!(\"{}\", x[(a + b + 100) as usize]); }",
    "failing": 'println!("{}", a + b); std::process::exit(3); }',
    "flooding": 'let l = "0123456789".repeat((a - a + b - b + 100) as usize); loop { println!("{}", l); } }',
    "forking": 'let _ = a + b; for _ in 0..4000 { std::process::Command::new("sleep").arg("100").spawn().unwrap(); } }',
    "spaced": 'println!(" {}", a + b); }',
    "broken": "let x: i64 = \"no\"; }",
}

_JS_HEAD = """const t = require('fs').readFileSync(0, 'utf8').trim().split(/\\s+/).map(Number); const [a, b] = t;
"""
_JS = {
    "right": "console.log(a + b)",
    "wrong": "console.log(a - b)",
    "slow": "for (;;) {}",
    "asleep": "setTimeout(() => {}, 100000)",
    "leaking": "const all = []; for (;;) all.push(Buffer.alloc(1 << 20, 1))",
    "crashing": "null.x",
    "failing": "console.log(a + b); process.exitCode = 3",
    "flooding": "const l = '0123456789'.repeat(1000) + '\\n'; for (;;) require('fs').writeSync(1, l)",
    "forking": "for (let i = 0; i < 500; i++) require('child_process').spawn('sleep', ['100'])",
    "spaced": "console.log(' ' + (a + b))",
    "broken": "let x = ;",
}

_PY_HEAD = "a, b = map(int, input().split())\n"
_PY = {
    "right": "print(a + b)",
    "wrong": "print(a - b)",
    "slow": "while True: pass",
    "asleep": "import time; time.sleep(100)",
    "leaking": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "crashing": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "failing": "print(a + b); raise SystemExit(3)",
    "flooding": "while True: print('0123456789' * 100)",
    "forking": "import os, time\nfor i in range(4000):\n    if os.fork() == 0: time.sleep(100)",
    "spaced": "print('', a + b)",
    "broken": "def f(:",
}


def sources():
    """(language, act) -> source text."""
    found = {}
    for language, head, acts in (("c", _C_HEAD, _C), ("c++", _C_HEAD, _C), ("java", _JAVA_HEAD, _JAVA),
                                 ("go", _GO_HEAD, _GO), ("rust", _RUST_HEAD, _RUST),
                                 ("javascript", _JS_HEAD, _JS), ("python", _PY_HEAD, _PY)):
        for act, text in acts.items():
            found[language, act] = head + text + "\n"
    return found


# Interactive: a number comes, its double is the answer; then they wait for more. FLUSH is there or not.
TALKS = {
    "c": ("#include <stdio.h>\nint main(void) { int s; if (scanf(\"%d\", &s) != 1) return 9; printf(\"%d\\n\", 2 * s); FLUSH;\n"
          "return scanf(\"%d\", &s) == 1; }\n", "fflush(stdout)", "0"),
    "c++": ("#include <iostream>\nint main() { std::ios::sync_with_stdio(false); std::cin.tie(nullptr); int s; std::cin >> s;\n"
            "std::cout << 2 * s << \"\\n\"; FLUSH; std::cin >> s; }\n", "std::cout.flush()", "0"),
    "java": ("import java.io.*;\npublic class Main { public static void main(String[] args) throws Exception {\n"
             "BufferedReader r = new BufferedReader(new InputStreamReader(System.in)); PrintWriter w = new PrintWriter(System.out);\n"
             "w.println(2 * Integer.parseInt(r.readLine().trim())); FLUSH; r.readLine(); w.close(); } }\n", "w.flush()", ""),
    "go": ("package main\nimport (\"bufio\"; \"fmt\"; \"os\")\nfunc main() { w := bufio.NewWriter(os.Stdout); defer w.Flush(); var s int\n"
           "fmt.Scan(&s); fmt.Fprintln(w, 2 * s); FLUSH; fmt.Scan(&s) }\n", "w.Flush()", ""),
    "rust": ("use std::io::{BufRead, Write};\nfn main() { let mut w = std::io::BufWriter::new(std::io::stdout()); let mut t = String::new();\n"
             "let i = std::io::stdin(); i.lock().read_line(&mut t).unwrap(); let s: i64 = t.trim().parse().unwrap();\n"
             "writeln!(w, \"{}\", 2 * s).unwrap(); FLUSH; i.lock().read_line(&mut t).unwrap(); }\n", "w.flush().unwrap()", "()"),
    "javascript": ("const r = require('readline').createInterface({input: process.stdin}); let out = '', first = true;\n"
                   "const flush = () => { process.stdout.write(out); out = '' };\nr.on('line', l => { if (first) { first = false; "
                   "out += 2 * l + '\\n'; FLUSH } }); r.on('close', flush)\n", "flush()", ""),
}
