"""Commands that make parts of this repository from others."""
