"""The recorder's errors: each says in one sentence what was wrong, and where."""


class RecorderError(Exception):
    """Base of every error the recorder raises on purpose."""


class CassetteError(RecorderError):
    """A file that is no cassette, or one with something in it that cannot be."""


class RecordingError(RecorderError):
    """A recording that cannot begin or go on: an upstream out of reach, a tool without an output."""


class StreamError(RecorderError):
    """A stream of events that is no message: an event where it cannot be, or one that is not JSON."""
