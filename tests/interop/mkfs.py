"""File systems made by fsglass: e2fsck is content, dumpe2fs shows what it shows of mke2fs's, the kernel mounts them."""

import os
import re
import shlex

from _common import Failed, Suite, clean_by_e2fsck, fsglass, lab_run, need_kernel, need_program, run, status
from _common import PROGRAM

UUID = "6b6c6162-0000-4000-8000-000000000001"
HASH_SEED = "6b6c6162-0000-4000-8000-000000000002"
FIXED = "-U %s -E hash_seed=%s" % (UUID, HASH_SEED)

SIZES = ["1M", "2M", "4M", "7M", "16M", "64M", "129M", "500M", "512M", "1G", "3G", "5G", "149G", "1T", "16T"]

# Each on an image of the given size.
OPTIONS = [
    ("64M", "-b 1024"),
    ("64M", "-b 2048"),
    ("64M", "-b 4096"),
    ("300M", "-b 1024"),
    ("1G", "-b 1024"),
    ("64M", "-I 128"),
    ("64M", "-I 512"),
    ("64M", "-I 1024"),
    ("64M", "-i 4096"),
    ("64M", "-i 65536"),
    ("64M", "-N 1000"),
    ("64M", "-N 50000"),
    ("1G", "-J size=4"),
    ("1G", "-J size=128"),
    ("2G", "-J size=1024"),
    ("64M", "-m 0"),
    ("64M", "-m 12.5"),
    ("64M", "-L a-label"),
    ("64M", "-O ^has_journal"),
    ("64M", "-O ^metadata_csum"),
    ("64M", "-O ^metadata_csum,uninit_bg"),
    ("64M", "-O ^64bit"),
    ("64M", "-O ^64bit,^metadata_csum"),
    ("1G", "-O ^flex_bg"),
    ("1G", "-O ^resize_inode"),
    ("1G", "-O meta_bg,^resize_inode"),
    ("1G", "-O sparse_super2"),
    ("1G", "-O ^sparse_super"),
    ("64M", "-O ^extent,^64bit"),
    ("64M", "-O ^dir_index"),
    ("64M", "-O inline_data"),
    ("64M", "-O ^huge_file"),
    ("64M", "-O ^dir_nlink"),
    ("64M", "-O ^extra_isize"),
    ("64M", "-O ^large_file"),
    ("64M", "-O ea_inode"),
    ("64M", "-O large_dir"),
    ("64M", "-O fast_commit"),
    ("64M", "-O project"),
    ("64M", "-O orphan_file"),
    ("1G", "-E lazy_itable_init=0"),
    ("1G", "-E lazy_itable_init=1,lazy_journal_init=1"),
    ("64M", "-E lazy_itable_init=0,lazy_journal_init=0"),
    ("1G", "-g 16384"),
    ("1G", "-G 4"),
    ("1G", "-E packed_meta_blocks=1"),
    ("1G", "-E stride=16,stripe_width=64"),
    ("64M", "-E resize=1G"),
    ("64M", "-E root_owner=1000:1000"),
]

# Mistakes and what is not supported, with the word that the refusal has to name.
MISTAKES = [
    ("-b 3000", "3000"),
    ("-b 512", "512"),
    ("-I 100", "100"),
    ("-O nonsense", "nonsense"),
    ("-Q", "-Q"),
    ("-N 99999999999", "99999999999"),
    ("-m 80", "80"),
    ("-E nonsense=1", "nonsense"),
    ("-U xyz", "xyz"),
    ("-O quota", "quota"),
    ("-O casefold", "casefold"),
]

# These lines differ between two runs of mke2fs itself, or follow from ones that do.
MOVING = re.compile(
    r"^(Filesystem created|Last write time|Last checked|Last mount time|Lifetime writes|Checksum|"
    r"Journal checksum|Journal start|Default directory hash seed)|^Group \d+.*csum 0x"
)


def description(image):
    """What dumpe2fs says, without what moves."""
    output = run(need_program("dumpe2fs"), image)
    lines = []
    for line in output.splitlines():
        line = re.sub(r" csum 0x[0-9a-f]+", "", line)
        line = re.sub(r", csum 0x[0-9a-f]+", "", line)
        if line.startswith("dumpe2fs ") or MOVING.match(line):
            continue
        lines.append(line.rstrip())
    return lines


def compare(path, size, options):
    """The same options for both; the same description, or the same refusal."""
    ours, theirs = os.path.join(path, "own.img"), os.path.join(path, "mke2fs.img")
    words = shlex.split(options + " " + FIXED) if "-E" not in options else merge(options)
    run("truncate", "-s", size, theirs)
    code, _, refusal = status(need_program("mke2fs"), "-t", "ext4", "-q", "-F", *words, theirs)
    refuses = code != 0
    code, out, err = status(PROGRAM, "mkfs", ours, "--size", size, "--mkfs-opts=" + " ".join(words))
    if refuses:
        if code != 2:
            raise Failed("exit %d, but mke2fs refuses it: %s" % (code, refusal.strip().splitlines()[-1]))
        return
    if code != 0:
        raise Failed("exit %d: %s%s" % (code, out, err))
    clean_by_e2fsck(ours)
    want, have = description(theirs), description(ours)
    if want != have:
        differing = [pair for pair in zip(want, have) if pair[0] != pair[1]][:6]
        shown = "\n    ".join("mke2fs '%s', fsglass '%s'" % pair for pair in differing)
        raise Failed("dumpe2fs differs (%d, %d lines)\n    %s" % (len(want), len(have), shown))


def merge(options):
    """Only the last -E counts for mke2fs, so the fixed seed goes into the given one."""
    words = shlex.split(options)
    at = words.index("-E")
    words[at + 1] += ",hash_seed=" + HASH_SEED
    return words + ["-U", UUID]


def mounts(path, size, options):
    """The kernel mounts it read-only and read-write, and e2fsck is content before and after."""
    need_kernel()
    image = os.path.join(path, "own.img")
    fsglass("mkfs", image, "--size", size, "--mkfs-opts=" + options)
    lab_run("verify", image, "--out", os.path.join(path, "verify.json"))


def refused(path, options, part):
    """An impossible option is named, in one line, with status 2, and no image is left."""
    image = os.path.join(path, "own.img")
    code, _, err = status(PROGRAM, "mkfs", image, "--size", "64M", "--mkfs-opts=" + options)
    if code != 2 or part not in err or len(err.strip().splitlines()) != 1:
        raise Failed("'%s': exit %d: %s" % (options, code, err.strip()))
    if os.path.exists(image):
        raise Failed("'%s' was refused, but an image was written" % options)


if __name__ == "__main__":
    suite = Suite()
    for each in SIZES:
        suite.add("size " + each, compare, each, "-b 4096" if each != "1M" else "")
    for size_and_options in OPTIONS:
        suite.add("options %s on %s" % (size_and_options[1], size_and_options[0]), compare, *size_and_options)
    for each in ["", "-b 1024", "-I 128", "-O ^has_journal", "-O ^extent,^64bit", "-O ^metadata_csum"]:
        suite.add("the kernel mounts '%s'" % each, mounts, "64M", each)
    for each, word in MISTAKES:
        suite.add("'%s' is refused" % each, refused, each, word)
    suite.run()
