"""Compiles SQL92 expressions over a message's properties, with a cache.

The grammar is that of SelectorParser of rocketmq-filter; CONTAINS, STARTSWITH and ENDSWITH are of
5.x, in 4.9 they are names. Text after a whole expression is rejected; RocketMQ ignores it.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from threading import Lock
from types import SimpleNamespace
from typing import Final

from lark import Lark, Token, UnexpectedInput, UnexpectedToken

from mqstore.storage.errors import FilterError
from mqstore.storage.filter import nodes
from mqstore.storage.filter.java_values import EvaluationError
from mqstore.storage.filter.nodes import InvalidOperand, Node, Properties
from mqstore.storage.layout import StoreFormat

EXPRESSION_LENGTH_MAX: Final = 4_096
"""Maximum length of an expression in characters."""
DEPTH_MAX: Final = 100
"""Maximum nesting of an expression's parts."""
COMPILED_SIZE_MAX: Final = 32 << 20
"""Maximum size of the cached expressions in bytes, as estimated by ``Filter.size``."""
_SIZE_PER_CHARACTER: Final = 256
"""Upper bound in bytes; 4,091 characters of short comparisons measured 487,000 to 700,000."""
_SIZE_MIN: Final = 1_024

_GRAMMAR: Final = r"""
start: _or
_or: or | _and
or: _or _OR _and
_and: and | _equality
and: _and _AND _equality
_equality: equal | not_equal | is_null | is_not_null | _comparison
equal: _equality "=" _comparison
not_equal: _equality "<>" _comparison
is_null: _equality _IS NULL
is_not_null: _equality _IS _NOT NULL
_comparison: above | at_least | below | at_most | between | not_between | in_list | not_in_list
  | _unary %TEXTS
above: _comparison ">" _unary
at_least: _comparison ">=" _unary
below: _comparison "<" _unary
at_most: _comparison "<=" _unary
between: _comparison _BETWEEN _unary _AND _unary
not_between: _comparison _NOT _BETWEEN _unary _AND _unary
in_list: _comparison _IN "(" STRING ("," STRING)* ")"
not_in_list: _comparison _NOT _IN "(" STRING ("," STRING)* ")"
_unary: "+" _unary | negative | inverse | _primary
negative: "-" _unary
inverse: _NOT _unary
_primary: true | false | null | decimal | floating | string | property | "(" _or ")"
true: TRUE
false: FALSE
null: NULL
decimal: DECIMAL
floating: FLOATING
string: STRING
property: NAME

FLOATING.3: /[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
DECIMAL.2: /0|[1-9][0-9]*[lL]?/
STRING: /'(''|[^'])*'/
NAME.1: /[a-zA-Z_$][a-zA-Z0-9_$]*/
SPACE: /[ \t\n\r\f]+/
LINE_COMMENT.3: /--[^\n\r]*[\n\r]/
BLOCK_COMMENT.3: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
%ignore SPACE
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
"""
_KEYWORDS: Final = ("_NOT", "_AND", "_OR", "_BETWEEN", "_IN", "_IS", "TRUE", "FALSE", "NULL")
_TEXTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_Make = Callable[..., Node]


class Filter:
    """A compiled expression. Immutable; any thread."""

    def __init__(self, text: str, root: Node) -> None:
        self.text = text
        self._evaluate = root.evaluate

    @property
    def size(self) -> int:
        """Upper estimate of its memory in bytes."""
        return _SIZE_MIN + _SIZE_PER_CHARACTER * len(self.text)

    def evaluate(self, properties: Properties) -> bool | None:
        """Evaluate to true, false, or None for unknown.

        Raises EvaluationError where RocketMQ throws.
        """
        answer = self._evaluate(properties)
        assert answer is None or isinstance(answer, bool)
        return answer

    def matches(self, properties: Properties) -> bool:
        """Whether a message with these properties matches."""
        try:
            return self._evaluate(properties) is True
        except EvaluationError:
            return False


class FilterCache:
    """The compiled expressions that were used last, with bounded memory. Thread-safe."""

    def __init__(self, size_max: int) -> None:
        """``size_max`` is in bytes, as ``Filter.size`` estimates them."""
        self._size_max = size_max
        self._lock = Lock()
        self._filters: OrderedDict[tuple[str, StoreFormat], Filter] = OrderedDict()
        self.size = 0

    def get(self, text: str, store_format: StoreFormat) -> Filter | None:
        """The compiled expression, or None when it is not cached."""
        with self._lock:
            found = self._filters.get((text, store_format))
            if found is not None:
                self._filters.move_to_end((text, store_format))
            return found

    def add(self, found: Filter, store_format: StoreFormat) -> Filter:
        """Add a filter; returns the cached one, which another thread may have added before."""
        with self._lock:
            kept = self._filters.setdefault((found.text, store_format), found)
            if kept is found:
                self.size += found.size
            while self.size > self._size_max:
                _, oldest = self._filters.popitem(last=False)
                self.size -= oldest.size
            return kept


_compiled: Final = FilterCache(COMPILED_SIZE_MAX)
find_compiled: Final = _compiled.get
"""The cached expression, or None."""


def compile_expression(text: str, store_format: StoreFormat) -> Filter:
    """Compile an expression, or find it in the cache; takes up to 50 ms of CPU.

    Raises FilterError, which names the column.
    """
    return find_compiled(text, store_format) or _compiled.add(
        _compile(text, store_format), store_format
    )


def _compile(text: str, store_format: StoreFormat) -> Filter:
    if len(text) > EXPRESSION_LENGTH_MAX:
        raise FilterError(
            f"the expression has {len(text)} characters, at most {EXPRESSION_LENGTH_MAX} are read",
            EXPRESSION_LENGTH_MAX + 1,
        )
    try:
        root = _parser(store_format).parse(text)
    except UnexpectedInput as error:
        raise FilterError(*_unexpected(text, error)) from None
    assert isinstance(root, Node)  # the transformer builds no tree
    return Filter(text, root)


@lru_cache(len(StoreFormat))
def _parser(store_format: StoreFormat) -> Lark:
    texts = _TEXTS if store_format is StoreFormat.V5_X else ()
    rules = {f"{name.lower()}": f"_{name}" for name in texts}
    rules |= {f"not_{name.lower()}": f"_NOT _{name}" for name in texts}
    keywords = [*_KEYWORDS, *(f"_{name}" for name in texts)]
    grammar = [
        _GRAMMAR.replace("%TEXTS", "".join(f"| {name} " for name in rules)),
        *(f"{name}: _comparison {words} STRING" for name, words in rules.items()),
        *(f"{name}.2: /{_any_case(name)}(?![a-zA-Z0-9_$])/" for name in keywords),
    ]
    return Lark(
        "\n".join(grammar),
        parser="lalr",
        lexer="basic",  # a keyword is reserved in every position
        transformer=SimpleNamespace(**{rule: partial(_build, m) for rule, m in _MAKERS.items()}),
    )


def _any_case(keyword: str) -> str:
    return "".join(f"[{letter}{letter.lower()}]" for letter in keyword.removeprefix("_"))


def _unexpected(text: str, error: UnexpectedInput) -> tuple[str, int]:
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return "the expression ends too soon", len(text) + 1
    position = error.pos_in_stream or 0
    return f"{text[position : position + 20]!r} is not expected here", position + 1


def _text_of(string: Token) -> str:
    return string[1:-1].replace("''", "'")


def _make_ordering(accept: nodes.Accept) -> _Make:
    return lambda left, right: nodes.ordering(left, right, accept)


def _in_list(*, inverted: bool) -> _Make:
    def make(node: Node, *strings: Token) -> Node:
        return nodes.one_of(node, [_text_of(each) for each in strings], inverted=inverted)

    return make


def _has_text(test: Callable[[str, str], bool], *, inverted: bool) -> _Make:
    def make(node: Node, string: Token) -> Node:
        searched = _text_of(string)
        return nodes.has_text(node, lambda text: test(text, searched), searched, inverted=inverted)

    return make


_MAKERS: Final[dict[str, _Make]] = {
    "start": nodes.boolean,
    "or": nodes.either,
    "and": nodes.both,
    "equal": nodes.equal,
    "not_equal": lambda left, right: nodes.inverse(nodes.equal(left, right)),
    "is_null": lambda node, _: nodes.is_null(node),
    "is_not_null": lambda node, _: nodes.inverse(nodes.is_null(node)),
    "above": _make_ordering(lambda order: order > 0),
    "at_least": _make_ordering(lambda order: order >= 0),
    "below": _make_ordering(lambda order: order < 0),
    "at_most": _make_ordering(lambda order: order <= 0),
    "between": nodes.between,
    "not_between": nodes.not_between,
    "in_list": _in_list(inverted=False),
    "not_in_list": _in_list(inverted=True),
    "negative": nodes.negative,
    "inverse": nodes.inverse,
    "true": lambda _: nodes.constant(True),
    "false": lambda _: nodes.constant(False),
    "null": lambda _: nodes.constant(None),
    "decimal": nodes.decimal,
    "floating": nodes.floating,
    "string": lambda token: nodes.constant(_text_of(token)),
    "property": lambda token: nodes.property_of(str(token)),
    "contains": _has_text(operator.contains, inverted=False),
    "not_contains": _has_text(operator.contains, inverted=True),
    "startswith": _has_text(str.startswith, inverted=False),
    "not_startswith": _has_text(str.startswith, inverted=True),
    "endswith": _has_text(str.endswith, inverted=False),
    "not_endswith": _has_text(str.endswith, inverted=True),
}
"""The function that builds the node of each rule of the grammar."""


def _build(make: _Make, parts: list[Node | Token]) -> Node:
    """Build a node; the parser calls it bottom-up, so that no tree is recursed over.

    Raises FilterError with the position at which the part begins.
    """
    first = parts[0]
    at = first.at if isinstance(first, Node) else first.start_pos or 0
    try:
        node = make(*parts)
    except InvalidOperand as error:
        raise FilterError(str(error), (at if error.at is None else error.at) + 1) from None
    if node.depth > DEPTH_MAX:
        raise FilterError(f"more than {DEPTH_MAX} parts stand in each other", at + 1)
    return replace(node, at=at)
