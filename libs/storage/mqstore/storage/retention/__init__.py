"""What may go, when and why: RocketMQ's CleanCommitLogService and CleanConsumeQueueService.

``plan`` is a value, made from a picture of the log, the disks and who needs what; ``removal``
unlinks; ``cleaner`` is the service that does it in rounds. ``disk`` measures the volumes, ``pins``,
``groups`` and ``archive`` say what is still needed.
"""
