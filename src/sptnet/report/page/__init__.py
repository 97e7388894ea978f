"""`report.html`: one file about a finished run, with its pictures, a map, the evidence, and a place to correct it."""
