"""The index of a store, made anew from its log by Spark."""
