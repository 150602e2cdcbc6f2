"""Sources of the log's bytes, read in ranges. No module of this package imports Spark."""
