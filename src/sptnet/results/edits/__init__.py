"""What a person changed in a run: the kinds of edits, their log, what each does, and the names that result."""
