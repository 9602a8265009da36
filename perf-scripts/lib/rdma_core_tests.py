"""Runs tests of rdma-core's Python suite and compares the results.

usage: rdma_core_tests.py TESTS EXPECTED VERSION FACE LINK [MODULE...] -- [options of the suite]

TESTS is the folder with the package `tests`, VERSION that of rdma-core. Prints
one line for each test whose result differs from EXPECTED, and a last line with
the counts. Exit status 0 only if all results are as expected.
"""

import fnmatch
import importlib
import sys
import unittest


def expectations(path, version, *places):
    """Returns the lines of the file that concern these places and this
    version: (pattern, outcome)."""
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if words and all(holds(where, version, places) for where in words[0].split(",")):
                found.append((words[1], words[2]))
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
    folder, expected, version, face, link, *rest = sys.argv[1:]
    split = rest.index("--")
    modules, sys.argv[1:] = rest[:split], rest[split + 1:]
    sys.path.insert(0, folder + "/tests")
    sys.path.insert(0, folder)
    from args_parser import parser

    parser.parse_args()
    known = expectations(expected, int(version), face, link)
    outcomes = Outcomes()
    for module in modules:
        loaded = importlib.import_module("tests." + module)
        unittest.defaultTestLoader.loadTestsFromModule(loaded).run(outcomes)
    wrong = 0
    counts = {"pass": 0, "skip": 0, "fail": 0}
    for name, (outcome, why) in sorted(outcomes.ended.items()):
        counts[outcome] += 1
        wanted = [want for pattern, want in known if fnmatch.fnmatchcase(name, pattern)]
        if outcome not in (wanted[0] if wanted else "pass").split("|"):
            wrong += 1
            print(f"{outcome}, not {wanted[0] if wanted else 'pass'}: {name}: {why.strip()}")
    for pattern, _ in known:
        of_these = pattern.split(".")[0] in modules
        if of_these and not any(fnmatch.fnmatchcase(name, pattern) for name in outcomes.ended):
            wrong += 1
            print(f"no test matches {pattern}: remove it from pyverbs.expected")
    print(f"{counts['pass']} passed, {counts['skip']} skipped themselves, "
          f"{counts['fail']} failed; {wrong} not as expected")
    return 1 if wrong or not outcomes.ended else 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    sys.exit(status)
