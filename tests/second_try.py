"""pytest, and what failed once more, alone, when everything else is over.

usage: python3 -B tests/second_try.py [pytest arguments]

A busy machine can make one case in a thousand fail. A case that passes when it is run again counts as
passed and is named in a line `passed at the second try: ID`: visible, so that one that needs it often is
found. Many failures have another cause and are not tried again. The last line counts every case once, by
its worst outcome: N passed, N failed, N skipped in N s.

The same file is the plugin that takes down how each case ended (-p second_try).
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

REPORT, ONLY = "SECOND_TRY_REPORT", "SECOND_TRY_ONLY"
MOST = 12
RANK = {"skipped": 0, "passed": 1, "failed": 2}  # a case that is skipped passes its set-up and its end


# ---- the plugin ----------------------------------------------------------------------------------------

_outcomes = {}


def pytest_runtest_logreport(report):
    outcome = report.outcome
    if outcome == "passed" and report.when != "call":
        return
    if RANK[outcome] >= RANK.get(_outcomes.get(report.nodeid), -1):
        _outcomes[report.nodeid] = outcome


def pytest_collectreport(report):
    if report.failed:
        _outcomes["collecting " + report.nodeid] = "failed"


def pytest_collection_modifyitems(config, items):
    if ONLY in os.environ:
        wanted = set(json.loads(pathlib.Path(os.environ[ONLY]).read_text()))
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in wanted])
        items[:] = [i for i in items if i.nodeid in wanted]


def pytest_sessionfinish(session):
    if REPORT in os.environ:
        pathlib.Path(os.environ[REPORT]).write_text(json.dumps(_outcomes))


# ---- the command ---------------------------------------------------------------------------------------

def attempt(args, folder, only=None):
    """(outcomes by case, status); no outcomes when pytest did not come to its end."""
    report = pathlib.Path(folder) / "report"
    report.unlink(missing_ok=True)
    here = str(pathlib.Path(__file__).resolve().parent)
    env = dict(os.environ, **{REPORT: str(report)})
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [here, env.get("PYTHONPATH")]))
    if only:
        env[ONLY] = str(pathlib.Path(folder) / "only")
        pathlib.Path(env[ONLY]).write_text(json.dumps(only))
    sys.stdout.flush()
    status = subprocess.call([sys.executable, "-B", "-m", "pytest", "-p", "second_try", *args], env=env)
    return (json.loads(report.read_text()) if report.exists() else {}), status


def main(args):
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="second-try-") as folder:
        outcomes, status = attempt(args, folder)
        failed = [case for case, outcome in outcomes.items() if outcome == "failed"]
        if not outcomes or status not in (0, 1):
            return status or 1
        if 0 < len(failed) <= MOST:
            print(f"\n== once more: {len(failed)} that failed")
            if "CORDON" in os.environ:  # what the first try left is not the second one's
                subprocess.call([os.environ["CORDON"], "workspace", "gc"], stdout=subprocess.DEVNULL)
            again, _ = attempt(args, folder, failed)
            for case in failed:
                if again.get(case) == "passed":
                    outcomes[case] = "passed"
                    print(f"passed at the second try: {case}")
    count = {word: list(outcomes.values()).count(word) for word in ("passed", "failed", "skipped")}
    print(", ".join(f"{n} {word}" for word, n in count.items()), f"in {time.monotonic() - began:.2f}s")
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
