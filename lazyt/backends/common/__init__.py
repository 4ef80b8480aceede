"""Code that backends share: binding of a schedule to extents, its arguments and memory, and calls on the host."""
