"""Every read path, once: for the writer's process and for readers."""
