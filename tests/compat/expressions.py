"""Seeded filter expressions and properties: usual ones, unusual ones, and invalid ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

Form = Callable[[], str]
NAMES: Final = ("a", "b", "_c", "$d", "Abc9", "TAGS", "missing")
TEXTS: Final = (
    *("", "a", "abc", "b", "''", "it''s", "true", "TRUE", "false", "null", "x y", "ä", "主题"),
    *("0", "1", "5", "-5", "+5", "007", "5.0", "5.5", " 5 ", "5 ", "1e2", "1E400", "-1e400", ".5"),
    *("5.", "5d", "5F", "0x10", "0x1p3", "-0x.8P-1", "NaN", "-NaN", "Infinity", "-Infinity"),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807"),
    *(
        "9223372036854775808",
        "-9223372036854775809",
        "-0",
        "-0.0",
        "0.0",
        "1_000",
        "\u0663",
        "\uff15",
        "\U0001d7d3",
    ),
    *("1" * 40, "0" * 30 + "5", "4.9E-324", "1e-400", "1.7976931348623157E308", "inf", "nan", "+"),
)
NUMBERS: Final = (
    *("0", "1", "5", "10", "007", "5L", "5l", "0L", "2147483647", "2147483648", "4294967296"),
    *("9223372036854775807", "9223372036854775808", "5.5", "5.", ".5", "1e2", "1.5E-3", "0.0"),
    *("1e400", "1e-400", "5.0", "4.9E-324"),
)
WORDS: Final = (
    *("AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS"),
    *("STARTSWITH", "ENDSWITH", "=", "<>", "<", "<=", ">", ">=", "(", ")", ",", "+", "-", "--"),
    *("--x\n", "/* x */", "/*", "?", "!=", "'", ".", "\t", "\n", "1AND", "12abc", "5OR", "NOTx"),
)


class Expressions:
    """Draws from one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def draw(self) -> str:
        kind = self.rng.random()
        if kind < 0.75:
            return self.condition(self.rng.randrange(4))
        if kind < 0.9:
            return self.damaged(self.condition(2))
        return self.soup()

    def properties(self) -> dict[str, str]:
        names = [name for name in NAMES[:-1] if self.rng.random() < 0.7]
        return {name: self.text() for name in names}

    def text(self) -> str:
        return self.rng.choice(TEXTS).replace("''", "'")

    def condition(self, depth: int) -> str:
        if depth == 0:
            return self.simple()
        rng, inner = self.rng, depth - 1
        forms: list[Form] = [
            lambda: f"{self.condition(inner)} {self.word('AND')} {self.condition(inner)}",
            lambda: f"{self.condition(inner)} {self.word('OR')} {self.condition(inner)}",
            lambda: f"{self.word('NOT')} {self.condition(inner)}",
            lambda: f"({self.condition(inner)})",
            lambda: f"({self.condition(inner)}) = {self.value()}",
            lambda: f"({self.condition(inner)}) IS NULL",
            lambda: f"NOT ({self.condition(inner)})",
            lambda: f"({self.condition(inner)}) AND NOT ({self.condition(inner)})",
            self.simple,
        ]
        return rng.choice(forms)()

    def simple(self) -> str:
        rng, left = self.rng, self.value()
        operation = rng.choice(["=", "<>", "<", "<=", ">", ">="])
        forms: list[Form] = [
            *[lambda: f"{left}{rng.choice(['', ' '])}{operation} {self.value()}"] * 5,
            lambda: f"{left} {self.negated()}BETWEEN {self.value()} AND {self.value()}",
            lambda: f"{left} {self.negated()}BETWEEN {rng.randrange(9)} AND {rng.randrange(9)}",
            lambda: f"{left} {self.negated()}{self.word('IN')} ({self.strings()})",
            lambda: f"{left} {self.negated()}CONTAINS {self.string()}",
            lambda: f"{left} {self.negated()}STARTSWITH {self.string()}",
            lambda: f"{left} {self.negated()}endswith {self.string()}",
            lambda: f"{left} IS {self.negated()}NULL",
            lambda: self.value(),
        ]
        return rng.choice(forms)()

    def value(self) -> str:
        rng = self.rng
        forms: list[Form] = [
            *[lambda: rng.choice(NAMES)] * 6,
            *[lambda: rng.choice(NUMBERS)] * 4,
            *[self.string] * 2,
            lambda: rng.choice(["TRUE", "false", "NULL"]),
            lambda: rng.choice("+-") + self.value(),
            lambda: f"({self.value()})",
        ]
        return rng.choice(forms)()

    def strings(self) -> str:
        return ", ".join(self.string() for _ in range(self.rng.randint(1, 6)))

    def string(self) -> str:
        return "'" + self.rng.choice(TEXTS) + "'"

    def negated(self) -> str:
        return self.rng.choice(["", "NOT "])

    def word(self, word: str) -> str:
        return self.rng.choice([word, word.lower(), word.title()])

    def damaged(self, text: str) -> str:
        at = self.rng.randrange(len(text) + 1)
        return text[:at] + self.rng.choice([*WORDS, ""]) + text[at + self.rng.randrange(3) :]

    def soup(self) -> str:
        rng = self.rng
        pieces = (*WORDS, *NAMES, *NUMBERS, "'x'")
        return rng.choice([" ", ""]).join(rng.choice(pieces) for _ in range(rng.randrange(9)))
