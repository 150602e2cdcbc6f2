"""Delayed messages: stores them in SCHEDULE_TOPIC_XXXX and delivers them when they are due."""
