"""Check of a folder of images before training: unreadable files, duplicates, small categories.

Must not know about models or training plans.
"""
