"""The cadence controller: how many batches each rank does until the next average."""
