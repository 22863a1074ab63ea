"""`rescore lm prune`."""

from __future__ import annotations

from dataclasses import dataclass

from rescore.decode.cli.lm_groups import LmModelArgs, LmOutArgs, PruningArgs
from rescore.decode.cli.options import Misuse, ReportedArgs
from rescore.decode.cli.output import Result, check_stdin


@dataclass(frozen=True, kw_only=True)
class LmPruneArgs(LmModelArgs, PruningArgs, LmOutArgs, ReportedArgs):
    """Drop the least important n-grams by entropy pruning (Stolcke, cs/0006025), down
    to --max-ngrams or by --theta. Prune a Kneser-Ney model with `rescore lm build`
    instead, which still has the counts of each history.
    Memory: about 80 bytes per n-gram of the model.

    examples:
      rescore lm prune lm.ngram --max-ngrams 900k -o small.ngram
      rescore lm prune lm.arpa.gz --theta 1e-7 -o small.arpa.gz
    """


def run(args: LmPruneArgs) -> Result:
    from rescore.decode.cli import lm_files, screen
    from rescore.decode.cli.verbs.lm_info import tables
    from rescore.lm.build.in_memory import prune_model

    lm_files.check_out(args, args.out)
    if (shorten := lm_files.pruning(args)) is None:
        raise Misuse("--max-ngrams, --theta: expected one of them")
    check_stdin(args.model)
    with screen.stages() as stage:
        stage(f"reading {args.model}")
        model = lm_files.read_model(args.model, args, words=lm_files.words_read(args, args.out))
        stage("pruning")
        model = prune_model(model, shorten)
        stage(f"writing {args.out}")
        info = lm_files.write_model(model, args.out, args)
    return Result(info, tables(info))
