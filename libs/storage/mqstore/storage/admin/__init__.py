"""What people and clients change besides messages: topics, groups, consumer offsets."""
