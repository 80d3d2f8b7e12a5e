"""`python -m glassformer` is the same as `glassformer`."""

import sys

from .cli import main

sys.exit(main())
