"""What the comparisons with real RocketMQ share: the referees, and how many random stores.

MQSTORE_COMPAT_EXAMPLES and MQSTORE_COMPAT_MESSAGES set the number of random stores for each version
and direction, and their size; the defaults keep `make test` short.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.referee import VERSIONS, Referee, missing


@pytest.fixture(scope="session", params=VERSIONS)
def referee(request: pytest.FixtureRequest) -> Iterator[Referee]:
    why = missing()
    if why is not None:
        pytest.skip(why)
    referee = Referee(request.param)
    yield referee
    referee.close()
