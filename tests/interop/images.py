"""Images made and filled by Linux: fsglass reads the same tree, finds nothing wrong, writes on, and gives them back."""

import json
import os
import shutil
import subprocess

from _common import FIRST_SEED, PROGRAM, Failed, Suite, clean_by_e2fsck, fsglass, lab_run, load, need_kernel
from _common import need_program, run, status, tree_digest
from oplog import differences

LAZY = "-E lazy_itable_init=0,lazy_journal_init=0,nodiscard"
# mkfs options of images that fsglass reads and writes.
SETS = [
    "-b 4096",
    "-b 1024",
    "-b 2048 -I 128",
    "-I 512",
    "-O ^has_journal",
    "-O ^metadata_csum",
    "-O ^metadata_csum,uninit_bg",
    "-O ^64bit",
    "-O ^64bit,^metadata_csum",
    "-O ^flex_bg",
    "-O ^resize_inode",
    "-O meta_bg,^resize_inode",
    "-O sparse_super2",
    "-O ^dir_index",
    "-O ^huge_file,^dir_nlink,^extra_isize",
    "-O orphan_file",
]


def fill(path, mkfs, seed):
    """The kernel plays a script on a new image."""
    image, script, truth = (os.path.join(path, name) for name in ("linux.img", "first.ops", "first.json"))
    lab_run("fuzz", "--seed", seed, "--count", 250, "--out", script)
    lab_run("oplog", "replay", script, "--image", image, "--fs", "ext4", "--out", truth, "--mkfs-opts=" + mkfs)
    return image, truth


def filled(path, mkfs, seed):
    """Read, checked, written on by both, equal."""
    need_kernel()
    image, truth = fill(path, "%s %s" % (mkfs, LAZY), seed)
    fsglass("fsck", image)
    ours = os.path.join(path, "own.img")
    shutil.copyfile(image, ours)
    nothing, seen = os.path.join(path, "nothing.ops"), os.path.join(path, "seen.json")
    with open(nothing, "w", encoding="utf-8") as file:
        file.write("stat /\n")
    fsglass("ops", nothing, "--image", ours, "--no-mkfs", "--out", seen)
    if tree_digest(load(truth)["state"]) != tree_digest(load(seen)["state"]):
        raise Failed("fsglass sees another tree than the kernel")
    script, again, own = (os.path.join(path, name) for name in ("second.ops", "second.json", "own.json"))
    lab_run("fuzz", "--seed", seed + 500, "--count", 250, "--out", script)
    lab_run("oplog", "replay", script, "--image", image, "--fs", "ext4", "--no-mkfs", "--out", again)
    fsglass("ops", script, "--image", ours, "--no-mkfs", "--out", own)
    leave_out_the_times_of_the_first_script(again, own)
    differences(again, own)
    clean_by_e2fsck(ours)
    lab_run("verify", ours, "--out", os.path.join(path, "verify.json"))


def leave_out_the_times_of_the_first_script(truth, own):
    """The lab's window of times that are not compared reaches back to the first script; fsglass's clock does not."""
    result, theirs = load(own), load(truth)["state"]
    for name, entry in result["state"].items():
        for key in ("atime_ns", "mtime_ns"):
            if key not in theirs.get(name, {}):
                entry.pop(key, None)
    with open(own, "w", encoding="utf-8") as file:
        json.dump(result, file)


def files(path, mkfs):
    """`ls` and `cat` of a tree that mke2fs copied in; needs no rights."""
    folder, image = os.path.join(path, "tree"), os.path.join(path, "d.img")
    os.makedirs(os.path.join(folder, "deep/er"))
    contents = {"deep/er/%d" % n: os.urandom(n * 5000 + n) for n in range(20)}
    for name, content in contents.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(content)
    run("truncate", "-s", "16M", image)
    run(need_program("mke2fs"), "-t", "ext4", "-q", "-F", *mkfs.split(), "-d", folder, image)
    listing = fsglass("ls", image, "/deep/er")
    for name in contents:
        if os.path.basename(name) not in listing.split():
            raise Failed("ls does not show %s: %s" % (name, listing[:200]))
    for name, content in contents.items():
        out = os.path.join(path, "out")
        with open(out, "wb") as file:
            subprocess.run([PROGRAM, "cat", image, "/" + name], stdout=file, check=True, timeout=60)
        with open(out, "rb") as file:
            if file.read() != content:
                raise Failed("cat of %s gives other bytes" % name)
    fsglass("fsck", image)


def refused(path, mkfs, feature):
    """A feature that is not supported is named, and nothing is written."""
    image = os.path.join(path, "r.img")
    run("truncate", "-s", "64M", image)
    run(need_program("mke2fs"), "-t", "ext4", "-q", "-F", *mkfs.split(), image)
    with open(image, "rb") as file:
        before = file.read()
    script = os.path.join(path, "s.ops")
    with open(script, "w", encoding="utf-8") as file:
        file.write("create a\n")
    code, _, err = status(PROGRAM, "ops", script, "--image", image, "--no-mkfs", "--out", os.path.join(path, "o.json"))
    if code not in (1, 2) or feature not in err:
        raise Failed("exit %d, wanted a refusal that names %s: %s" % (code, feature, err.strip()))
    with open(image, "rb") as file:
        if file.read() != before:
            raise Failed("refused, but written")


if __name__ == "__main__":
    suite = Suite()
    for each in SETS:
        suite.add("filled by Linux: " + each, filled, each, FIRST_SEED + 77)
        suite.add("files of mke2fs -d: " + each, files, each)
    for options, name in [("-O encrypt", "encrypt"), ("-O verity", "verity"), ("-O casefold", "casefold")]:
        suite.add("refused: " + name, refused, options, name)
    suite.run()
