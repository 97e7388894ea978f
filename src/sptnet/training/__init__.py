"""Training from settings to a finished run: batches, step, trainer, stage, experiment.

Knows nothing of reports, plans or the command line.
"""
