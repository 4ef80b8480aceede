"""Looking at what was recorded, what would run, and what ran; nothing here computes."""
