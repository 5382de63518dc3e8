"""Power cuts: the kernel, e2fsck and fsglass recover the same tree from the same disk, and no promise is broken.

`own`: the write log of the simulated device, cut at every flush, and at random records with part of the unflushed
writes dropped. `kernel`: the same for logs that the real kernel wrote.
"""

import json
import os
import random
import shlex

from _common import FIRST_SEED, ORACLE, SEEDS, Failed, Suite, fsglass, lab, lab_run, load, need_kernel, run
from _common import clean_by_e2fsck, tree_digest

LAZY = "-E lazy_itable_init=0,lazy_journal_init=0,nodiscard"
MODES = [
    ("ordered", "-b 4096 -I 256 " + LAZY, None),
    ("journal", "-b 4096 -I 256 " + LAZY, "data=journal"),
    ("writeback", "-b 4096 -I 256 " + LAZY, "data=writeback"),
    ("1k", "-b 1024 -I 256 " + LAZY, None),
]
CUTS_MAX = 14


def promise_script(seed):
    """Files with promises: blocks that do not overlap, some synced, between names that come and go."""
    rng = random.Random(seed)
    lines = ["mkdir d", "mkdir e"]
    for number in range(12):
        name = "%s/f%d" % (rng.choice("de"), number)
        lines += ["create " + name, "open h %s rw" % name]
        for block in rng.sample(range(64), rng.randint(1, 4)):
            lines.append("pwrite @h %d %d %d" % (block * 8192, rng.choice([100, 4096, 8192]), rng.randint(1, 99)))
            if rng.random() < 0.5:
                lines.append(rng.choice(["fsync @h", "fdatasync @h"]))
        lines.append("close h")
        if rng.random() < 0.3:
            lines += ["create x%d" % number, "rename x%d d/y%d" % (number, number)]
        if rng.random() < 0.2:
            lines.append("sync")
        if rng.random() < 0.3:
            lines += ["create gone", "pwrite gone 0 10000 5", "unlink gone"]
    return lines


def cuts(log, seed):
    """Where to cut: numbers of records with the seed of what is dropped (`None`: nothing is)."""
    records = [json.loads(line) for line in open(os.path.join(log, "log.jsonl"), encoding="utf-8")]
    mounted = next((r["n"] for r in records if r.get("mark") == "mounted"), 0)
    flushes = [r["n"] for r in records if r["op"] == "F" and r["n"] > mounted]
    rng = random.Random(seed)
    whole = rng.sample(flushes, min(len(flushes), CUTS_MAX // 2))
    torn = [rng.randint(mounted + 1, records[-1]["n"]) for _ in range(CUTS_MAX - len(whole))]
    return records, [(n, None) for n in sorted(whole)] + [(n, rng.randint(1, 10**6)) for n in sorted(torn)]


def promises(lines, records, cut):
    """Writes that a sync before the cut has promised: path to list of (offset, length, seed)."""
    done = [int(r["mark"].split()[1]) for r in records[:cut] if r.get("mark", "").startswith("done")]
    promised, written, handle = {}, {}, None
    for number, line in enumerate(lines, 1):
        word, *rest = line.split()
        if word == "open":
            handle = rest[1]
        elif word == "pwrite" and rest[0] == "@h":
            written.setdefault(handle, []).append(tuple(int(x) for x in rest[1:]))
        if number not in done:
            continue
        if word in ("fsync", "fdatasync"):
            promised[handle] = list(written[handle])
        elif word == "sync":
            promised.update({path: list(all_of) for path, all_of in written.items()})
    return promised


def check_promises(image, promised, where):
    """Every promised byte is there."""
    for path, pieces in promised.items():
        found = read_file(image, path)
        for offset, length, seed in pieces:
            if found[offset:offset + length] != lab.content(seed, offset, length):
                raise Failed("%s: broken promise: %s at %d" % (where, path, offset))


def read_file(image, path):
    """A file's bytes as `debugfs` sees them."""
    out = image + ".cat"
    run("debugfs", "-R", "dump /%s %s" % (path, out), image, ok=None)
    if not os.path.exists(out):
        return b""
    with open(out, "rb") as file:
        found = file.read()
    os.remove(out)
    return found


def judge(path, log, lines, cut, drop):
    """One power cut."""
    records = [json.loads(line) for line in open(os.path.join(log, "log.jsonl"), encoding="utf-8")]
    where = "cut at record %d%s" % (cut, "" if drop is None else ", unflushed dropped by seed %d" % drop)
    image, ours = os.path.join(path, "cut.img"), os.path.join(path, "recovered.img")
    words = ["wcut", log, "--at", cut, "--out", image]
    if drop is not None:
        words += ["--drop-unflushed", "--seed", drop]
    lab_run(*words)
    seen = os.path.join(path, "seen.json")
    try:
        lab_run("verify", "--crash", image, "--out", seen)
    except Failed as why:
        found = load(seen) if os.path.exists(seen) else {}
        shown = {k: found.get(k) for k in ("tool_fixes", "kernel_replay_fsck", "mount_with_replay") if found.get(k)}
        raise Failed("%s: %s\n    %s" % (where, why, json.dumps(shown)[:600])) from why
    fsglass("recover", image, "--out", ours)
    clean_after_totals(ours, where)
    after = os.path.join(path, "after.json")
    lab_run("verify", ours, "--out", after)
    kernel, own = load(seen)["state"], load(after)["state"]
    if tree_digest(kernel) != tree_digest(own):
        names = sorted(set(kernel) ^ set(own)) or [n for n in kernel if kernel[n] != own[n]]
        raise Failed("%s: fsglass recovers another tree: %s" % (where, names[:5]))
    check_promises(ours, promises(lines, records, cut), where)


def clean_after_totals(image, where):
    """Recovered by fsglass, e2fsck has nothing to say."""
    try:
        clean_by_e2fsck(image)
    except Failed as why:
        raise Failed("%s, recovered by fsglass: %s" % (where, why)) from why


def campaign(path, seed, mkfs, mount, who):
    """Writes a log, cuts it in many places."""
    need_kernel()
    if seed is None:
        with open(os.path.join(ORACLE, "wlog/fsync12.ops"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    else:
        lines = promise_script(seed)
    script, log = os.path.join(path, "script.ops"), os.path.join(path, "log")
    with open(script, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    size = 256 if seed is None else 64
    words = ["wlog", script, "--fs", "ext4", "--size", size, "--out", log, "--mkfs-opts=" + mkfs]
    if mount:
        words.append("--mount-opts=" + mount)
    if who == "own":
        fsglass(*words)
    else:
        lab_run(*words)
    _, places = cuts(log, seed or 1)
    failures = []
    for cut, drop in places:
        try:
            judge(path, log, lines, cut, drop)
        except Failed as why:
            failures.append(str(why))
    if failures:
        again, shown = shlex.join(map(str, words)), "\n  ".join(failures[:3])
        raise Failed("%d of %d cuts (%s)\n  %s" % (len(failures), len(places), again, shown))


if __name__ == "__main__":
    suite = Suite()
    for mode, mkfs_options, mount_options in MODES:
        for maker in ("own", "kernel"):
            suite.add("%s log of fsync12, %s" % (maker, mode), campaign, None, mkfs_options, mount_options, maker)
            for each in range(FIRST_SEED, FIRST_SEED + max(1, SEEDS // 2)):
                name = "%s log of promises, seed %d, %s" % (maker, each, mode)
                suite.add(name, campaign, each, mkfs_options, mount_options, maker)
    suite.run()
