"""Routes by which producers say where they are asked about their transactions."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import Depends, Query
from fastapi import Path as PathParameter

from mqstore.coordinator.models import Callback, ProducerList, ProducerView
from mqstore.coordinator.producers import Producer, Producers, TooManyProducers
from mqstore.coordinator.service import CoordinatorService
from mqstore.coordinator.targets import Allowed, TargetRefused
from mqstore.service import problems
from mqstore.service.app import Api
from mqstore.service.auth import Role
from mqstore.service.problems import Problem, responses
from mqstore.storage.codec import topic_names

_BASE: Final = "/v1/producers"
_ONE: Final = _BASE + "/{group}/{name}"
Group = Annotated[str, PathParameter(min_length=1, max_length=120, description="Producer group.")]
Name = Annotated[
    str,
    PathParameter(
        pattern="^[A-Za-z0-9._-]{1,100}$", description="The producer's own, within its group."
    ),
]


class ProducerRoutes:
    """Registrations; a standby passes them on to the leader, who alone keeps them."""

    def __init__(self, service: CoordinatorService, allowed: Allowed) -> None:
        self._service = service
        self._allowed = allowed

    @property
    def _producers(self) -> Producers:
        return self._service.producers

    def add(self, api: Api) -> None:
        for method, path, endpoint, summary, role, kinds in (
            ("PUT", _ONE, self.register, "Register a callback", Role.PRODUCE, _REGISTERING),
            ("DELETE", _ONE, self.remove, "End it", Role.PRODUCE, (problems.PRODUCER_UNKNOWN,)),
            ("GET", _BASE, self.producers, "Registered producers", Role.ADMIN, ()),
        ):
            no_content = method == "DELETE"
            api.app.add_api_route(
                path,
                endpoint,
                methods=[method],
                summary=summary,
                status_code=HTTPStatus.NO_CONTENT if no_content else HTTPStatus.OK,
                responses=responses(
                    *kinds,
                    problems.OVERLOADED,
                    problems.COORDINATOR_NOT_READY,
                    *problems.GUARDED,
                ),
                tags=["checks"],
                dependencies=[
                    api.requires(role),
                    Depends(self._service.forwarder.here_or_there),
                ],
                name=f"{endpoint.__name__}_producer" if path == _ONE else endpoint.__name__,
            )

    async def register(self, group: Group, name: Name, callback: Callback) -> ProducerView:
        """Transactions of the group are asked about there: a POST with the transaction as
        `GET /v1/transactions/{id}` shows it, answered by 200 and
        `{"decision": "commit" | "rollback" | "unknown"}`. Register again before the lease is over,
        as RocketMQ's producers do every 30 s: a new leader knows only who has done so since."""
        topic_names.check_group(group)
        try:
            target = await self._allowed.target(callback.url)
            made = self._producers.register(
                group, name, target, callback.secret, callback.lease_seconds
            )
        except TargetRefused as error:
            raise Problem(problems.CALLBACK_REFUSED, str(error)) from None
        except TooManyProducers as error:
            raise Problem(problems.OVERLOADED, str(error)) from None
        return self._view(made)

    async def remove(self, group: Group, name: Name) -> None:
        """It is not asked any more."""
        if not self._producers.remove(group, name):
            raise Problem(problems.PRODUCER_UNKNOWN, f"group {group} has no producer {name}")

    async def producers(
        self, group: Annotated[str | None, Query(max_length=255)] = None
    ) -> ProducerList:
        """Their secrets are not shown."""
        found = [each for each in self._producers if group in (None, each.group)]
        return ProducerList(producers=[self._view(each) for each in found])

    def _view(self, producer: Producer) -> ProducerView:
        return ProducerView(
            producer_group=producer.group,
            name=producer.name,
            url=str(producer.target.url),
            address=producer.target.address,
            expires_in=self._producers.seconds_left(producer),
            failures=producer.failures,
            detail=producer.trouble,
        )


_REGISTERING: Final = (
    problems.CALLBACK_REFUSED,
    problems.TOPIC_INVALID,
    *problems.WITH_BODY,
)
