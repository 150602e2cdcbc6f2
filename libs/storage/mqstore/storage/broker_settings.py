"""Settings of a real broker that mqstore does not have: names, and values that are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mqstore.storage.config import StoreConfig
from mqstore.storage.service_settings import ServiceSettings
from mqstore.storage.setting_names import fields_by_name, fold, is_setting

# Every property that a broker, its embedded controller or a name server of 4.9.7 or 5.4.0 sets from
# its file: the setters of BrokerConfig, NettyServerConfig, NettyClientConfig, MessageStoreConfig,
# NamesrvConfig, AuthConfig, ControllerConfig and the tiered store's MessageStoreConfig, read from
# the released jars, two of BrokerStartup; and the fields that a broker writes into its file when a
# setting is changed while it runs. tests/compat/test_broker_settings.py compares.
_PROPERTIES: Final = """
accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable
accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable adminBrokerThreadPoolNums
adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet allowRecallWhenBrokerNotWriteable
appendAckAsync appendCkAsync appendTopicForTimerDeleteKey asyncLearner asyncSendEnable
authConfigPath authenticationEnabled authenticationMetadataProvider authenticationProvider
authenticationStrategy authenticationWhitelist authorizationEnabled authorizationMetadataProvider
authorizationProvider authorizationStrategy authorizationWhitelist autoCreateSubscriptionGroup
autoCreateTopicEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen
batchDispatchRequestThreadPoolNums bindAddress bitMapLengthConsumeQueueExt
bottomMostCompressionTypeForConsumeQueueStore broadcastOffsetExpireMaxSecond
broadcastOffsetExpireSecond brokerClusterName brokerConfigPath brokerElectionPriority
brokerFastFailureEnable brokerHeartbeatInterval brokerIP1 brokerIP2 brokerId brokerName
brokerNotActiveTimeoutMillis brokerPermission brokerRole brokerTopicEnable cgColdReadThreshold
channelExpiredTimeout channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod
cleanFileForciblyEnable cleanOfflineBrokerInterval cleanResourceInterval
cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic
clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
clientCloseSocketIfTimeout clientManageThreadPoolNums clientManagerThreadPoolQueueCapacity
clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable clientRequestThreadPoolNums
clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads clusterName clusterTest clusterTopicEnable coldCtrStrategyEnable
coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType combineCQEnableCheckSelf
combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType
commercialBaseCount commercialBigCount commercialEnable commercialSizePerMsg commercialTimerCount
commercialTransCount commitCommitLogLeastPages commitCommitLogThoroughInterval
commitIntervalCommitLog commitLogForceSwapMapInterval commitLogRecoverMaxNum
commitLogRollingInterval commitLogRollingMinimumSize commitLogSwapMapInterval
commitLogSwapMapReserveFileNum compactionCqMappedFileSize compactionMappedFileSize
compactionScheduleInternal compactionThreadNum compatibleWithOldNameSrv compressedRegister
configBlackList configManagerVersion configName configStorePath connectTimeoutMillis
consumerFallbehindThreshold consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity
consumerOffsetUpdateVersionStep controllerAddr controllerDLegerGroup controllerDLegerPeers
controllerDLegerSelfId controllerHeartBeatTimeoutMills controllerRequestThreadPoolQueueCapacity
controllerStorePath controllerThreadPoolNums controllerType correctLogicMinOffsetForceInterval
correctLogicMinOffsetSleepInterval dLegerGroup dLegerPeers dLegerSelfId dataReadAheadEnable
debugLockEnable defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum
defaultThreadPoolNums defaultThreadPoolQueueCapacity defaultTopicQueueNums
delayOffsetUpdateVersionStep deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval
deleteFileBatchMax deleteTopicWithBrokerRegistration deleteWhen destroyMapedFileIntervalForcibly
disableCallbackExecutor disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup
disappearTimeAfterStart diskFallRecorded diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
duplicationEnable electMasterMaxRetryCount enableAcceleratedRecovery enableAllTopicList
enableAsyncReput enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore
enableBuildConsumeQueueConcurrently enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction
enableConnectionMetrics enableConsumeQueueExt enableControllerInNamesrv enableControllerMode
enableCreateSysGroup enableDLegerCommitLog enableDetailStat enableElectUncleanMaster
enableFastChannelEventProcess enableLagAndDlqMetrics enableLmq enableLmqStats
enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics enableMixedMessageType
enableMultiDispatch enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
enableNotifyBeforePopCalculateLag enablePopBatchAck enablePopBufferMerge enablePopLog
enablePopMessageThreshold enablePopMetrics enablePropertyFilter enableReconnectForGoAway
enableRegisterProducer enableRemoteEscape enableRemotingMetrics enableRequestMetrics
enableRetryTopicV2 enableRocksDBLog enableRunningFlagsInFlush enableScheduleAsyncDeliver
enableScheduleMessageStats enableShutdownGracefully enableSingleTopicRegister
enableSkipLongAwaitingAck enableSlaveActingMaster enableSplitMetadata enableSplitRegistration
enableStatsMetrics enableTopicList enableTransactionMetrics enabledAppendPropCRC
endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
fileReservedTime filterDataCleanTimeSpan filterServerNums filterSupportRetry
flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushConsumerOffsetHistoryInterval
flushConsumerOffsetInterval flushDelayOffsetInterval flushDiskType flushIntervalCommitLog
flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC
forwardTimeout globalColdReadThreshold haFlowControlEnable haHousekeepingInterval haListenPort
haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval
haSlaveFallbehindMax haTransferBatchSize heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
highSpeedMode inBrokerContainer inSyncReplicas indexFileReadEnable indexFileWriteEnable
indexRocksDBEnable initAuthenticationUser initPopOffsetByCheckMsgInMem
innerClientAuthenticationCredentials isBrokerContainer isEnableBatchPush isInBrokerContainer
isProcessReadEvent isScanAvailableNameSrv isolateLogEnable jraftConfig kvConfigPath listenPort
litePullMessageEnable litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
loadBalancePollNameServerInterval loadBalanceProcessorThreadPoolNums
loadBalanceThreadPoolQueueCapacity lockInStrictMode logicQueueForceSwapMapInterval
logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold
longPollingEnable mappedFileSize mappedFileSizeCommitLog mappedFileSizeConsumeQueue
mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog mappedFileSwapEnable
mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests maxBatchDeleteFilesNum maxChecksumRange
maxConsumeQueueScan maxDelayTime maxErrorRateOfBloomFilter maxFilterMessageSize
maxHaTransferByteInSecond maxHashSlotNum maxIndexNum maxLmqConsumeQueueNum maxMessageSize
maxMsgsNumBatch maxOffsetMapSize maxPopPollingSize maxReconnectIntervalTimeSeconds
maxRecoveryCommitlogFiles maxRocksDBIndexQueryDays maxSlaveResendLength maxStatsIdleTimeInMinutes
maxTopicLength maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushIntervalMs
messageDelayLevel messageIndexEnable messageIndexSafe messageStorePlugIn
metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled minInSyncReplicas
msgTraceTopicName namesrvAddr needWaitForService notifyBrokerRoleChanged
notifyConsumerIdsChangedEnable notifyMinBrokerIdChanged objectStoreAccessKey objectStoreBucket
objectStoreEndpoint objectStoreSecretKey offsetCheckInSlave orderMessageEnable
osPageCacheBusyTimeOutMills popCkMaxBufferSize popCkOffsetMaxQueueSize popCkStayBufferTime
popCkStayBufferTimeOut popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
popConsumerKVServiceLog popFromRetryProbability popFromRetryProbabilityForPriority
popInflightMessageThreshold popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds
popPollingMapSize popPollingSize popResponseReturnActualRetryTopic popReviveConcurrency
popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead preferredLeaderId printChannelGroups
printChannelGroupsMinNum priorityOrderAsc processReadEvent processReplyMessageThreadPoolNums
productEnvName pullBatchMaxMessageCount pullMessageThreadPoolNums pullThreadPoolQueueCapacity
putConsumeQueueDataByFileChannel putMessageFutureThreadPoolNums putMessageTimeout
putMsgIndexHightWater putThreadPoolQueueCapacity queryMessageThreadPoolNums
queryThreadPoolQueueCapacity readAheadCacheEnable readAheadCacheExpireDuration
readAheadCacheSizeThresholdRate readAheadMessageCountThreshold readAheadMessageSizeThreshold
readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange
realTimePersistRocksDBConfig recallMessageEnable recheckReputOffsetFromCq recordGetMessageResult
recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval regionId
registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable
rejectTransactionMessage replicasPerDiskPartition replyThreadPoolQueueCapacity
retrieveMessageFromPopRetryTopicV1 returnOrderTopicConfigToBroker reviveAckWaitMs reviveInterval
reviveMaxSlow reviveQueueNum reviveScanTime rmqAddressServerDomain rmqAddressServerSubGroup
rocketmqHome rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
rocksdbWalFileRollingThreshold sampleCountThreshold sampleSteps scanAvailableNameSrv
scanInactiveMasterInterval scanNotActiveBrokerInterval scheduleAsyncDeliverMaxPendingLimit
scheduleAsyncDeliverMaxResendNum2Blocked searchBcqByCacheEnable sendHeartbeatTimeoutMillis
sendMessageThreadPoolNums sendThreadPoolQueueCapacity serverAsyncSemaphoreValue
serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable
serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
serverWorkerThreads sharedByteBufferNum shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline
skipWhenCKRePutReachMaxTimes slaveReadEnable slaveTimeout socksProxyConfig
spinLockCollisionRetreatOptimalDegree splitMetadataSize splitRegistrationSize
startAcceptSendRequestTimeStamp statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond
statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
statefulAuthorizationCacheMaxNum storePathBrokerIdentity storePathCommitLog
storePathDLedgerCommitLog storePathEpochFile storePathRootDir storeReplyMessageEnable storeType
subscriptionExpiredTimeout supportActingMaster syncBrokerMemberGroupPeriod syncBrokerMetadataPeriod
syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile syncMasterFlushOffsetWhenStartup
tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel
tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable
tieredStoreDeleteFileEnable tieredStoreDeleteFileInterval tieredStoreFilePath
tieredStoreFileReservedTime tieredStoreGroupCommit tieredStoreGroupCommitCount
tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout tieredStoreIndexFileMaxHashSlotNum
tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
timerCheckMetricsWhen timerColdDataCheckIntervalMs timerCongestNumEachSlot timerEnableCheckMetrics
timerEnableDisruptor timerEnableRetryUntilSuccess timerFlushIntervalMs timerGetMessageThreadNum
timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold timerPrecisionMs
timerProgressLogIntervalMs timerPutMessageThreadNum timerRecallToTimeWheelEnable
timerRecallToTimelineEnable timerRocksDBEnable timerRocksDBPrecisionMs timerRocksDBRollIntervalHours
timerRocksDBRollMaxTps timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
timerRollWindowSlot timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable
timerWheelEnable timerWheelSnapshotFlush timerWheelSnapshotIntervalMs topicQueueLockNum
totalReplicas traceOn traceTopicEnable transRocksDBEnable transWriteOriginTransHalfEnable
transactionCheckInterval transactionCheckMax transactionMetricFlushInterval
transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut transferMsgByHeap
transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
unRegisterBrokerQueueCapacity updateNameServerAddrPeriod useABSLock useEpollNativeSelector
usePIDColdCtrStrategy useReentrantLockWhenPutMessage useSeparateRetryQueue useServerSideResetOffset
useSingleRocksDBForAllConfigs useStaticSubscription useTLS userCacheExpiredSecond userCacheMaxNum
userCacheRefreshSecond validateSystemTopicWhenUpdateTopic waitSecondsForService
waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage warmMapedFileEnable
writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
"""
NAMES: Final = frozenset(_PROPERTIES.split())
_PROPERTY_NAMES: Final = {fold(name): name for name in NAMES}

_CONTROLLER: Final = (
    "mqstore has no controller: remove the line, and set brokerRole=SYNC_MASTER where replies are "
    "to wait for replicas"
)
_SLAVE: Final = (
    "the file is a slave's, whose store is a copy of its master's: name its master in "
    "haMasterAddress to follow it, or use the master's file on the master's store"
)
_LONG_NAMES: Final = """
brokerId filterDataCleanTimeSpan flushDelayOffsetInterval haMaxTimeSlaveNotCatchup
maxHaTransferByteInSecond osPageCacheBusyTimeOutMills transactionCheckInterval transactionTimeOut
"""
_LONGS: Final = frozenset(_LONG_NAMES.split())
"""Settings that a broker reads as integers of 64 bits; of 32 bits are the other integers."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_SPACE: Final = "".join(map(chr, range(0x21)))
"""Characters that Java removes from both ends of a string."""


@dataclass(frozen=True, slots=True)
class Handled:
    """A setting of brokers that mqstore does not obey, and must not pass over in silence."""

    name: str
    harmless: tuple[str, ...]
    """The values, in small letters, with which it needs nothing."""
    why: str
    is_refused: bool = False
    """Whether any other value is refused; else it is named, and the store is served."""
    concerns_copies: bool = True
    """Whether it matters to a store that copies the broker's log and tables, not its files."""


def _refused(name: str, harmless: str, why: str, *, copies: bool = False) -> Handled:
    return Handled(name, tuple(harmless.split("|")), why, True, concerns_copies=copies)


def _named(name: str, harmless: str, why: str, *, copies: bool = True) -> Handled:
    return Handled(name, tuple(harmless.split("|")), why, concerns_copies=copies)


_NO_ACL: Final = "RocketMQ's users and rules are not applied: give applications tokens"
HANDLED: Final = (
    _refused("brokerRole", "async_master|sync_master", _SLAVE),
    _refused("brokerId", "0|-1", _SLAVE),
    _refused(
        "enableDLegerCommitLog", "false", "DLedger's log has a format that mqstore does not read"
    ),
    _refused(
        "duplicationEnable",
        "false",
        "a broker with it waits for no slave, and shows consumers nothing beyond an offset that "
        "another program confirms; mqstore would do both: remove the line",
    ),
    _refused("enableControllerMode", "false", _CONTROLLER),
    _refused(
        "storeType",
        "default",
        "mqstore keeps queues and tables in files, not in RocksDB: let the broker write its tables "
        "with `mqadmin rocksDBConfigToJson`, and start it once with storeType=default",
    ),
    _refused(
        "rocksdbCQDoubleWriteEnable",
        "false",
        "queues are written to RocksDB too, among the files of consumequeue/: start the broker "
        "once with false, stop it, and remove the RocksDB files",
    ),
    _refused(
        "configManagerVersion",
        "v1",
        "topics, groups and offsets are in RocksDB (config/rdb), which mqstore does not read: "
        "follow the running broker, which hands them over, then remove the line",
    ),
    _refused(
        "transRocksDBEnable",
        "false",
        "half messages are in RocksDB, where mqstore does not check them: decide them with the "
        "broker, then remove the line",
        copies=True,
    ),
    _refused(
        "timerRocksDBEnable",
        "false",
        "messages with a time are in RocksDB, from where mqstore does not deliver them: stop the "
        "broker, remove rocksdbstore/ and the line, and they are delivered from the log",
        copies=True,
    ),
    _refused(
        "popConsumerKVServiceEnable",
        "false",
        "what POP consumers have taken is in RocksDB (kvStore): let the broker write it to the log "
        "with `mqadmin exportPopRecord`, started with false and popConsumerKVServiceInit=true",
        copies=True,
    ),
    _refused(
        "messageStorePlugIn",
        "|null",
        "messages of a plugin, as those of tiered storage, are not in the log: read them through "
        "the broker first, then remove the line",
        copies=True,
    ),
    _refused(
        "readOnlyCommitLogStorePaths",
        "|null",
        "mqstore keeps the log in one directory: move the segments together first",
    ),
    _refused(
        "brokerPermission",
        "6",
        "mqstore would take puts and pulls all the same: remove the line, and pause writes instead "
        "(PUT /v1/store/writes)",
    ),
    _named("aclEnable", "false", _NO_ACL),
    _named("authenticationEnabled", "false", _NO_ACL),
    _named("authorizationEnabled", "false", _NO_ACL),
    _named(
        "replicasPerDiskPartition",
        "1|0",
        "ratios of the disk are those of the whole volume, not of one broker's share of it: forced "
        "deletion begins at another size of the store",
    ),
    _named(
        *("indexRocksDBEnable", "false", "keys are indexed in files, made from the log"),
        copies=False,
    ),
    _named("indexFileWriteEnable", "true", "keys are indexed; messageIndexEnable=false ends it"),
    _named(
        "timerPrecisionMs",
        "1000",
        "the timer wheel is made again of timerlog, with slots of a second",
    ),
    _named(
        "timerWheelSnapshotFlush",
        "false",
        "the timer wheel is made of timerlog, and is in timerwheel; snapshots are removed",
        copies=False,
    ),
    _named("priorityOrderAsc", "true", "receives take the highest queue of a priority topic first"),
    _named("timerWheelEnable", "true", "messages with a time are accepted and delivered"),
    _named("timerStopEnqueue", "false", "messages with a time are delivered"),
    _named("timerStopDequeue", "false", "messages with a time are delivered"),
    _named("timerInterceptDelayLevel", "false", "delay levels are delivered from their own queues"),
    _named("useStaticSubscription", "false", "consumers name their filters themselves"),
    _named("enabledAppendPropCRC", "false", "records get no property __CRC32#"),
    _named(
        "clearRetryTopicWhenDeleteTopic",
        "false",
        "the retry topics of POP groups stay when their topic is deleted",
    ),
    _named(
        "haMaxGapNotInSync",
        str(256 << 20),
        "set haSlaveFallbehindMax, its name in RocketMQ 4.9",
    ),
)
"""Settings that change what is stored, deleted, delivered or permitted, or where state is."""
_HANDLED: Final = {each.name: each for each in HANDLED}


def refusals(settings: Mapping[str, str]) -> Iterator[str]:
    """Why each setting of a broker's file that must not be ignored is refused."""
    return (f"{name}={value}: {each.why}" for name, value, each in _found(settings, refused=True))


def lacks(settings: Mapping[str, str]) -> Iterator[str]:
    """The consequence of each setting of a broker's file that mqstore does without."""
    return (f"{name}={value}: {each.why}" for name, value, each in _found(settings, refused=False))


def of_leader(settings: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return what is refused and what is named of a broker whose log and tables are copied."""
    refused: list[str] = []
    named: list[str] = []
    for name, value in settings.items():
        each = _HANDLED.get(name)
        if each is not None and each.concerns_copies and value.strip().lower() not in each.harmless:
            (refused if each.is_refused else named).append(f"{name}={value}: {each.why}")
    return refused, named


def _found(settings: Mapping[str, str], *, refused: bool) -> Iterator[tuple[str, str, Handled]]:
    folded = {fold(name): value for name, value in settings.items()}
    follows = folded.get("brokerrole", "").upper() == "SLAVE" and folded.get("hamasteraddress")
    for name, value in settings.items():
        known = _PROPERTY_NAMES.get(fold(name), name)
        if follows and known in ("brokerId", "brokerRole"):
            continue
        each = _HANDLED.get(known)
        if each is not None and each.is_refused is refused and value.lower() not in each.harmless:
            yield name, value, each


def misreadings(settings: Mapping[str, str]) -> Iterator[str]:
    """Why each setting is refused of which a broker has another value than its file seems to
    say."""
    for name, value in settings.items():
        why = _misread(_PROPERTY_NAMES.get(fold(name), name), value)
        if why is not None:
            yield f"{name}={value}: {why}"


def _misread(name: str, value: str) -> str | None:
    """Why a broker has another value of a setting than its file seems to say, or None."""
    if name not in _READ_BY_US:
        return None
    if name in _BOOLEANS:
        if value.lower() in ("true", "false"):
            return None
        return f"a broker takes {value!r} for false; write true or false"
    if name in _INTEGERS or name in _LONGS:
        bits = 31 if name in _INTEGERS else 63
        if _INTEGER.fullmatch(value) and -(1 << bits) <= int(value) < 1 << bits:
            return None
        return (
            f"a broker reads no integer of {bits + 1} bits from {value!r} and uses its default; "
            "write digits alone"
        )
    if value != value.strip(_SPACE):
        return (
            f"a broker of 4.9 uses {value!r} with its space, one of 5.x without it; remove the "
            "space at its ends"
        )
    return None


_READ_BY_US: Final = frozenset(name for name in NAMES if is_setting(name) or name in _HANDLED)
_FIELDS: Final = {**ServiceSettings.model_fields, **StoreConfig.model_fields}
_FIELD_NAMES: Final = fields_by_name(_FIELDS)


def _type_of(name: str) -> object:
    """The type of a setting that mqstore reads, or of the value that it takes without a word."""
    field = _FIELD_NAMES.get(fold(name))
    if field is not None:
        return _FIELDS[field].annotation
    harmless = _HANDLED[name].harmless[0]
    return bool if harmless in ("true", "false") else int if harmless.isdecimal() else str


_BOOLEANS: Final = frozenset(name for name in _READ_BY_US if _type_of(name) is bool)
_INTEGERS: Final = frozenset(name for name in _READ_BY_US if _type_of(name) is int) - _LONGS
