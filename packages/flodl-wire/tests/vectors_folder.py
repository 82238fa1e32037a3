"""Where the published vectors lie: docs/vectors of the repository."""

from pathlib import Path

VECTORS = Path(__file__).resolve().parents[3] / "docs" / "vectors"
