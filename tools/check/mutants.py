"""Random mutants of the code that decides what is right, and whether the tests notice.

    python tools/check/mutants.py [--count 200] [--seed 1] [--out build/mutants.jsonl]
    python tools/check/mutants.py --again build/mutants.jsonl caught --out build/again.jsonl

A mutant is one change of the Python of decode/verify, decode/draft, lattice and what a decoder needs of lm: another
comparison or operator, a constant off by one, `and` for `or`, a condition without its `not`, a statement left out,
arguments swapped, None returned. Messages of errors are left as they are. A first run of the fast tests of these rooms
tells which test runs which line (build/mutants_lines.json, kept); each mutant then runs the fastest tests of its line.
Nothing is written to the sources: a forked process compiles the changed tree when the module is imported. An
interrupted run goes on where its file ends. Each line of the file has the mutant's place, what changed and the outcome:
caught, survived, or unreached where no test runs the line. --again takes the mutants of an earlier file, by outcome.

Needs the package `coverage`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.machinery
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("decode/verify/*.py", "decode/draft/*.py", "lattice/*.py", "lm/model/*.py")
TESTS = ("verify", "draft", "lattice", "lm", "loop", "lab/replay", "lab/tuning")
LINES = ROOT / "build" / "mutants_lines.json"
PYTEST = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT))

OTHER = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And},
}

KEPT = ("annotation", "returns", "decorator_list")


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    match node:
        case ast.Compare(ops=[first, *rest]):
            yield ast.Compare(node.left, [OTHER[type(first)](), *rest], node.comparators)
        case ast.BinOp() if type(node.op) in OTHER:
            yield ast.BinOp(node.left, OTHER[type(node.op)](), node.right)
        case ast.BoolOp():
            yield ast.BoolOp(OTHER[type(node.op)](), node.values)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield from (ast.Constant(node.value + 1), ast.Constant(node.value - 1))
        case ast.Call(args=[first, second, *rest]) if ast.dump(first) != ast.dump(second):
            yield ast.Call(node.func, [second, first, *rest], node.keywords)
        case ast.Return(value=ast.AST()) if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield ast.Pass()


def sites(node: ast.AST, function: str = "") -> Iterator[tuple[ast.AST, str, int | None, ast.AST, str]]:
    """(parent, field, index, node, function) of every node that may change: no annotation, decorator or message."""
    for field, value in ast.iter_fields(node):
        if field in KEPT or isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(child, ast.AST):
                if isinstance(child, ast.If) and getattr(child.test, "id", "") == "TYPE_CHECKING":
                    continue
                yield node, field, index, child, function
                named = isinstance(child, ast.FunctionDef | ast.ClassDef)
                yield from sites(child, f"{function}.{child.name}".strip(".") if named else function)


def mutants_of(file: Path) -> Iterator[tuple[dict, ast.Module]]:
    """Every mutant of a file: its record, and the changed tree, which is the same object each time."""
    tree, seen = ast.parse(file.read_text(encoding="utf-8")), Counter()
    layer = file.relative_to(ROOT).parts[0]
    for parent, field, index, node, function in list(sites(tree)):
        for changed in changes(node):
            change = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
            key = [layer, file.name, function, change, seen[function, change]]  # outlives a move of lines and files
            seen[function, change] += 1
            record = {"file": str(file.relative_to(ROOT)), "line": node.lineno, "end": node.end_lineno, "key": key}
            ast.fix_missing_locations(ast.copy_location(changed, node))
            put(parent, field, index, changed)
            yield record, tree
            put(parent, field, index, node)


def put(parent: ast.AST, field: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[index] = node


def forked(run, limit_s: float) -> int | None:
    """The exit status of a call in a process of its own, its output thrown away; None past the limit."""
    child = os.fork()
    if not child:
        os.setsid()
        with open(os.devnull, "r+b") as null:
            for stream in range(3):
                os.dup2(null.fileno(), stream)
        try:
            os._exit(int(run()))
        except BaseException:
            os._exit(99)
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def tested(args: list[str], plugin: object = None) -> int:
    import pytest

    return pytest.main([*PYTEST, *args], plugins=[plugin] if plugin else [])


class Lines:
    """Which tests run which lines of the rooms, and how long each takes."""

    def __init__(self) -> None:
        import coverage

        self.coverage = coverage.Coverage(data_file=None, include=[f"{ROOT}/{room}" for room in ROOMS])
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.outcome == "failed":
            self.failed.add(report.nodeid)

    def write(self) -> None:
        data = self.coverage.get_data()
        lines = {
            str(Path(file).relative_to(ROOT)): {
                line: sorted({*tests} - {"", *self.failed}) for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        LINES.parent.mkdir(exist_ok=True)
        LINES.write_text(json.dumps({"seconds": self.seconds, "lines": lines}))


def measure() -> int:
    lines = Lines()
    lines.coverage.start()
    failed = tested([str(ROOT / "tests" / room) for room in TESTS], lines)
    lines.coverage.stop()
    lines.write()
    return failed


def tests_of(record: dict, known: dict, most: int) -> list[str]:
    """The fastest tests of a mutant's line, first one of each function; of its whole file if imports alone run it."""
    by_line = known["lines"].get(record["file"], {})
    tests = {test for line in range(record["line"], record["end"] + 1) for test in by_line.get(str(line), ())}
    if not tests and str(record["line"]) in by_line:
        tests = {test for line in by_line.values() for test in line}
    variants, order = Counter(), []
    for test in sorted(tests, key=lambda one: (known["seconds"].get(one, 0), one)):
        function = test.partition("[")[0]
        order.append((variants[function], len(order), test))
        variants[function] += 1
    return [test for *_, test in sorted(order)][:most]


def outcome(record: dict, tree: ast.Module, tests: list[str], limit_s: float) -> str:
    file = os.path.realpath(ROOT / record["file"])
    code = compile(tree, file, "exec")
    read = importlib.machinery.SourceFileLoader.get_code

    def changed(loader, name):
        return code if os.path.realpath(loader.path) == file else read(loader, name)

    def run() -> int:
        importlib.machinery.SourceFileLoader.get_code = changed
        return tested(["-x", "--hypothesis-seed=0", *(str(ROOT / test) for test in tests)])

    return "survived" if forked(run, limit_s) == 0 else "caught"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, default=25, help="at most so many tests for each mutant")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for each mutant; beyond them it is caught")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "mutants.jsonl")
    parser.add_argument("--again", nargs=2, metavar=("FILE", "OUTCOME"), help="mutants of an earlier run")
    options = parser.parse_args()
    os.environ |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = tempfile.mkdtemp()
    import hypothesis  # noqa: F401  what tests import, once for all forks
    import pytest  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    if not LINES.exists() and forked(measure, 3600.0) is None:
        raise SystemExit("the tests take longer than an hour")
    known = json.loads(LINES.read_text())
    files = [file for room in ROOMS for file in sorted(ROOT.glob(room))]
    every = [copy.deepcopy(record) for file in files for record, _ in mutants_of(file)]
    if options.again:
        earlier = [json.loads(line) for line in Path(options.again[0]).read_text().splitlines()]
        keys = [one["key"] for one in earlier if one["outcome"] == options.again[1]]
        drawn = [record for record in every if record["key"] in keys]
        print(f"{len(keys) - len(drawn)} of {len(keys)} mutants are no longer there")
    else:
        drawn = random.Random(options.seed).sample(every, options.count)
    done = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    found = Counter(one["outcome"] for one in done)
    with options.out.open("a") as out:
        for number, record in enumerate(drawn, 1):
            if any(one["key"] == record["key"] for one in done):
                continue
            tests = tests_of(record, known, options.tests)
            tree = next(tree for one, tree in mutants_of(ROOT / record["file"]) if one["key"] == record["key"])
            record["outcome"] = outcome(record, tree, tests, options.limit) if tests else "unreached"
            record["tests"] = len(tests)
            found[record["outcome"]] += 1
            print(json.dumps(record), file=out, flush=True)
            told = f"{record['outcome']:9} {record['file']}:{record['line']} {record['key'][3]}"
            print(f"{number}/{len(drawn)} {told}", flush=True)
    print(f"seed {options.seed}, {len(every)} mutants in all: {dict(found)}")


if __name__ == "__main__":
    main()
