// What the fields, flags and properties of a message mean.

/** By the names of `sysFlagNames`. */
export const FLAGS = /** @type {Record<string, string>} */ ({
  COMPRESSED: "The producer compressed the body.",
  MULTI_TAGS: "The message may have several tags.",
  BORN_HOST_V6: "The producer's address is of IPv6.",
  STORE_HOST_V6: "The store's address is of IPv6.",
  TRANSACTION_PREPARED: "A half message: no group gets it before the commit.",
  TRANSACTION_COMMIT: "It was committed by a transaction.",
  TRANSACTION_ROLLBACK: "It was rolled back by a transaction.",
  COMPRESSION_LZ4: "The body is compressed by LZ4.",
  COMPRESSION_ZSTD: "The body is compressed by Zstandard.",
  COMPRESSION_ZLIB: "The body is compressed by zlib.",
  INNER_BATCH: "Several messages in one record.",
  NEED_UNWRAP_INNER_BATCH: "A batch that is unpacked when it is read.",
});

/** Properties that RocketMQ and mqstore give a meaning. */
export const PROPERTIES = /** @type {Record<string, string>} */ ({
  KEYS: "Keys by which the index finds it, separated by spaces",
  TAGS: "Its tag, by which groups filter",
  UNIQ_KEY: "Its unique key, made by the producer",
  WAIT: "Whether the producer waited until it was stored",
  DELAY: "Level of the delay",
  TIMER_DELIVER_MS: "When it is delivered, Unix time in ms",
  TIMER_DELAY_MS: "Delay in ms",
  TIMER_DELAY_SEC: "Delay in s",
  TIMER_OUT_MS: "When the timer delivers it, Unix time in ms",
  REAL_TOPIC: "The topic that it goes to",
  REAL_QID: "The queue that it goes to",
  RETRY_TOPIC: "The topic that it came from, before a group returned it",
  ORIGIN_MESSAGE_ID: "The message that a group got first",
  RECONSUME_TIME: "How often it was returned",
  MAX_RECONSUME_TIMES: "How often it may be returned",
  DLQ_ORIGIN_TOPIC: "Topic of the dead letter",
  DLQ_ORIGIN_MESSAGE_ID: "Message of the dead letter",
  CONSUME_START_TIME: "When a consumer began with it, Unix time in ms",
  TRAN_MSG: "A half message of a transaction",
  PGROUP: "Group of the producer",
  __SHARDINGKEY: "Ordering key: messages under one key stay in order",
  __transactionId__: "Id of its transaction",
  CLUSTER: "Cluster that it came through",
  MSG_REGION: "Region of its producer",
  TRACE_ON: "Whether its producer traced it",
  INSTANCE_ID: "Name of the producer's process",
});

const BLOCKS = /** @type {Record<string, string>} */ ({
  verified: "All of it is as it was synced to the disk.",
  "partly-verified": "A part of it is covered by checksums, and fits.",
  "not-covered": "Not synced yet, or a store without checksums of blocks.",
  damaged: "A block of it has changed on the disk: only the record's own checks vouch for it.",
});

/** @param {string} state */
export const blocksMeaning = (state) => BLOCKS[state] ?? "";
