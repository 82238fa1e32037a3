from tools.lab.host import Link
from tools.lab.lab import Lab, missing

__all__ = ["Lab", "Link", "missing"]
