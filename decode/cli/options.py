"""A verb's options: a frozen dataclass whose fields are its arguments, and the page of help made from it.

    @dataclass(frozen=True, kw_only=True)
    class VerbArgs(RescoringArgs, ReportedArgs):
        '''What the verb does.

        examples:
          rescore verb DUMP
        '''

        dump: Path = argument("DUMP", "a dump's folder", Path)
        nodes: int = option("N", "nodes of a tree (default: 16)", whole(1, 4096), 16)
        wide: bool = flag("draw side by side")

Classes that it extends are options that verbs share; those with a `title` are a group of the page.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from rescore.decode.cli.values import Written, did_you_mean, path, printable

SCREEN = 60  # lines: --help of a longer page leaves out what is rarely needed
FEW = 3  # examples on such a page


class Misuse(ValueError):
    """Arguments that contradict each other, or the data that they apply to."""


@contextmanager
def value_errors_of(name: object) -> Iterator[None]:
    """Adds the name of a file, say, to ValueErrors of the block that lack it. Misuse names its options already."""
    try:
        yield
    except Misuse:
        raise
    except ValueError as error:
        raise error if str(name) in str(error) else ValueError(f"{name}: {error}") from error


def argument(
    metavar: str,
    help: str,
    parse: Callable[[str], Any] | None = None,
    *,
    several: bool = False,
    choices: Iterable[str] | None = None,
    needed: bool = True,
) -> Any:
    """A positional argument, or one or more; or, if it is not needed, any number."""
    more: dict[str, Any] = {"nargs": "+" if needed else "*"} if several else {}
    return _field(MISSING, (), help, type=parse, metavar=metavar, choices=choices, **more)


def option(
    metavar: str | tuple[str, str] | None,
    help: str,
    parse: Callable[[str], Any] | None = None,
    default: Any = None,
    *,
    required: bool = False,
    several: bool = False,
    choices: Iterable[str] | None = None,
    short: str | None = None,
    former: str | None = None,
    exclusive: str | None = None,
    rare: bool = False,
) -> Any:
    """An option, by the name of its field. metavar: two for an option of two values.

    several    may be repeated; the field has a sequence
    former     an earlier name, still understood
    exclusive  at most one option of a class with the same mark may be given
    rare       only on the page of --help-all
    """
    found = () if several and default is None else default
    if found not in (None, ()) and "(default" not in help:
        help = f"{help} (default: {found:g})" if isinstance(found, float) else f"{help} (default: {found})"
    how: dict[str, Any] = {"action": "append"} if several else {"nargs": 2} if isinstance(metavar, tuple) else {}
    more = {"type": parse, "metavar": metavar, "choices": choices, **how}
    names = (short,) if short else ()
    return _field(
        MISSING if required else found, names, help, required, rare=rare, former=former, exclusive=exclusive, **more
    )


def flag(help: str, *, rare: bool = False) -> Any:
    return _field(False, (), help, action="store_true", rare=rare)


def _field(default: Any, names: Sequence[str], help: str, required: bool = False, **metadata: Any) -> Any:
    named = {"help": help, "names": names, "positional": default is MISSING and not required, "required": required}
    return dataclasses.field(default=default, metadata={**named, **metadata})


@dataclass(frozen=True, slots=True)
class Output:
    """An output that the command line names. `option`: the option, as in messages."""

    option: str
    path: Path
    folder: bool
    in_place: bool = False


@dataclass(frozen=True, kw_only=True)
class Args:
    debug: bool = flag("show the traceback of an error")

    title: ClassVar[str] = ""
    note: ClassVar[str | None] = None

    @classmethod
    def about(cls) -> str:
        """The description and the examples."""
        return (cls.__doc__ or "").rstrip().replace("\n    ", "\n")


@dataclass(frozen=True, kw_only=True)
class ReportedArgs(Args):
    json: Path | None = option(
        "FILE", "write the results as JSON; - prints JSON instead of the table", Written(stream=True)
    )


AnyOptions = TypeVar("AnyOptions", bound=Args)


def made(kind: type[AnyOptions], found: argparse.Namespace) -> AnyOptions:
    """The options that were parsed, with the defaults of all others."""
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{name: getattr(found, name) for name in names if hasattr(found, name)})


def by_owner(kind: type[Args]) -> Iterator[tuple[type, list[dataclasses.Field[Any]]]]:
    """The classes that declare a class's fields, itself first, and their fields."""
    left = {field.name: field for field in dataclasses.fields(kind)}
    for owner in kind.__mro__:
        if own := [left.pop(name) for name in owner.__dict__.get("__annotations__", ()) if name in left]:
            yield owner, own


def outputs(kind: type[Args], found: object) -> Iterator[Output]:
    """What a verb writes, as far as its options name it: in options, or among the arguments that were parsed."""
    for field in (field for _, own in by_owner(kind) for field in own):
        how, value = field.metadata.get("type"), getattr(found, field.name, field.default)
        if isinstance(how, Written) and value is not None and value is not MISSING:
            name = field.metadata["metavar"] if field.metadata["positional"] else name_of(field)
            yield Output(name, value, how.is_folder(value), how.in_place)


def inputs(kind: type[Args], found: object) -> Iterator[Path]:
    """The files that a verb may read, as far as its options name them."""
    for field in dataclasses.fields(kind):
        if not isinstance(field.metadata.get("type"), Written):
            yield from _files_in(getattr(found, field.name, None))


def _files_in(value: Any) -> Iterator[Path]:
    """Those that an option's value names, also among several, and with weights."""
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _files_in(one)
    elif isinstance(value, (str, Path)) and os.path.isfile(value):
        yield Path(value)


def name_of(field: dataclasses.Field[Any]) -> str:
    return f"--{field.name.replace('_', '-')}"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser with one-line errors, descriptions that keep their line breaks, options that are never guessed
    from their first letters, and a page that fits a screen.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, add_help=False, **options
        )
        self.register("type", Path, path)
        self.add_argument("-h", "--help", action=_Help, nargs=0, help="show this help and exit")
        self._rare = set[argparse.Action]()
        self.in_description: list[argparse.Action] = []

    def fill(self, options: type[Args]) -> None:
        """Adds the arguments of a class of options; its own first, then those that it shares."""
        text, _, examples = options.about().partition("\nexamples:\n")
        self.description, self.epilog = text.strip(), f"examples:\n{examples}"
        self.add_argument("--help-all", action=_Help, nargs=0, help="show every option, and what is printed")
        groups: dict[str, Any] = {"": self}
        for owner, own in by_owner(options):
            title, note = owner.__dict__.get("title", ""), owner.__dict__.get("note")
            if title not in groups:
                groups[title] = self.add_argument_group(title, note)
            exclusive: dict[str, Any] = {}
            for field in own:
                if mark := field.metadata.get("exclusive"):
                    exclusive[mark] = exclusive.get(mark) or groups[title].add_mutually_exclusive_group()
                self._add(exclusive.get(mark or "", groups[title]), field)
        needed = " ".join(filter(None, map(_needed, self._actions)))
        self.usage = textwrap.fill(f"{self.prog} [options] {needed}", 72, subsequent_indent=" " * 9)

    def _add(self, group: Any, field: dataclasses.Field[Any]) -> None:
        names = ("type", "metavar", "choices", "action", "nargs", "help")
        how = {name: field.metadata[name] for name in names if field.metadata.get(name) is not None}
        if field.metadata["positional"]:
            group.add_argument(field.name, **how)
            return
        how |= {"dest": field.name, "default": argparse.SUPPRESS, "required": field.metadata["required"]}
        added = group.add_argument(*field.metadata["names"], name_of(field), **how)
        if field.metadata.get("rare"):
            self._rare.add(added)
        if former := field.metadata.get("former"):
            group.add_argument(former, **{**how, "help": argparse.SUPPRESS})

    def format_help(self, whole: bool = True) -> str:
        """The page of --help-all, or that of --help: if the whole page is longer than a screen, without rare options,
        all but the description's first paragraph, and later examples.
        """
        page = self._page(self.description, self.epilog)
        if whole or page.count("\n") <= SCREEN:
            return page
        more = f"{len(self._rare)} more options, " if self._rare else ""
        examples = "\n".join(["examples:", *self._examples()[:FEW]])
        return self._page(
            (self.description or "").partition("\n\n")[0],
            f"{examples}\n\n{self.prog} --help-all: {more}what is printed",
            hidden=self._rare,
        )

    def _page(
        self, description: str | None, epilog: str | None, hidden: Collection[argparse.Action] = frozenset()
    ) -> str:
        """Begins with the first example: the commonest call."""
        call = "".join(f"{line[2:]}\n" for one in self._examples()[:1] for line in one.split("\n"))
        formatter = self._get_formatter()
        formatter.add_text(description)
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        for group in self._action_groups:
            shown = [one for one in group._group_actions if one not in self.in_description and one not in hidden]
            formatter.start_section(group.title)
            formatter.add_text(group.description if shown else None)
            formatter.add_arguments(shown)
            formatter.end_section()
        formatter.add_text(epilog)
        return (call and f"{call}\n") + formatter.format_help()

    def _examples(self) -> list[str]:
        """The examples of the epilog, each of one or more lines."""
        _, _, text = (self.epilog or "").partition("examples:\n")
        return re.split(r"(?<!\\)\n", text) if text else []

    def error(self, message: str) -> NoReturn:
        if message.endswith(": expected one argument"):
            message += ", got none; one that starts with - is written after =, as in --option=-x"
        self.exit(2, f"{self.prog}: {printable(message)}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The arguments. Unknown ones are an error here, in the name of the verb that does not know them."""
        if self._subparsers and not args:
            self.print_help(sys.stderr)
            self.exit(2)
        self._check_known(args)  # first, as a misspelled option may be one of those that are missing
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, []

    def _check_known(self, words: Sequence[str]) -> None:
        own = itertools.takewhile(lambda word: word != "--" and not (self._subparsers and word[:1] != "-"), words)
        names = (word for word in own if word.startswith("--") and " " not in word)
        if unknown := [name for name in names if name.partition("=")[0] not in self._option_string_actions]:
            self._refuse(unknown)

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        known = [one for one in self._option_string_actions if one.startswith("--")]
        given = next((word for word in unknown if word.startswith("-")), unknown[0]).partition("=")[0]
        self.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(given, known)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), [str(one) for one in action.choices or ()])
            raise


class _Help(argparse.Action):
    """Prints the page, with --help-all the whole of it."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, name: str | None = None) -> None:
        assert isinstance(parser, Parser)
        print(parser.format_help(whole=name == "--help-all"), end="")
        parser.exit()


def _needed(action: argparse.Action) -> str:
    """An argument that must be given, as in a line of usage; "" for others."""
    name = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return f"{name} [{name} ...]" if action.nargs == "+" else name
    if not action.required:
        return ""
    return f"{action.option_strings[0]} {action.metavar or '{' + ','.join(action.choices or ()) + '}'}"
