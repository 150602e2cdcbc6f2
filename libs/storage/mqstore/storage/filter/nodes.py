"""The parts of an expression as callables over a message's properties.

The logic is three-valued as in RocketMQ: None is unknown. An expression that RocketMQ's builders
reject raises ``InvalidOperand``. Source: the expression classes of rocketmq-filter 4.9.7 and 5.4.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mqstore.storage.filter.java_values import (
    INT_MAX,
    LONG_MAX,
    EvaluationError,
    Long,
    Value,
    as_double,
    compare,
)

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
Accept = Callable[[int], bool]
"""Converts the result of ``compare`` into that of a comparison."""


class InvalidOperand(Exception):
    """An operand that the expression may not have; the text is for users.

    ``at`` is its position in the text; default: the start of the part.
    """

    def __init__(self, why: str, at: int | None = None) -> None:
        super().__init__(why)
        self.at = at


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression."""

    evaluate: Evaluate
    depth: int = 1
    is_boolean: bool = False
    is_constant: bool = False
    is_property: bool = False
    constant: Value = None
    """The value where ``is_constant``."""
    at: int = 0
    """Position in the text, from 0."""
    chain: Chain | None = None
    """The joined conditions, when the node is AND or OR."""


@dataclass(slots=True)
class Chain:
    """Conditions joined by one operator, counted as one level of depth.

    The list grows while the chain is parsed, so that a chain of n parts costs n steps.
    """

    operator: str
    conditions: list[Evaluate]
    depth: int
    """Depth of the deepest condition."""


def constant(value: Value) -> Node:
    """Build a literal; TRUE, FALSE and NULL count as boolean."""
    is_boolean = value is None or isinstance(value, bool)
    return Node(lambda _: value, is_boolean=is_boolean, is_constant=True, constant=value)


def decimal(text: str) -> Node:
    """Build an Integer, or a Long for a greater value."""
    digits = text.rstrip("lL")
    if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
        raise InvalidOperand(f"{digits[:50]} is greater than {LONG_MAX}")
    value = int(digits)
    return constant(value if value <= INT_MAX else Long(value))


def floating(text: str) -> Node:
    """Build a Double."""
    value = as_double(text)
    if value == float("inf") or value == 0:
        raise InvalidOperand(f"{text[:50]} is no number from 4.9E-324 to 1.7976931348623157E308")
    return constant(value)


def property_of(name: str) -> Node:
    """Build a read of a property."""
    return Node(lambda properties: properties.get(name), is_property=True)


def boolean(node: Node) -> Node:
    """Check a node where a condition is needed; a property by itself is never true."""
    if node.is_boolean:
        return node
    if not node.is_property:
        raise InvalidOperand("a condition is needed here, not a value", node.at)
    found = node.evaluate

    def cast(properties: Properties) -> Value:
        return None if found(properties) is None else False

    return Node(cast, node.depth + 1, is_boolean=True)


def either(left: Node, right: Node) -> Node:
    """Build OR: true if one side is, else unknown if one side is."""
    return _join("OR", left, right, stop=True)


def both(left: Node, right: Node) -> Node:
    """Build AND: false if one side is, else unknown if one side is."""
    return _join("AND", left, right, stop=False)


def _join(name: str, left: Node, right: Node, *, stop: bool) -> Node:
    left, right = boolean(left), boolean(right)
    chain = left.chain
    if chain is None or chain.operator != name:
        chain = Chain(name, [left.evaluate], left.depth)
    conditions = chain.conditions
    conditions.append(right.evaluate)  # the left node is a part of this one, and of no other
    chain.depth = max(chain.depth, right.depth)

    def evaluate(properties: Properties) -> Value:
        answer: Value = not stop
        for condition in conditions:
            found = condition(properties)
            if found is stop:
                return stop
            if found is None:
                answer = None
        return answer

    return Node(evaluate, 1 + chain.depth, is_boolean=True, chain=chain)


def inverse(node: Node) -> Node:
    """Build NOT; unknown stays unknown."""
    condition = boolean(node).evaluate

    def evaluate(properties: Properties) -> Value:
        found = condition(properties)
        return None if found is None else not found

    return Node(evaluate, node.depth + 1, is_boolean=True)


def negative(node: Node) -> Node:
    """Build unary minus; unknown for a value that is no number."""
    value = node.evaluate

    def evaluate(properties: Properties) -> Value:
        found = value(properties)
        if isinstance(found, bool) or not isinstance(found, int | float):
            return None
        return Long(-found) if isinstance(found, Long) else -found

    return Node(evaluate, node.depth + 1)


def equal(left: Node, right: Node) -> Node:
    """Build ``=``."""
    for node in (left, right):
        if node.is_constant and node.constant is None:
            raise InvalidOperand("NULL cannot be compared; say IS NULL", node.at)
    if left.is_constant and right.is_constant and left.is_boolean and not right.is_boolean:
        raise InvalidOperand("a boolean cannot be compared with that", right.at)
    return _equal(left, right)


def is_null(node: Node) -> Node:
    """Build IS NULL."""
    return _equal(node, constant(None))


def _equal(left: Node, right: Node) -> Node:
    of_left, of_right = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        a, b = of_left(properties), of_right(properties)
        if a is None or b is None:
            return True if a is b else (None if a is None else False)
        return compare(a, b) == 0

    return Node(evaluate, 1 + max(left.depth, right.depth), is_boolean=True)


def ordering(left: Node, right: Node, accept: Accept) -> Node:
    """Build ``<``, ``<=``, ``>`` or ``>=`` over numbers, and strings that are numbers."""
    for node in (left, right):
        is_number = isinstance(node.constant, int | float) and not node.is_boolean
        if node.is_boolean or (node.is_constant and not is_number):
            raise InvalidOperand("only numbers and properties can be ordered", node.at)
    of_left, of_right = left.evaluate, right.evaluate

    def evaluate(properties: Properties) -> Value:
        a = of_left(properties)
        if a is None:
            return None
        b = of_right(properties)
        if b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            a, b = as_double(a), as_double(b)
        return accept(compare(a, b))

    return Node(evaluate, 1 + max(left.depth, right.depth), is_boolean=True)


def between(value: Node, low: Node, high: Node) -> Node:
    """Build BETWEEN."""
    if low.is_constant and high.is_constant:
        _check_range(low.constant, high.constant)
    at_least = ordering(value, low, lambda order: order >= 0)
    return both(at_least, ordering(value, high, lambda order: order <= 0))


def not_between(value: Node, low: Node, high: Node) -> Node:
    """Build NOT BETWEEN."""
    below = ordering(value, low, lambda order: order < 0)
    return either(below, ordering(value, high, lambda order: order > 0))


def _check_range(low: Value, high: Value) -> None:
    if low is None or high is None:
        raise InvalidOperand("the ends of BETWEEN cannot be NULL")
    try:
        is_empty = compare(high, low) < 0
    except EvaluationError as error:
        raise InvalidOperand(str(error)) from error
    if is_empty:
        raise InvalidOperand("the first end of BETWEEN is above the second")


def one_of(node: Node, texts: Sequence[str], *, inverted: bool) -> Node:
    """Build IN or NOT IN over a property."""
    if not node.is_property:
        raise InvalidOperand("IN is said of a property only")
    found, wanted = node.evaluate, frozenset(texts)

    def evaluate(properties: Properties) -> Value:
        text = found(properties)
        return None if text is None else (text in wanted) is not inverted

    return Node(evaluate, node.depth + 1, is_boolean=True)


def has_text(node: Node, test: Callable[[str], bool], searched: str, *, inverted: bool) -> Node:
    """Build CONTAINS, STARTSWITH, ENDSWITH or their NOT: false for ``''`` and values that are no
    string."""
    value = node.evaluate

    def evaluate(properties: Properties) -> Value:
        text = value(properties)
        if not searched or not isinstance(text, str):
            return False
        return test(text) is not inverted

    return Node(evaluate, node.depth + 1, is_boolean=True)
