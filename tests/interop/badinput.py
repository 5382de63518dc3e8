"""Bad input: one clear line, status 2, never a panic; damaged images: a named check, never a panic or a hang."""

import os
import random

from _common import FIRST_SEED, PROGRAM, Failed, Suite, fsglass, need_program, run, status

SECONDS = 60


def refused(path, words, part, text=None):
    """Status 2 and one line on stderr that names `part`."""
    if text is not None:
        with open(os.path.join(path, "input"), "w", encoding="utf-8") as file:
            file.write(text)
    code, out, err = status(PROGRAM, *[word.replace("PATH", path) for word in words], limit=SECONDS)
    lines = err.strip().splitlines()
    if code != 2 or len(lines) != 1 or part not in err or "panicked" in err:
        raise Failed("exit %d, wanted 2 and one line with '%s': %s" % (code, part, (err or out).strip()[:400]))


def script(line, part):
    """A mistake in an operation script."""
    words = ["ops", "PATH/input", "--image", "PATH/i.img", "--out", "PATH/o.json"]
    return words, part, "create a\n%s\n" % line


def good_image(path, mkfs="mke2fs"):
    """A small file system with some content, not made by fsglass."""
    image, folder = os.path.join(path, "good.img"), os.path.join(path, "tree")
    os.makedirs(os.path.join(folder, "a/b"))
    for number in range(40):
        with open(os.path.join(folder, "a/file%02d" % number), "wb") as file:
            file.write(bytes(number) * 3000)
    os.symlink("a/b", os.path.join(folder, "link"))
    run("truncate", "-s", "8M", image)
    run(need_program(mkfs), "-t", "ext4", "-q", "-F", "-d", folder, image)
    return image


COMMANDS = [
    ["fsck", "IMG"], ["ls", "IMG", "/a"], ["cat", "IMG", "/a/file20"], ["recover", "IMG"],
    ["dump", "IMG", "super"], ["dump", "IMG", "inode", "12"], ["dump", "IMG", "journal"],
    ["dump", "IMG", "group", "0"], ["dump", "IMG", "path", "/a"],
]


def survive(image, what):
    """Every reading command ends by itself with a status of the contract."""
    for command in COMMANDS:
        words = [word.replace("IMG", image) for word in command]
        code, out, err = status(PROGRAM, *words, limit=SECONDS)
        if code not in (0, 1, 2) or "panicked" in out + err:
            raise Failed("%s: %s: exit %d: %s" % (what, " ".join(command), code, err.strip()[-400:]))


def truncated(path):
    """An image cut at every kind of place."""
    with open(good_image(path), "rb") as file:
        whole = file.read()
    for length in (0, 1, 1023, 1024, 1500, 2047, 2048, 4096, 5000, 65536, 1 << 20, len(whole) // 2, len(whole) - 1):
        image = os.path.join(path, "cut.img")
        with open(image, "wb") as file:
            file.write(whole[:length])
        survive(image, "first %d bytes" % length)


def noise(path, seed):
    """Random bytes, alone and over metadata."""
    rng = random.Random(seed)
    image = os.path.join(path, "noise.img")
    with open(image, "wb") as file:
        file.write(rng.randbytes(1 << 20))
    survive(image, "noise of seed %d" % seed)
    with open(good_image(path), "rb") as file:
        whole = bytearray(file.read())
    for _ in range(30):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 4, 64])):
            at = rng.choice([rng.randrange(1024, 2048), rng.randrange(4096, 1 << 18), rng.randrange(len(whole))])
            damaged[at] = rng.randrange(256)
        with open(image, "wb") as file:
            file.write(damaged)
        survive(image, "seed %d" % seed)


SCRIPT_MISTAKES = [
    ("dance x", "dance"), ("pwrite a 0", "line 2"), ("pwrite a x 5 1", "OFFSET"), ("open h a flying", "flying"),
    ("chmod a 9", "9"), ("fallocate a maybe 0 1", "maybe"),
]
JOB_MISTAKES = [
    ("[j]\nrw=sideways\n", "sideways"), ("[j]\nrw=write\nflavour=1\n", "flavour"), ("[j]\nbs=x\n", "bs"),
    ("rw=write\n", "fio job file"), ("[j\nrw=write\n", "line 1"), ("[j]\nrw=write\nioengine=rdma\n", "rdma"),
]


def help_works(path, command):
    """`--help` of every command."""
    del path
    output = fsglass(command, "--help")
    if command not in output:
        raise Failed("the help of %s does not name it: %s" % (command, output[:200]))


if __name__ == "__main__":
    suite = Suite()
    suite.add("no such command", refused, ["dance"], "dance")
    suite.add("no command", refused, [], "command")
    suite.add("missing image", refused, ["fsck", "PATH/none.img"], "none.img")
    suite.add("missing script", refused, ["ops", "PATH/none.ops", "--image", "PATH/i.img"], "none.ops")
    suite.add("unknown option", refused, ["fsck", "PATH/none.img", "--quick"], "--quick")
    suite.add("bad size", refused, ["mkfs", "PATH/i.img", "--size", "12parsec"], "12parsec")
    suite.add("no size", refused, ["mkfs", "PATH/i.img"], "--size")
    suite.add("too small", refused, ["mkfs", "PATH/i.img", "--size", "4k"], "4k")
    suite.add("too large", refused, ["mkfs", "PATH/i.img", "--size", "32T"], "32T")
    for fault in ("write@0", "seek@1", "read@1:5"):
        words = ["ops", "PATH/input", "--image", "PATH/i.img", "--fault", fault]
        suite.add("fault " + fault, refused, words, fault, "create a\n")
    explore = ["crash", "PATH/input", "--explore"]
    good = "[workload]\nops = \"sync\"\n"
    suite.add("explore nothing", refused, explore + ["--limit", "0"], "--limit", good)
    suite.add("explore and image", refused, explore + ["--image", "PATH/i.img"], "--image", good)
    suite.add("explore past the log", refused, explore + ["--record", "1000000"], "records", good)
    suite.add("limit alone", refused, ["crash", "PATH/input", "--at", "1s", "--limit", "5"], "--explore", good)
    for line, part in SCRIPT_MISTAKES:
        suite.add("script: " + line, refused, *script(line, part))
    mount = ["ops", "PATH/input", "--image", "PATH/i.img", "--out", "PATH/o.json"]
    for option in ("data=maybe", "commit=x", "nonsense", "init_itable=x"):
        words = mount + ["--mount-opts=" + option]
        suite.add("mount option " + option, refused, words, option.split("=")[0], "create a\n")
    for text, part in JOB_MISTAKES:
        suite.add("fio job: " + text.replace("\n", " "), refused, ["run", "PATH/input"], part, text)
    suite.add("truncated images", truncated)
    for each in range(FIRST_SEED, FIRST_SEED + 4):
        suite.add("damaged images, seed %d" % each, noise, each)
    for each in "mkfs ops trace wlog run crash recover fsck dump ls cat".split():
        suite.add("help of " + each, help_works, each)
    suite.run()
