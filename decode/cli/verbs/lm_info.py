"""`rescore lm info`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rescore.decode.cli.lm_groups import LmModelArgs
from rescore.decode.cli.options import ReportedArgs, flag
from rescore.decode.cli.output import Column, Facts, Part, Result, TextTable, check_stdin, column
from rescore.lattice.short_repr import readable

IDENTITIES = ("end_of_text", "bos", "eos")  # numbers that are not counts, printed without separators
MAX_VALUE = 200  # characters shown of a value


@dataclass(frozen=True, kw_only=True)
class LmInfoArgs(LmModelArgs, ReportedArgs):
    """Describe a model: its size, tokenizer, estimation and n-grams.

    columns  order      of the n-grams
             n-grams    in the model
             counted    in the training text
             d(1) ..    discount of n-grams seen once, twice, ..; above: of all
                        higher counts. Katz: a factor of the count; Kneser-Ney:
                        subtracted from the adjusted count
             none for   counts for which Good-Turing gives no discount below 1; they
                        get that of the higher counts

    examples:
      rescore lm info lm.ngram
      rescore lm info lm.ngram --verify --json -
    """

    verify: bool = flag("read the whole file and check checksums and entries")


def run(args: LmInfoArgs) -> Result:
    from rescore.decode.cli import lm_files, screen

    check_stdin(args.model)
    with screen.stages() as stage:
        stage(f"reading {args.model}")
        info = {
            "model": str(args.model),
            **lm_files.read_model(args.model, args, verify=args.verify or None).info(),
            "verified": args.verify,
        }
    return Result(info, tables(info))


def tables(info: dict[str, Any]) -> list[Part]:
    """The metadata of a model, and its n-grams by order."""
    counted, discounts, rest = by_order(info)
    rows = [(name, value) for name, value in flat(rest) if name != "verified" and value is not None]
    if info.get("verified"):
        rows.append(("verified", "checksums and every entry"))
    columns = [column("n-grams", info["ngrams"], ",")]
    if counted:
        columns.append(column("counted", counted, ","))
    most = max((len(one.d) for one in discounts), default=0)
    for r in range(most):
        name = f"d({r + 1})" if r + 1 < most else "above"
        columns.append(column(name, (one.d[r] if r < len(one.d) else None for one in discounts), ".3f"))
    if any(one.fallbacks for one in discounts):
        columns.append(Column("none for", [" ".join(map(str, one.fallbacks)) for one in discounts]))
    orders = [str(order) for order in range(1, len(info["ngrams"]) + 1)]
    return [Facts(rows), "", TextTable("order", orders, columns)]


class _Discounts(msgspec.Struct):
    d: list[float]
    fallbacks: list[int] = []


class _Estimation(msgspec.Struct):
    ngrams_counted: list[int]
    discounts: list[_Discounts] = []


def by_order(info: dict[str, Any]) -> tuple[list[int], list[_Discounts], dict[str, Any]]:
    """Counted n-grams and discounts of every order, empty if the metadata lack them; and the rest of the metadata."""
    rest = {name: value for name, value in info.items() if name != "ngrams"}
    orders, estimation = len(info["ngrams"]), rest.get("estimation")
    try:
        found = msgspec.convert(estimation, _Estimation)
    except msgspec.ValidationError:
        return [], [], rest
    unigrams = [_Discounts(d=[])] if len(found.discounts) == orders - 1 else []  # Katz: they have no discounts
    discounts = unigrams + found.discounts
    if not len(found.ngrams_counted) == len(discounts) == orders:
        return [], [], rest
    others = {name: value for name, value in (estimation or {}).items() if name not in _Estimation.__struct_fields__}
    return found.ngrams_counted, discounts, {**rest, "estimation": others}


def flat(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names ("outer: inner") and values of nested objects. The metadata of a file may hold anything."""
    for name, item in value.items():
        if isinstance(item, dict) and len(prefix) < MAX_VALUE:
            yield from flat(item, f"{prefix}{name}: ")
        elif isinstance(item, list) and all(isinstance(one, dict) for one in item) and len(prefix) < MAX_VALUE:
            for number, one in enumerate(item, 1):
                yield from flat(one, f"{prefix}{name} {number}: " if len(item) > 1 else f"{prefix}{name}: ")
        else:
            yield prefix + name, plain(name, item)


def plain(name: str, item: Any) -> Any:
    if isinstance(item, list):
        item = (
            " ".join(readable(one) for one in item)
            if all(isinstance(one, (int, float, str)) for one in item)
            else json.dumps(item)
        )
        item = item or "none"
    if isinstance(item, str) and len(item) > MAX_VALUE:
        return item[:MAX_VALUE] + ".."
    return str(item) if name in IDENTITIES else item
