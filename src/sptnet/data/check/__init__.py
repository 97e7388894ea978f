"""What to know about a folder before anything long: unreadable files, duplicates, too few images.

Knows nothing of plans: it reads images and tells what it finds.
"""
