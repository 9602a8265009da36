"""Runs rdma-core's Python suite and compares the results.

usage: rdma_core_tests.py [--reasons] TESTS EXPECTED VERSION FACE LINK [options of the suite]

TESTS is the folder with the package `tests`, VERSION that of rdma-core. Prints
one line for each test whose result differs from EXPECTED, with --reasons the counts
of the others that do not pass, and a last line with the counts. Exit status 0 only if
all results are as expected.
"""

import collections
import fnmatch
import importlib
import pathlib
import sys
import unittest


def expectations(path, version, *places):
    """Returns the lines of the file that concern these places and this
    version: (pattern, outcome, reason)."""
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words, _, reason = line.partition("#")
            words = words.split()
            if words and all(holds(where, version, places) for where in words[0].split(",")):
                found.append((words[1], words[2], reason.strip()))
    return found


def holds(where, version, places):
    """Returns whether one word of a line's first column fits this run."""
    if where.startswith(">="):
        return version >= int(where[2:])
    if where.startswith("<"):
        return version < int(where[1:])
    return where in ("any", *places)


class Outcomes(unittest.TestResult):
    """Records the result of each test, and the reason."""

    def __init__(self):
        super().__init__()
        self.ended = {}

    def note(self, test, outcome, why=""):
        name = test.id().removeprefix("tests.")
        # A failure of the clean-up after a pass counts.
        if outcome != "pass" or name not in self.ended:
            self.ended[name] = (outcome, why)

    def addSuccess(self, test):
        self.note(test, "pass")

    def addSkip(self, test, reason):
        self.note(test, "skip", reason)

    def addError(self, test, err):
        self.note(test, "fail", self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        self.addError(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(test, err)


def main():
    with_reasons = "--reasons" in sys.argv[1:2]
    folder, expected, version, face, link, *sys.argv[1:] = sys.argv[1 + with_reasons:]
    sys.path.insert(0, folder + "/tests")
    sys.path.insert(0, folder)
    from args_parser import parser

    parser.parse_args()
    known = expectations(expected, int(version), face, link)
    outcomes = Outcomes()
    modules = sorted(path.stem for path in pathlib.Path(folder, "tests").glob("test_*.py"))
    for module in modules:
        loaded = importlib.import_module("tests." + module)
        unittest.defaultTestLoader.loadTestsFromModule(loaded).run(outcomes)
    wrong = 0
    counts, reasons = collections.Counter(), collections.Counter()
    for name, (outcome, why) in sorted(outcomes.ended.items()):
        counts[outcome] += 1
        lines = (line for line in known if fnmatch.fnmatchcase(name, line[0]))
        _, wanted, reason = next(lines, (name, "pass", ""))
        if outcome not in wanted.split("|"):
            wrong += 1
            print(f"{outcome}, not {wanted}: {name}: {why.strip()}")
        elif outcome != "pass":
            reasons[outcome, reason] += 1
    for pattern, _, _ in known:
        of_these = fnmatch.filter(modules, pattern.split(".")[0])
        if of_these and not fnmatch.filter(outcomes.ended, pattern):
            wrong += 1
            print(f"no test matches {pattern}: remove it from pyverbs.expected")
    if with_reasons:
        for (outcome, reason), count in sorted(reasons.items()):
            print(f"{outcome} {count:3} {reason}")
    print(f"{counts['pass']} passed, {counts['skip']} skipped themselves, "
          f"{counts['fail']} failed; {wrong} not as expected")
    return 1 if wrong or not outcomes.ended else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(status)
