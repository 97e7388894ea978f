"""General tools: text, files, progress, seeds, devices, several processes.

Must not know about images, models or settings.
"""
