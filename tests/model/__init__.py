"""The store against a plain model: a state machine, and real processes that are killed."""
