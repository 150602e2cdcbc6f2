"""Every setting that RocketMQ takes from its files is accepted in a settings file of ours."""

from __future__ import annotations

import pytest

from mqstore.storage import broker_settings
from tests.compat.referee import Referee

pytestmark = pytest.mark.referee


@pytest.mark.slow
def test_every_setting_of_a_broker_is_known_by_its_name(referee: Referee) -> None:
    found = referee.properties()
    assert {"brokerId", "brokerRole", "namesrvAddr", "listenPort", "deleteWhen"} <= found
    assert found - broker_settings.NAMES == set()
