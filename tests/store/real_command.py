"""How these tests start a real hbuf-append: with the interpreter and the hbuf that run the tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import hbuf

APPEND = [sys.executable, "-c", "from hbuf.cli.append import main; main()"]
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(Path(hbuf.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]).strip(":")
}
