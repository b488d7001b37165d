"""Checkpoints in a folder."""

from __future__ import annotations

import os
import re
from typing import Callable, Optional


def newest(folder: Optional[str], pattern: str, is_whole: Callable[[str], bool] = lambda path: True) -> Optional[str]:
    """The path in `folder` whose name matches `pattern` with the greatest number in its first group, of those that are
    whole; None: there is none."""
    try:
        names = os.listdir(folder) if folder else []
    except OSError:
        return None
    found = [(int(match.group(1)), name) for name in names for match in [re.fullmatch(pattern, name)] if match]
    paths = (os.path.join(str(folder), name) for _, name in sorted(found, reverse=True))
    return next((path for path in paths if is_whole(path)), None)
