"""`rescore lm verify`."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rescore.decode.cli.lm_groups import LmModelArgs
from rescore.decode.cli.options import ReportedArgs, option
from rescore.decode.cli.output import Column, Result, TextTable, check_stdin
from rescore.decode.cli.values import float_between

WORDS = {True: "pass", False: "FAIL", None: "not checked"}


@dataclass(frozen=True, kw_only=True)
class LmVerifyArgs(LmModelArgs, ReportedArgs):
    """Read a whole model and check its invariants.

    checks   file            checksums of an .ngram file
             automaton       every id has a unigram; tokens ascend in each state;
                             costs are finite; states are sorted, and each is the
                             context of one n-gram; every n-gram without its first
                             token is an n-gram too; arcs and failure arcs lead to
                             the longest suffix that is a state
             sums to one     probabilities after each context; names the worst one
             metadata        n-grams of each order, special ids, tokenizer
    Exit status: 0 if all hold, 1 if one fails or the file cannot be read.
    Memory: about 80 bytes per n-gram.

    examples:
      rescore lm verify lm.ngram
      rescore lm verify lm.arpa.gz --json -
    """

    tolerance: float | None = option(
        "X", "tolerance of the sums (default: 1e-4; quantised models: 0.2)", float_between(0, 1)
    )


def run(args: LmVerifyArgs) -> Result:
    """Returns 1 if a check fails."""
    from rescore.decode.cli import lm_files, screen
    from rescore.lm.model.verify import verify

    check_stdin(args.model)
    with screen.stages() as stage:
        stage(f"verifying {args.model}")
        checks = verify(args.model, arpa=lm_files.arpa_options(args), tolerance=args.tolerance)
    passed = all(check.passed for check in checks)
    columns = [
        Column("result", [WORDS[check.passed] for check in checks], prose=True),
        Column("found", [check.found for check in checks], prose=True),
    ]
    bold = {check.name for check in checks if check.passed is False}
    report = {"model": str(args.model), "passed": passed, "checks": [asdict(check) for check in checks]}
    return Result(report, [TextTable("check", [check.name for check in checks], columns, bold)], status=int(not passed))
