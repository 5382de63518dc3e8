"""Operation scripts: what every call returns and the final tree are the kernel's.

The recorded scripts need no rights at all. Fresh ones, from the lab's fuzz and from `_scripts.py`, are played by the kernel too,
under more options.
"""

import glob
import os
import sys

import _scripts
from _common import FIRST_SEED, LAB, ORACLE, SEEDS, Failed, Suite
from _common import clean_by_e2fsck, fsglass, lab_run, load, need_kernel, status

OPLOG = os.path.join(ORACLE, "oplog")
# One hash seed for both, or directories would split differently.
SEED = "hash_seed=6b6c6162-0000-4000-8000-000000000002"
LAZY = SEED + ",lazy_itable_init=0,lazy_journal_init=0,nodiscard"

# Options of fresh scripts: name, mkfs, mount.
VARIANTS = [
    ("ordered", "-b 4096 -I 256 -E " + LAZY, None),
    ("journal", "-b 4096 -I 256 -E " + LAZY, "data=journal"),
    ("writeback", "-b 4096 -I 256 -E " + LAZY, "data=writeback"),
    ("nojournal", "-b 4096 -I 256 -O ^has_journal -E " + SEED + ",lazy_itable_init=0,nodiscard", None),
    ("1k", "-b 1024 -I 256 -E " + LAZY, None),
    ("2k-nodelalloc", "-b 2048 -I 256 -E " + LAZY, "nodelalloc"),
    ("inode128", "-b 4096 -I 128 -E " + LAZY, None),
    ("inline", "-b 4096 -I 256 -O inline_data -E " + LAZY, None),
    ("blockmap", "-b 1024 -I 256 -O ^extent,^64bit -E " + LAZY, None),
]

# Scripts of `_scripts.py` that have to agree in everything.
STRICT = ("names", "deep", "extents", "xattrs", "handles")


def differences(first, second):
    """`lab.py compare`."""
    code, output, _ = status(sys.executable, LAB, "compare", first, second)
    if code != 0:
        lines = output.strip().splitlines()
        raise Failed("%s\n    %s" % (lines[-1], "\n    ".join(lines[:8])))


def play(path, script, size, mkfs, mount):
    """Plays a script with fsglass: the image and the result."""
    image, result = os.path.join(path, "own.img"), os.path.join(path, "own.json")
    words = ["ops", script, "--image", image, "--fs", "ext4", "--size", size, "--out", result]
    words += ["--mkfs-opts=" + mkfs]
    if mount:
        words += ["--mount-opts=" + mount]
    fsglass(*words)
    return image, result


def recorded(path, truth_file):
    """A recording of the lab."""
    truth = load(truth_file)
    script = os.path.join(OPLOG, os.path.basename(truth_file).split(".")[0] + ".ops")
    image, result = play(path, script, truth["size_mib"], " ".join(truth["mkfs"]), truth["mount"])
    differences(truth_file, result)
    clean_by_e2fsck(image)


def recorded_image(path, truth_file):
    """The kernel mounts the image of a recording read-only and read-write and sees the recorded tree."""
    need_kernel()
    truth = load(truth_file)
    script = os.path.join(OPLOG, os.path.basename(truth_file).split(".")[0] + ".ops")
    image, _ = play(path, script, truth["size_mib"], " ".join(truth["mkfs"]), truth["mount"])
    seen_file = os.path.join(path, "seen.json")
    lab_run("verify", image, "--out", seen_file)
    same_tree(truth["state"], load(seen_file)["state"])


def same_tree(truth, seen):
    """Compares without blocks and, where a recording has none, without times."""
    for name in sorted(set(truth) | set(seen)):
        if name not in truth or name not in seen:
            raise Failed("%s: only in the %s" % (name, "kernel's tree" if name in truth else "image"))
        for key in truth[name]:
            if key != "blocks" and truth[name][key] != seen[name].get(key):
                raise Failed("%s: %s is %s, not %s" % (name, key, seen[name].get(key), truth[name][key]))


def fresh(path, seed, profile, mkfs, mount):
    """A script that nobody has seen: the kernel plays it, fsglass plays it."""
    need_kernel()
    script, truth = os.path.join(path, "fresh.ops"), os.path.join(path, "truth.json")
    if profile == "fuzz":
        lab_run("fuzz", "--seed", seed, "--count", 400, "--out", script)
    else:
        with open(script, "w", encoding="utf-8") as file:
            file.write("\n".join(_scripts.PROFILES[profile](_scripts.Rng(seed), 400)) + "\n")
    words = ["oplog", "replay", script, "--image", os.path.join(path, "kernel.img"), "--fs", "ext4", "--out", truth]
    words += ["--mkfs-opts=" + mkfs]
    if mount:
        words += ["--mount-opts=" + mount]
    lab_run(*words)
    image, result = play(path, script, 64, mkfs, mount)
    differences(truth, result)
    clean_by_e2fsck(image)
    lab_run("verify", image, "--out", os.path.join(path, "verify.json"))


if __name__ == "__main__":
    suite = Suite()
    for found in sorted(glob.glob(os.path.join(OPLOG, "*.json"))):
        name = os.path.basename(found)[:-5]
        if name.endswith("xfs"):
            continue
        suite.add("recorded " + name, recorded, found)
        suite.add("image of " + name, recorded_image, found)
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        for variant, mkfs_options, mount_options in VARIANTS:
            suite.add("fuzz seed %d %s" % (seed, variant), fresh, seed, "fuzz", mkfs_options, mount_options)
    # A quarter of the seeds: these take longer.
    for seed in range(FIRST_SEED, FIRST_SEED + max(1, SEEDS // 4)):
        for profile in STRICT:
            for variant, mkfs_options, mount_options in VARIANTS:
                name = "%s seed %d %s" % (profile, seed, variant)
                suite.add(name, fresh, seed, profile, mkfs_options, mount_options)
    suite.run()
