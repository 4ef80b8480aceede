"""Library calls that generated OpenCL C computes: scatters, scans, sorts, searches, bits."""
