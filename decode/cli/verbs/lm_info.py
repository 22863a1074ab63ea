"""`rescore lm info`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rescore.decode.cli.groups import LmModelArgs
from rescore.decode.cli.options import ReportedArgs, flag
from rescore.decode.cli.output import Column, Facts, Part, Result, TextTable, check_stdin
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
    from rescore.decode.cli import screen
    from rescore.decode.cli.model_files import read_model

    check_stdin(args.model)
    with screen.stages() as stage:
        stage(f"reading {args.model}")
        info = {
            "model": str(args.model),
            **read_model(args.model, args, verify=args.verify or None).info(),
            "verified": args.verify,
        }
    return Result(info, tables(info))


def tables(info: dict[str, Any]) -> list[Part]:
    """The metadata of a model, and its n-grams by order."""
    counted, discounts, rest = by_order(info)
    rows = [(name, value) for name, value in flat(rest) if name != "verified" and value is not None]
    if info.get("verified"):
        rows.append(("verified", "checksums and every entry"))
    orders = len(info["ngrams"])
    columns = [Column("n-grams", [f"{number:,}" for number in info["ngrams"]])]
    if counted:
        columns.append(Column("counted", [f"{number:,}" for number in counted]))
    for r in range(max(map(len, discounts), default=0)):
        name = f"d({r + 1})" if r + 1 < max(map(len, discounts)) else "above"
        columns.append(Column(name, [f"{d[r]:.3f}" if r < len(d) else "" for d in discounts]))
    if any(found := fallbacks(info, orders)):
        columns.append(Column("none for", found))
    return [
        Facts(rows),
        "",
        TextTable("order", [str(order) for order in range(1, orders + 1)], columns),
    ]


def by_order(info: dict[str, Any]) -> tuple[list[int], list[list[float]], dict[str, Any]]:
    """Counted n-grams and discounts of every order, empty if the metadata lack them; and the rest of the metadata."""
    rest = {name: value for name, value in info.items() if name != "ngrams"}
    orders, estimation = len(info["ngrams"]), rest.get("estimation")
    if not isinstance(estimation, dict):
        return [], [], rest
    estimation = dict(estimation)
    counted, found = estimation.get("ngrams_counted"), estimation.get("discounts")
    if not (isinstance(counted, list) and len(counted) == orders and all(type(n) is int for n in counted)):
        return [], [], rest
    try:
        discounts = [[float(d) for d in one["d"]] for one in found or ()]
    except (TypeError, KeyError, ValueError):
        return [], [], rest
    if len(discounts) == orders - 1:
        discounts.insert(0, [])  # Katz: unigrams have none
    if len(discounts) != orders:
        return [], [], rest
    del estimation["ngrams_counted"], estimation["discounts"]
    return counted, discounts, {**rest, "estimation": estimation}


def fallbacks(info: dict[str, Any], orders: int) -> list[str]:
    """For each order the counts for which Good-Turing gave no discount in (0, 1), if the metadata have them."""
    estimation = info.get("estimation")
    found = estimation.get("discounts") if isinstance(estimation, dict) else None
    lists = (
        [one.get("fallbacks") if isinstance(one, dict) else None for one in found]
        if isinstance(found, list) and len(found) == orders - 1
        else []
    )
    return [
        "",
        *(
            " ".join(str(r) for r in own) if isinstance(own, list) and all(type(r) is int for r in own) else ""
            for own in lists
        ),
    ]


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
