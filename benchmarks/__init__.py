"""lazyt beside its peers: `python -m benchmarks`. Each result is checked before any time is printed.

core.py says what a workload is, workloads/ has them by family, targets.py what lazyt is to reach, peers.py how each
library is driven. worker.py measures one workload on one library in a process of its own; process.py is that process
from the outside; measure.py has the protocols: each library alone, then lazyt and the best in turns. stats.py,
report.py and picture.py make of it what __main__.py prints and writes.
"""
