"""The exceptions of the robot package: one line that says what was wrong and what to do about it."""


class NavigationError(Exception):
    """Base of everything the robot package raises for its users."""


class InstructionError(NavigationError):
    """The instruction cannot be used (empty, too long)."""


class FrameError(NavigationError):
    """A camera message cannot be turned into an image."""


class PromptError(NavigationError):
    """A prompt specification is wrong or does not fit the model."""


class ParameterError(NavigationError):
    """A parameter has a value outside its range."""


class BackendError(NavigationError):
    """The motion back-end asked for cannot be used here."""


class CameraError(NavigationError):
    """The video source asked for cannot be used here."""
