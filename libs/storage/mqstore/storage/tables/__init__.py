"""RocketMQ's own small files: checkpoint and config tables."""
