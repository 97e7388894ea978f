"""Prediction over any number of images, in parts that several processes share and a stopped job resumes."""
