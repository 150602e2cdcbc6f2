"""ConsumeQueue: the entries of each queue, their files and flush, and units of ConsumeQueueExt."""
