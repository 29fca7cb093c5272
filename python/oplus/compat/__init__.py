"""Drop-ins for functions of mamba-ssm, flash-linear-attention and flash-attn, with their arguments, layouts and defaults.

`oplus.compat.patch("mamba_ssm")` puts them in the place of the originals in an installed package, before or after it is imported.
What a drop-in does not do raises `Unsupported`.
"""

from __future__ import annotations

from . import fla, flash_attn, mamba_ssm
from ._common import Unsupported
from ._patch import Patch, patch

__all__ = ["Patch", "Unsupported", "fla", "flash_attn", "mamba_ssm", "patch"]
