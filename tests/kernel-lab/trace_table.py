#!/usr/bin/env python3
"""trace_table.py FSGLASS [--only GLOB] [--seeds N] [--all]: the counts of `fsglass trace` beside the recorded ones.

Plays every scenario that has a recording with N seeds (default 5, as the kernel was recorded five times) and prints
a markdown table: one line per count of which the median of ours lies outside. The rule is that of cmp_trace.py; --all
adds the lines that hold. The last line counts the scenarios. Exit status 1 if any is outside."""

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys

LAB = os.path.dirname(os.path.abspath(__file__))
KEYS = """io_total.blocks_w io_total.preflush io_total.fua io_total.rq_w io_by_class.journal.blocks_w
io_by_class.data.blocks_w io_by_class.itable.blocks_w io_by_class.bitmap.blocks_w io_by_class.dirext.blocks_w
io_by_class.sb_gdt.blocks_w jbd2.transactions jbd2.blocks jbd2.blocks_logged jbd2.handle_count
write_amplification""".split()


def slack(key, low, high):
    """How far outside of the recorded range still holds: nothing where the kernel always does the same."""
    if low == high:
        return 0
    share = 0.05 if "journal" in key or "jbd2" in key else 0.10
    return max(2, share * high)


def ours(fsglass, scenario, seed):
    """The truth of one run, or a line that says why there is none."""
    command = [fsglass, "trace", scenario, "--seed", str(seed), "--out", "-"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or ["exit %d" % run.returncode]
        return None, lines[-1].rsplit(": ", 1)[-1]
    return json.loads(run.stdout)["truth"], ""


def number(n):
    return "none" if n is None else "%.10g" % n


def rows(fsglass, name, seeds, everything):
    """Lines of one scenario, and whether it holds."""
    with open(os.path.join(LAB, "ground-truth", name + ".json")) as f:
        truth = json.load(f)["truth"]
    runs = []
    for seed in range(1, seeds + 1):
        result, why = ours(fsglass, os.path.join(LAB, "scenarios", name + ".json"), seed)
        if result is None:
            return ["| %s | - | %s | | |" % (name, why)], False
        runs.append(result)
    lines, good = [], True
    for key in KEYS:
        if key not in truth:
            continue
        low, median, high = truth[key]
        values = [r.get(key) for r in runs]
        middle = None if None in values else statistics.median(values)
        spread = slack(key, low, high)
        holds = middle is not None and low - spread <= middle <= high + spread
        good = good and holds
        if everything or not holds:
            own = number(middle)
            if middle is not None and min(values) != max(values):
                own += " (%s..%s)" % (number(min(values)), number(max(values)))
            linux = number(low) if low == high else "%s..%s" % (number(low), number(high))
            lines.append("| %s | `%s` | %s | %s | %s |" % (name, key, own, linux, "yes" if holds else "**no**"))
    return lines, good


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("fsglass")
    p.add_argument("--only", default="ext4-*")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    names = sorted(n[:-5] for n in os.listdir(os.path.join(LAB, "scenarios")) if n.endswith(".json"))
    names = [n for n in names if fnmatch.fnmatch(n, a.only)]
    names = [n for n in names if os.path.exists(os.path.join(LAB, "ground-truth", n + ".json"))]
    print("| Scenario | Count | here | Linux | holds |\n|---|---|---:|---:|---|")
    good = 0
    for name in names:
        lines, holds = rows(a.fsglass, name, a.seeds, a.all)
        good += holds
        for line in lines:
            print(line)
        sys.stdout.flush()
    print("\n%d of %d scenarios as Linux" % (good, len(names)))
    return 0 if good == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
