"""Tools of any program: text, files, progress, seeds, the device, several processes.

Knows nothing of images, models or settings.
"""
