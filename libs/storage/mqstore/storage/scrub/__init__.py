"""A slow look at all that is covered by block checksums, so that damage is found before a reader
meets it: ``service`` walks, ``finding`` says which record and which field of it has changed."""
