"""Commands of RocketMQ's mqadmin, with those of mqstore that do the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MQADMIN: Final[Mapping[str, str]] = {
    "brokerStatus": "mqstore check; the metrics of store-writer have the rest",
    "checkMsgSendRT": "mqstore bench produce TOPIC",
    "cleanExpiredCQ": "mqstore retention run",
    "cloneGroupOffset": "mqstore group clone FROM TO TOPIC",
    "clusterList": "mqstore check",
    "clusterRT": "mqstore bench produce TOPIC",
    "consumeMessage": "mqstore consume TOPIC",
    "consumerProgress": "mqstore group lag [GROUP]",
    "deleteExpiredCommitLog": "mqstore retention run",
    "deleteSubGroup": "mqstore group delete GROUP",
    "deleteTopic": "mqstore topic delete TOPIC",
    "getBrokerConfig": "mqstore config ls",
    "getConsumerConfig": "mqstore group info GROUP",
    "printMsg": "mqstore consume TOPIC",
    "printMsgByQueue": "mqstore consume TOPIC --queue N",
    "queryMsgById": "mqstore message get ID",
    "queryMsgByKey": "mqstore message find TOPIC KEY",
    "queryMsgByOffset": "mqstore consume TOPIC --queue N --from OFFSET -n 1",
    "queryMsgByUniqueKey": "mqstore message get KEY --topic TOPIC",
    "queryMsgTraceById": "mqstore message trace ID",
    "resetOffsetByTime": "mqstore group reset GROUP TOPIC --to TIME",
    "resetOffsetByTimeOld": "mqstore group reset GROUP TOPIC --to TIME",
    "sendMessage": "mqstore produce TOPIC BODY",
    "skipAccumulatedMessage": "mqstore group reset GROUP TOPIC --to latest",
    "statsAll": "mqstore group lag",
    "topicList": "mqstore topic ls",
    "topicStatus": "mqstore topic info TOPIC",
    "updateBrokerConfig": "mqstore config set NAME VALUE, which says how",
    "updateSubGroup": "mqstore group update GROUP",
    "updateTopic": "mqstore topic update TOPIC, or topic create TOPIC",
    "updateTopicPerm": "mqstore topic update TOPIC --perm 2|4|6",
}
