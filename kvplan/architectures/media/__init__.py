"""How many tokens images, a video and audio take in a request's prompt, by each model's own processor.

Rules and constants are data (`rules`); the arithmetic of the processors stands in `sizes`. Keys come from the
config; what a processor's own file would say beside it (pixel limits, tiles) is the published checkpoint's,
as the table notes it. A model without such parts, or whose rule is not known, is refused.
"""

from __future__ import annotations

from kvplan.architectures.media.asked import Media, MediaTokens
from kvplan.architectures.media.count import media_tokens
from kvplan.architectures.media.request import with_media

__all__ = ["Media", "MediaTokens", "media_tokens", "with_media"]
