"""The one HTTP/1.1 client on the hot path: what goes to upstream goes through here.

:class:`Upstream` keeps the connections, :class:`Response` is one answer. Errors are those of :mod:`gateway.errors`:
``UpstreamUnreachable``, ``UpstreamTimeout``, ``UpstreamBroken``.
"""

from gateway.upstream.client import Upstream
from gateway.upstream.connection import Response
from gateway.wire.headers import Headers

__all__ = ["Headers", "Response", "Upstream"]
