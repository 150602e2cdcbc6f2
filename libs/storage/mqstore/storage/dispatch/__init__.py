"""Dispatch: writes the queue entries and index items of each record that is appended to the log."""
