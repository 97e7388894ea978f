"""Export of edited categories for other programs: tables, COCO, folders of links or copies.

This folder must not change the run or the user's images.
"""
