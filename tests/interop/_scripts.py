"""Operation scripts that reach what the lab's fuzz does not: thousands of names, deep trees, files of many extents, a
full disk, attributes of all sizes, open handles, links and nodes. Reproducible: profile, seed and count make the script.

On their own: `scripts.py PROFILE SEED COUNT` prints one.
"""

import sys

MASK = (1 << 64) - 1


class Rng:
    """SplitMix64 (kernel-lab's README)."""

    def __init__(self, seed):
        self.state = seed & MASK

    def next(self):
        x = self.state
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        x = (x + 0x9E3779B97F4A7C15) & MASK
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
        return x ^ (x >> 31)

    def below(self, n):
        return self.next() % n

    def pick(self, items):
        return items[self.below(len(items))]


def name_of(r, n):
    kind = r.below(8)
    if kind == 0:
        return "n%d" % n + "x" * (1 + r.below(248))
    if kind == 1:
        return "%%C3%%A4%d%%20%%25" % n
    if kind == 2:
        return ".h%d" % n
    return "file%05d" % n


def names(r, count):
    """Few directories with very many names that come and go."""
    dirs, live, out = ["d0", "d1", "d2"], [], ["mkdir d0", "mkdir d1", "mkdir d2 1777"]
    for i in range(count):
        k, d = r.below(100), r.pick(dirs)
        if k < 52 or not live:
            p = d + "/" + name_of(r, r.below(count))
            out.append(r.pick(["create %s", "create %s", "create %s 600", "mkdir %s", "symlink abc %s"]) % p)
            live.append(p)
        elif k < 72:
            out.append("unlink " + live.pop(r.below(len(live))))
        elif k < 84:
            q = r.pick(dirs) + "/" + name_of(r, r.below(count))
            j = r.below(len(live))
            out.append("rename %s %s%s" % (live[j], q, r.pick(["", "", "", " noreplace", " exchange", " whiteout"])))
            live[j] = q
        elif k < 88:
            q = d + "/" + name_of(r, r.below(count))
            out.append("link %s %s" % (r.pick(live), q))
            live.append(q)
        elif k < 91:
            out.append("rmdir " + live[r.below(len(live))])
        elif k < 95:
            out.append("stat " + r.pick(live))
        elif k < 96:
            out.append("readdir " + r.pick(dirs))
        elif k < 97:
            out.append("dropcaches")
        elif k < 98:
            out.append("create %s/%s" % (d, "y" * r.pick([254, 255, 256, 300])))
        else:
            out.append("sync")
    return out


def deep(r, count):
    """A deep tree whose parts move."""
    out, live = [], [""]
    for i in range(count):
        k = r.below(100)
        p = r.pick(live[-40:]) if r.below(2) else r.pick(live)
        child = (p + "/" if p else "") + "s%d" % r.below(6)
        if k < 45:
            out.append("mkdir %s %s" % (child, r.pick(["755", "2755", "700"])))
            if child not in live:
                live.append(child)
        elif k < 60:
            out.append("create %sf%d" % (p + "/" if p else "", r.below(4)))
        elif k < 75:
            q = r.pick(live)
            to = (q + "/" if q else "") + "s%d" % r.below(6)
            out.append("rename %s %s%s" % (p or "/", to, r.pick(["", "", " noreplace", " exchange"])))
        elif k < 82:
            out.append("rmdir " + (p or "/"))
        elif k < 86:
            out.append("unlink %s/f%d" % (p or "x", r.below(4)))
        elif k < 89:
            target = r.pick(["./" * r.below(5) + "s0", "s1/s2", "f0", ".", "loop%d" % r.below(3)])
            out.append("symlink %s %sloop%d" % (target, p + "/" if p else "", r.below(3)))
        elif k < 92:
            out.append("pwrite %s/loop%d %d 100 %d" % (p or ".", r.below(3), r.below(9000), r.below(99)))
        elif k < 94:
            out.append("chmod %s %o" % (p or "/", r.below(0o10000)))
        elif k < 96:
            out.append("chown %s %d %d" % (p or "/", r.below(70000), r.below(70000)))
        elif k < 98:
            out.append("readdir " + (p or "/"))
        else:
            out.append("stat " + (p or "/"))
    return out


def extents(r, count):
    """A few files of many extents, cut, moved and converted, through paths and handles."""
    out, files = [], ["a", "b", "c"]
    for f in files:
        out.append("create " + f)
    out += ["open 1 a rw", "open 2 b rw,direct", "open 3 c rw,dsync"]
    handles = {"a": "@1", "b": "@2", "c": "@3"}
    for i in range(count):
        k, f = r.below(100), r.pick(files)
        at = handles[f] if r.below(2) else f
        block = r.pick([1024, 4096, 4096, 4096, 65536])
        off, ln = r.below(400) * block, (1 + r.below(12)) * block
        odd, oddlen = r.below(3000000), 1 + r.below(50000)
        if k < 30:
            if at == "@2" and r.below(4):
                out.append("pwrite @2 %d %d %d" % (off, ln, r.below(1000)))
            else:
                out.append("pwrite %s %d %d %d" % (at, odd, oddlen, r.below(1000)))
        elif k < 40:
            out.append("pwrite %s %d %d %d" % (at, off, block, r.below(1000)))
        elif k < 75:
            mode = r.pick(["alloc", "keep", "zero", "zero_keep", "punch", "punch", "collapse", "insert"])
            if r.below(3):
                out.append("fallocate %s %s %d %d" % (at, mode, off, ln))
            else:
                out.append("fallocate %s %s %d %d" % (at, mode, odd, oddlen))
        elif k < 80:
            out.append("truncate %s %d" % (at, r.pick([0, odd, off, 1 << 20, (1 << 25) + odd, 4096 * r.below(700)])))
        elif k < 82:
            limit = 1 << 44
            big = r.pick([1 << 42, 1 << 43, limit - 4096, limit - 8192, limit, (1 << 63) - 1, (1 << 41) + 1])
            out.append("pwrite %s %d %d 5" % (f, big, r.pick([1, 4096, 5000])))
        elif k < 83:
            mode = r.pick(["alloc", "keep", "punch", "zero"])
            out.append("fallocate %s %s %d %d" % (f, mode, (1 << 44) - r.below(3) * 4096, 8192))
        elif k < 84:
            out.append("truncate %s %d" % (f, r.pick([(1 << 44) - 4096, (1 << 44) + 1, (1 << 63) - 1, 1 << 40])))
        elif k < 90:
            out.append("read %s %d %d" % (at if at != "@2" else "b", odd, oddlen))
        elif k < 93:
            out.append("%s %s" % (r.pick(["fsync", "fdatasync"]), at))
        elif k < 95:
            out.append("stat " + at)
        elif k < 96:
            out.append("sync")
        elif k < 97:
            out.append("dropcaches")
        else:
            out.append("append %s %d %d" % (f, oddlen, r.below(1000)))
    # The judge reads every file whole.
    return out + ["truncate %s 4000000" % f for f in files]


def full(r, count):
    """A disk that is full most of the time. Which call meets the end first depends on writeback: not a strict one."""
    out, live, n = ["mkdir d"], [], 0
    for i in range(count):
        k = r.below(100)
        if k < 22 or not live:
            p = r.pick(["", "d/"]) + "f%d" % n
            n += 1
            out.append("create " + p)
            live.append(p)
        elif k < 55:
            size = r.pick([1, 5000, 100000, 700000, 2000000])
            out.append("pwrite %s %d %d %d" % (r.pick(live), 4096 * r.below(900), size, r.below(1000)))
            if r.below(2):
                out.append("fsync " + r.pick(live))
        elif k < 65:
            mode, size = r.pick(["alloc", "keep", "zero", "punch", "insert"]), r.pick([4096, 400000, 3 << 20, 9 << 20])
            out.append("fallocate %s %s %d %d" % (r.pick(live), mode, 4096 * r.below(900), size))
        elif k < 73:
            out.append("unlink " + live.pop(r.below(len(live))))
        elif k < 78:
            out.append("truncate %s %d" % (r.pick(live), r.below(1 << 20)))
        elif k < 83:
            out.append("mkdir d/m%d" % r.below(count))
        elif k < 86:
            out.append("symlink %s d/s%d" % ("t" * r.pick([20, 59, 60, 900]), r.below(count)))
        elif k < 90:
            out.append("setxattr %s user.k%d %d 3" % (r.pick(live), r.below(3), r.pick([10, 500, 3000])))
        elif k < 93:
            out.append("sync")
        elif k < 95:
            out.append("rename %s d/r%d" % (r.pick(live), r.below(count)))
        else:
            out.append("stat " + r.pick(live))
    return out


def xattrs(r, count):
    """Attributes of all sizes and name spaces, shared blocks, limits."""
    out = ["mkdir d"] + ["create f%d" % i for i in range(8)] + ["symlink x l", "mknod p fifo 644"]
    objects = ["f%d" % i for i in range(8)] + ["d", "l", "p", "/", "none"]
    spaces = ["user.", "user.", "user.", "trusted.", "security."]
    for i in range(count):
        k, o = r.below(100), r.pick(objects)
        n = r.pick(spaces) + r.pick(["a", "b", "c", "k%d" % r.below(30), "q" * r.pick([3, 100, 240, 250, 251, 255])])
        if k < 60:
            size = r.pick([0, 1, 5, 20, 60, 100, 400, 900, 1500, 3000, 3900, 4000, 4100, 9000, 65536, 65537])
            out.append("setxattr %s %s %d %d%s" % (o, n, size, r.below(3), r.pick(["", "", "", " create", " replace"])))
        elif k < 72:
            out.append("removexattr %s %s" % (o, n))
        elif k < 80:
            out.append("getxattr %s %s" % (o, n))
        elif k < 86:
            out.append("listxattr " + o)
        elif k < 88:
            out.append("setxattr %s %s 8 1" % (o, r.pick(["system.x", "nospace", "user.", "bad.x", "system.data"])))
        elif k < 91:
            out.append("unlink f%d" % r.below(8))
        elif k < 94:
            out.append("create f%d" % r.below(8))
        elif k < 96:
            out.append("chmod %s %o" % (o, r.below(0o1000)))
        elif k < 97:
            out.append("dropcaches")
        elif k < 98:
            out.append("sync")
        else:
            out.append("pwrite f%d %d 3000 1" % (r.below(8), r.below(9000)))
    return out


def handles(r, count):
    """Open descriptors with all flags, files unlinked while open, nodes, links, odd paths."""
    out = ["mkdir d", "create a", "create b", "symlink a l", "symlink d ld", "symlink l2 l1", "symlink l1 l2"]
    paths = ["a", "b", "c", "d/a", "d/b", "l", "ld/b", "l1", "d", "ld", "d/", "a/x", "d/../a", "d/./b", "//a", "c/"]
    paths += ["none/x", "dev", "ff"]
    flags = ["r", "w", "rw", "creat", "excl", "trunc", "append", "direct", "sync", "dsync", "nofollow", "directory"]
    ids = list(range(1, 7))
    # These names are only ever regular files, so that opening them never fails.
    solid = ["h1", "h2", "h3"]
    for h in ids:
        how = r.pick(["", ",append", ",direct", ",sync", ",dsync"])
        out.append("open %d %s rw,creat%s" % (h, solid[h % 3], how))
    for i in range(count):
        k, p, h = r.below(100), r.pick(paths), "@%d" % r.pick(ids)
        x = h if r.below(2) else p
        if k < 18:
            how = {r.pick(["r", "w", "rw", "rw"])} | {r.pick(flags[3:]) for _ in range(r.below(4))}
            how = ",".join(sorted(how, key=flags.index))
            out.append("open %d %s %s %o" % (100 + i, p, how, r.pick([0o644, 0o600, 0o4755])))
        elif k < 23:
            out.append("close " + h[1:])
            how = r.pick(["", ",append", ",direct", ",sync", ",dsync", ",trunc", ",nofollow"])
            out.append("open %s %s rw,creat%s" % (h[1:], r.pick(solid), how))
        elif k < 26:
            out.append(r.pick(["unlink %s", "link %s x%d" % ("%s", i), "rename %s h1", "rename %s x"]) % r.pick(solid))
        elif k < 42:
            off, size = r.pick([0, 4096, 100, 8191, r.below(100000)]), r.pick([0, 1, 512, 4096, 8192, r.below(20000)])
            out.append("pwrite %s %d %d %d" % (x, off, size, r.below(99)))
        elif k < 47:
            out.append("append %s %d 3" % (x, r.below(9000)))
        elif k < 52:
            out.append("read %s %d %d" % (x, r.below(20000), r.below(20000)))
        elif k < 57:
            out.append("truncate %s %d" % (x, r.below(50000)))
        elif k < 62:
            out.append("unlink " + p)
        elif k < 66:
            out.append("rename %s %s%s" % (p, r.pick(paths), r.pick(["", " noreplace", " exchange", " whiteout"])))
        elif k < 70:
            out.append("link %s %s" % (p, r.pick(paths)))
        elif k < 73:
            # No FIFO: opening one waits for a peer. Majors of experiments: no driver answers.
            node = "%s 600 %d %d" % (r.pick(["chr", "blk"]), 250 + r.below(4), r.below(300000))
            out.append("mknod %s %s" % (p, r.pick(["sock 640", node])))
        elif k < 76:
            out.append("symlink %s %s" % (r.pick(["a", "d/b", "./a", "z" * 59, "z" * 60, "z" * 4095, "z" * 4096]), p))
        elif k < 79:
            out.append("%s %s" % (r.pick(["mkdir", "rmdir"]), p))
        elif k < 83:
            mode = r.pick(["alloc", "keep", "punch", "zero", "collapse", "insert", "unshare"])
            out.append("fallocate %s %s %d %d" % (x, mode, r.pick([0, 4096, 100]), r.pick([0, 4096, 8192, 77])))
        elif k < 86:
            out.append("%s %s" % (r.pick(["fsync", "fdatasync"]), x))
        elif k < 89:
            out.append("stat " + x)
        elif k < 91:
            out.append("statx %s 0x%x" % (x, r.pick([0xfff, 0x7ff, 0x1fff, 0, 2])))
        elif k < 93:
            atime = r.pick([0, 1, 1 << 31, 1 << 32, (1 << 33) + 5, (1 << 34) - 1, 1 << 34, 3 << 33])
            atime = atime * 10**9 + r.below(10**9)
            out.append("utimes %s %d %d" % (p, atime, r.pick([0, 1 << 31, 1 << 33]) * 10**9))
        elif k < 95:
            out.append("chmod %s %o" % (p, r.below(0o10000)))
        elif k < 97:
            out.append("chown %s %d %d" % (p, r.below(1 << 17), r.below(1 << 17)))
        elif k < 98:
            out.append("readdir " + p)
        elif k < 99:
            out.append("dropcaches")
        else:
            out.append("sync")
    return out


PROFILES = {"names": names, "deep": deep, "extents": extents, "full": full, "xattrs": xattrs, "handles": handles}

if __name__ == "__main__":
    profile, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print("\n".join(PROFILES[profile](Rng(seed), count)))
