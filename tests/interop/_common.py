"""Shared by the interop tests: the command line under test, the kernel lab, named checks, one closing line.

Environment: FSGLASS_BIN (the native program), FSGLASS_SEEDS (how many fresh scripts), FSGLASS_SEED (the first of
them), KLAB_TMP (where images go; default /dev/shm where it is a tmpfs). Python's standard library only.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
LAB_FOLDER = os.path.join(os.path.dirname(HERE), "kernel-lab")
LAB = os.path.join(LAB_FOLDER, "lab.py")
ORACLE = os.path.join(LAB_FOLDER, "ground-truth")
PROGRAM = os.environ.get("FSGLASS_BIN") or os.path.join(HERE, "../../target/debug/fsglass")
SEEDS = int(os.environ.get("FSGLASS_SEEDS", "4"))
FIRST_SEED = int(os.environ.get("FSGLASS_SEED", "9000"))
LIMIT_S = 90
WORKERS = 2

sys.path.insert(0, LAB_FOLDER)
sys.dont_write_bytecode = True
os.environ["RUST_BACKTRACE"] = "0"
import lab  # noqa: E402  (the folder has to be on the path first)


class Failed(Exception):
    """A check that does not hold; its text says what and how to see it again."""


class Skipped(Exception):
    """A check that cannot run here."""


def run(*command, ok=(0,), limit=LIMIT_S):
    """Runs a program; its combined output. Any other exit status than `ok` is a failure."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit, errors="replace", check=False)
    output = done.stdout + done.stderr
    if ok is not None and done.returncode not in ok:
        tail = "\n".join(output.strip().splitlines()[-12:])
        raise Failed("exit %d: %s\n%s" % (done.returncode, shlex.join(words), tail))
    return output


def status(*command, limit=LIMIT_S):
    """Exit status, stdout, stderr."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=limit, errors="replace", check=False)
    return done.returncode, done.stdout, done.stderr


def fsglass(*words, **options):
    """The program under test."""
    return run(PROGRAM, *words, **options)


def lab_run(*words, **options):
    """The kernel lab."""
    return run(sys.executable, LAB, *words, **options)


def load(path):
    """A JSON file."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


_PROBE = []
_PROBE_LOCK = threading.Lock()


def need_kernel():
    """Skips the check where images cannot be mounted."""
    with _PROBE_LOCK:
        if not _PROBE:
            code, out, err = status(sys.executable, LAB, "probe")
            _PROBE.append((code, (out + err).strip()))
    code, text = _PROBE[0]
    if code != 0:
        raise Skipped(text)


def need_program(name):
    """Skips the check where a program is missing; where it is."""
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if not found:
        raise Skipped("no " + name)
    return found


# e2fsck's summary, and a proposal that it makes for the kernel's own images too.
EXPECTED = re.compile(r"^(Pass \d|e2fsck |Inode \d+ extent tree \(at level \d\) could be (shorter|narrower))|^\s*$")


def clean_by_e2fsck(image):
    """No message beyond the summary."""
    code, output, _ = status(need_program("e2fsck"), "-fn", image)
    lines = [line for line in output.splitlines() if not EXPECTED.match(line)]
    if code != 0 or len(lines) != 1:
        raise Failed("e2fsck -fn (exit %d): %s" % (code, "\n".join(lines[:12])))


@contextlib.contextmanager
def folder():
    """A work folder that is gone afterwards."""
    base = os.environ.get("KLAB_TMP") or ("/dev/shm" if os.path.ismount("/dev/shm") else None)
    path = tempfile.mkdtemp(prefix="fsglass-interop-", dir=base)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Suite:
    """Named checks, run two at a time."""

    def __init__(self):
        self.checks = []

    def add(self, name, check, *arguments):
        """`check(folder, *arguments)` raises where it does not hold."""
        self.checks.append((name, check, arguments))

    def run(self):
        """Runs what was added (or what the command line names a part of); ends the process."""
        only = sys.argv[1:]
        chosen = [c for c in self.checks if not only or any(word in c[0] for word in only)]
        if not os.path.exists(PROGRAM):
            print("FAILED: %s is missing (cargo build -p fsglass --features cli)" % PROGRAM)
            print("0 passed, 1 failed, 0 skipped")
            sys.exit(1)
        with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
            outcomes = list(pool.map(self._one, chosen))
        passed, failed, skipped = (sum(o == which for o in outcomes) for which in ("passed", "failed", "skipped"))
        print("%d passed, %d failed, %d skipped" % (passed, failed, skipped))
        sys.exit(1 if failed else 0)

    @staticmethod
    def _one(item):
        name, check, arguments = item
        try:
            with folder() as path:
                check(path, *arguments)
            return "passed"
        except Skipped as why:
            print("SKIP %s: %s" % (name, why), flush=True)
            return "skipped"
        except (Failed, subprocess.TimeoutExpired) as why:
            print("FAILED: %s: %s" % (name, why), flush=True)
        except Exception:  # a mistake in a check is a failure with its place
            print("FAILED: %s: %s" % (name, traceback.format_exc()), flush=True)
        return "failed"


# Space is compared by its own tests; a replay by the lab records no times.
UNTOLD = ("blocks", "atime_ns", "mtime_ns", "ctime_ns")


def tree_digest(state):
    """One hash over a lab state, without what depends on timing."""
    kept = {path: {k: v for k, v in entry.items() if k not in UNTOLD} for path, entry in state.items()}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
