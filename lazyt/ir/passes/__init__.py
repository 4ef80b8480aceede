"""The passes that make a schedule of a graph; `pipeline.py` has their order."""
