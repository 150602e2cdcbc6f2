"""Where the log's bytes come from and how they are read in ranges. Nothing here knows Spark."""
