"""NumPy's protocols: what happens when a NumPy function or ufunc is called on a tensor."""
