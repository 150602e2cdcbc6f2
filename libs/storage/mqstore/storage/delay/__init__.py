"""Delayed messages: into SCHEDULE_TOPIC_XXXX, and out of it when they are due."""
