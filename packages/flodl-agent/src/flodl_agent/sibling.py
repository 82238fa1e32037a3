"""Where the executables of the other packages are: flodl_wire's rule, or Refused."""

from flodl_wire.sibling import require as find

__all__ = ["find"]
