"""I/O errors: what every call returns and which files are left is what the kernel says for the same failing request.

The kernel's disk is the lab's one-file FUSE file system, which fails the n-th write or flush that reaches it.
"""

import os

from _common import Failed, Suite, fsglass, lab_run, load, need_kernel
from oplog import LAZY

# A file of two blocks that is open twice, a second file at the end.
SCRIPT = """create a
open 0 a rw
open 1 a rw
pwrite @0 0 5000 1
fsync @0
fsync @0
fsync @1
fsync @1
open 2 a rw
fsync @2
sync
sync
create b
"""
MKFS = "-b 4096 -I 256 -E " + LAZY


def agree(path, mount, own, theirs):
    """Both run the script; `theirs` counts as the kernel's device sees it."""
    need_kernel()
    script = os.path.join(path, "faults.ops")
    with open(script, "w", encoding="utf-8") as file:
        file.write(SCRIPT)
    words = ["--size", "16", "--mkfs-opts=" + MKFS, "--mount-opts=" + mount]
    truth, result = os.path.join(path, "truth.json"), os.path.join(path, "own.json")
    lab_run("oplog", "replay", script, "--image", os.path.join(path, "kernel.img"), "--fault", theirs, "--out", truth, *words, ok=(0, 1))
    fsglass("ops", script, "--image", os.path.join(path, "own.img"), "--fault", own, "--out", result, *words, ok=(0, 1))
    truth, result = load(truth), load(result)
    lines = SCRIPT.splitlines()
    for kernel, here in zip(truth["ops"], result["ops"]):
        if kernel["err"] != here["err"]:
            line = lines[kernel["line"] - 1]
            raise Failed("%s gives %s, the kernel says %s" % (line, here["err"], kernel["err"]))
    if sorted(truth["state"]) != sorted(result["state"]):
        raise Failed("left are %s, the kernel leaves %s" % (sorted(result["state"]), sorted(truth["state"])))


if __name__ == "__main__":
    suite = Suite()
    for mount, faults in [
        ("data=ordered", ["write@%d" % n for n in range(2, 9)] + ["write@%d+" % n for n in range(2, 7)]),
        ("data=ordered,data_err=abort", ["write@2", "write@3"]),
        ("data=journal", ["write@%d" % n for n in range(2, 8)]),
        ("data=ordered,errors=remount-ro", ["write@4", "write@6"]),
    ]:
        for fault in faults:
            suite.add("%s %s" % (mount, fault), agree, mount, fault, fault)
    # Attaching the kernel's loop device flushes once more.
    for n in range(2, 7):
        suite.add("data=ordered flush@%d" % n, agree, "data=ordered", "flush@%d" % n, "flush@%d" % (n + 1))
    suite.run()
