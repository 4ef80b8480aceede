"""Programs that PyTorch and lazyt run alike, an area a file: each has a list CASES (`support/torch_golden.py`)."""
