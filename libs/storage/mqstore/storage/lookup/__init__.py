"""All read paths of a store, shared by the writer's process and by read-only readers."""
