"""Properties are searched without a deadline for each example: on a box that does other things too, that would only
measure the box.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("probe", deadline=None)
settings.load_profile("probe")
