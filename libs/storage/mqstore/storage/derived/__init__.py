"""What dispatch derives from the log: consume queues and the index."""
