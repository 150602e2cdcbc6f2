"""The index of a store that is written, made anew by a job: its lease, its plan, its parts."""
