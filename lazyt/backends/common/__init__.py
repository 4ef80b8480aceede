"""What backends share: how a schedule is bound to extents, its arguments and memory, and calls on the host."""
