"""Prediction of any number of image files, in parts; private to inference, which offers it as `predict_files`."""
