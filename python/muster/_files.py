"""Checkpoints in a folder."""

from __future__ import annotations

import os
import re
from typing import Optional


def newest(folder: Optional[str], pattern: str) -> Optional[str]:
    """The path in `folder` whose name matches `pattern` with the greatest number in its first group; None: no name does."""
    try:
        names = os.listdir(folder) if folder else []
    except OSError:
        return None
    found = [(int(match.group(1)), name) for name in names for match in [re.fullmatch(pattern, name)] if match]
    return os.path.join(folder, max(found)[1]) if folder and found else None
