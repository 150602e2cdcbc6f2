"""Writes queue entries and index items of each record that the log takes."""
