"""lazyt beside its peers: `python -m benchmarks`. Each result is checked before any time is printed.

core.py says what a workload is, peers.py how each library is driven, workloads/ has the workloads by family, worker.py
measures one workload on one library in a process of its own, and __main__.py runs the workers and prints the tables.
"""
